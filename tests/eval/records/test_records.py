"""Records survive what happens to runs: kills in the middle of a line, retries, re-reading."""

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.errors import UsageError
from eval.records.json_files import append_json_line, read_json_lines, write_json
from eval.records.schema import EpisodeResult, Outcome, RequestCounts, RunFolder
from sim_envs.world import EpisodeKey


def episode(init_id: int = 0, outcome: Outcome = Outcome.SUCCESS, **changes) -> EpisodeResult:
    failed = outcome.has_traceback
    fields = {
        "key": EpisodeKey(suite="libero_object", task_id=1, init_id=init_id, seed=7),
        "task": "pick_up_the_milk",
        "instruction": "pick up the milk",
        "language": "get the milk",
        "outcome": outcome,
        "steps": 12,
        "queries": 3,
        "latency_ms": {"action": {"p50": 1.0, "p95": 2.0, "p99": 3.0}},
        "tokens": 4,
        "requests": RequestCounts(requested=3, finished=2, cancelled=1),
        "policy_s": 0.1,
        "wall_s": 0.2,
        "error": "ValueError: no" if failed else None,
        "traceback": "Traceback: no" if failed else None,
    }
    return EpisodeResult(**{**fields, **changes})


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_record_is_read_back_as_it_was_written(tmp_path, outcome):
    folder = RunFolder(tmp_path)
    folder.append(episode(outcome=outcome))
    assert list(folder.episodes().values()) == [episode(outcome=outcome)]


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.INVALID_ACTION])
def test_what_was_raised_has_its_traceback_and_nothing_else_has_one(outcome):
    with pytest.raises(ValueError, match="exactly an error and an invalid action have one"):
        dataclasses.replace(episode(outcome=outcome), traceback=None)
    with pytest.raises(ValueError, match="exactly an error and an invalid action have one"):
        dataclasses.replace(episode(outcome=outcome), error=None)
    with pytest.raises(ValueError, match="exactly an error and an invalid action have one"):
        dataclasses.replace(episode(), error="x")


def test_the_last_record_of_an_episode_counts(tmp_path):
    folder = RunFolder(tmp_path)
    folder.append(episode(outcome=Outcome.ERROR))
    folder.append(episode())
    assert [result.outcome for result in folder.episodes().values()] == [Outcome.SUCCESS]


@given(cut=st.integers(min_value=1, max_value=400))
def test_a_kill_in_the_middle_of_a_line_costs_that_line_only(tmp_path_factory, cut):
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    folder.append(episode(0))
    whole = folder.episodes_path.read_bytes()
    line = json.dumps(episode(1).to_json()).encode()
    folder.episodes_path.write_bytes(whole + line[: min(cut, len(line))])
    assert [key.init_id for key in folder.episodes()] == [0]
    folder.append(episode(2))
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


def test_no_file_means_no_episodes(tmp_path):
    assert list(read_json_lines(tmp_path / "absent.jsonl")) == []


def test_a_json_file_is_replaced_whole(tmp_path):
    path = tmp_path / "manifest.json"
    write_json(path, {"a": 1})
    write_json(path, {"a": "ü"})
    assert json.loads(path.read_text()) == {"a": "ü"}
    assert [file.name for file in tmp_path.iterdir()] == ["manifest.json"]


def test_adding_a_line_reads_no_more_than_the_end_of_the_file(tmp_path, monkeypatch):
    path = tmp_path / "episodes.jsonl"
    append_json_line(path, {"n": 0})
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail(f"{self} is read whole"))
    append_json_line(path, {"n": 1})
    assert [record["n"] for record in read_json_lines(path)] == [0, 1]
