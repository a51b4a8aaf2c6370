"""Records survive what happens to runs: kills in the middle of a line, retries, re-reading."""

import dataclasses
import datetime as dt
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.errors import UsageError
from eval.records.run_folders import past_attempts
from eval.records.schema import Outcome, RunFolder
from tests.eval.factory import RunBuilder, episode, key


@pytest.mark.parametrize("outcome", list(Outcome))
def test_records_round_trip(tmp_path, outcome):
    folder = RunFolder(tmp_path)
    folder.append(episode(key(), outcome))
    assert list(folder.episodes().values()) == [episode(key(), outcome)]
    folder.append(episode(key()))
    assert list(folder.episodes().values()) == [episode(key())], "the last record of an episode counts"


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.INVALID_ACTION])
def test_exactly_errors_and_invalid_actions_have_a_traceback(outcome):
    for result, wrong in (
        (episode(key(), outcome), {"traceback": None}),
        (episode(key(), outcome), {"error": None}),
        (episode(key()), {"error": "x"}),
    ):
        with pytest.raises(ValueError, match="exactly an error and an invalid action have one"):
            dataclasses.replace(result, **wrong)


def test_a_path_that_is_not_utf8_is_read_back_as_it_was(tmp_path):
    command = f"python -m eval.run --output-dir {os.fsdecode(b'r' + bytes([255]))}"
    folder = RunBuilder.at(tmp_path / "run", command=command).folder
    assert folder.read_manifest()["command"] == command


@given(cut=st.integers(min_value=1, max_value=400))
def test_a_partial_last_line_is_skipped(tmp_path_factory, cut):
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    folder.append(episode(key(0)))
    whole = folder.episodes_path.read_bytes()
    line = json.dumps(episode(key(1)).to_json()).encode()
    folder.episodes_path.write_bytes(whole + line[: min(cut, len(line))])
    assert [key.init_id for key in folder.episodes()] == [0]
    folder.append(episode(key(2)))
    assert [key.init_id for key in folder.episodes()] == [0, 2]


def test_a_run_belongs_to_one_process_at_a_time(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with (
        folder.locked(),
        pytest.raises(UsageError, match="another process is using run"),
        folder.locked(),
    ):
        pass
    with folder.locked():
        pass


def test_a_killed_attempt_ended_with_its_last_record(tmp_path):
    attempt = {"started": "2026-01-01T00:00:00+00:00", "finished": None}
    run = RunBuilder.at(tmp_path / "run", status="running", finished=None, attempts=[attempt])
    assert past_attempts(run.folder)[-1]["finished"] == "2026-01-01T00:00:00+00:00"
    run.add(episode(key()))
    written = dt.datetime(2026, 1, 1, 0, 20, tzinfo=dt.UTC)
    os.utime(run.folder.episodes_path, times=(written.timestamp(), written.timestamp()))
    (killed,) = past_attempts(run.folder)
    assert dt.datetime.fromisoformat(killed["finished"]) == written
