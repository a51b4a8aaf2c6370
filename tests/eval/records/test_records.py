"""Records survive kills in the middle of a line, retries and re-reading, and say what really ran."""

import dataclasses
import datetime as dt
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.errors import check
from configs.paths import locked
from configs.schema import RunConfig
from contracts.episode import Outcome
from contracts.errors import UsageError
from contracts.latency import Latency
from contracts.query import QueryRecord
from eval.metrics.sweep_rows import Cell
from eval.records import provenance
from eval.records.json_files import json_line
from eval.records.protocol import suite_hash
from eval.records.query_logs import query_to_json, read_queries
from eval.records.reader import read_episodes, read_identity
from eval.records.run_folders import find_unfinished, past_attempts
from eval.records.schema import RunFolder
from tests.commands import printed
from tests.eval.factory import RunBuilder, episode, key

TIMED = QueryRecord(idle=2, latency=Latency(actions_ms=100.0, busy_ms=100.0))


@pytest.mark.parametrize("outcome", list(Outcome))
def test_records_round_trip(tmp_path, outcome):
    folder = RunFolder(tmp_path)
    folder.append(episode(key(), outcome))
    assert list(folder.episodes().values()) == [episode(key(), outcome)]
    folder.append(episode(key()))
    assert list(folder.episodes().values()) == [episode(key())], "the last record of an episode counts"


def test_steps_without_an_action_are_read_under_their_former_name(tmp_path):
    folder = RunFolder(tmp_path)
    log = folder.queries_path(key())
    log.parent.mkdir(parents=True)
    lines = {folder.episodes_path: dataclasses.asdict(episode(key())), log: query_to_json(TIMED)}
    for path, line in lines.items():
        former = {{"idle_steps": "held_steps", "idle": "held"}.get(name, name): line[name] for name in line}
        assert former != line
        path.write_bytes(json_line(former | {"held_steps": 3}))
    (result,), (query,) = folder.episodes().values(), read_queries(folder, key())
    assert (result.idle_steps, query.idle) == (3, TIMED.idle)
    cell = {"n_episodes": 1, "n_success": 1, "run": "cell", "options": {}, "pc_held": 4.0}
    assert check(Cell, cell, source="sweep.json").pc_idle == 4


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
    command = f"oxygen-eval run --output-dir {os.fsdecode(b'r' + bytes([255]))}"
    folder = RunBuilder.at(tmp_path / "run", command=command).folder
    assert folder.read_manifest()["command"] == command


@given(cut=st.integers(min_value=1, max_value=400))
def test_a_partial_last_line_is_skipped(tmp_path_factory, cut):
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    folder.append(episode(key(0)))
    whole = folder.episodes_path.read_bytes()
    line = json.dumps(dataclasses.asdict(episode(key(1)))).encode()
    folder.episodes_path.write_bytes(whole + line[: min(cut, len(line))])
    assert [key.init_id for key in folder.episodes()] == [0]
    folder.append(episode(key(2)))
    assert [key.init_id for key in folder.episodes()] == [0, 2]


def test_a_run_belongs_to_one_process_at_a_time(tmp_path):
    folder = tmp_path / "run"
    with locked(folder), pytest.raises(UsageError, match="another process is using run"), locked(folder):
        pass
    with locked(folder):
        pass


@pytest.mark.parametrize(
    "forged",
    [
        *({"config": 5}, {"config": {"task_ids": 5}}, {"config": {"num_trials_per_task": "x"}}),
        *({"protocol": [5]}, {"protocol": {"libero_object": 5}}, {"variants": 5}, {"started": 5}),
        {"policy_inputs": 5},
        *({"attempts": []}, {"attempts": [5]}, {"attempts": [{"started": 5, "finished": None}]}),
    ],
)
def test_a_forged_manifest_is_one_line(forged, tmp_path, capsys):
    run = RunBuilder.at(tmp_path / "run", **forged).add(episode(key())).folder
    for read in (read_identity, read_episodes):
        with pytest.raises(UsageError, match=rf"manifest\.json: {next(iter(forged))}.* is "):
            read(run)
    with pytest.raises(UsageError, match="nothing to resume"):
        find_unfinished(tmp_path, {})
    assert f"skipped {run.path}" in capsys.readouterr().err


def test_a_policy_that_batches_may_go_on_with_another_batch_size(tmp_path):
    config = RunConfig(policy="mine:Policy").model_dump(mode="json")
    run = RunBuilder.at(tmp_path / "run", status="interrupted", config=config)
    with pytest.raises(UsageError, match="nothing to resume"):
        find_unfinished(tmp_path, {"batch_size": 2})
    run.folder.write_manifest(run.folder.read_manifest() | {"policy_inputs": {"padded_batches": False}})
    (resumed,) = find_unfinished(tmp_path, {"batch_size": 2})
    assert resumed.config.batch_size == 2
    (resumed,) = find_unfinished(tmp_path, {})
    assert resumed.config.batch_size == 1


def test_a_killed_attempt_ended_with_its_last_record(tmp_path):
    attempt = {"started": "2026-01-01T00:00:00+00:00", "finished": None}
    run = RunBuilder.at(tmp_path / "run", status="running", finished=None, attempts=[attempt])
    assert past_attempts(run.folder)[-1]["finished"] == "2026-01-01T00:00:00+00:00"
    run.add(episode(key()))
    written = dt.datetime(2026, 1, 1, 0, 20, tzinfo=dt.UTC)
    os.utime(run.folder.episodes_path, times=(written.timestamp(), written.timestamp()))
    (killed,) = past_attempts(run.folder)
    assert dt.datetime.fromisoformat(killed["finished"]) == written


def git(folder, *arguments):
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@pytest.mark.parametrize("inside", ["", "venv/lib/site-packages"])
def test_the_commit_is_recorded_of_the_projects_own_repository_alone(tmp_path, monkeypatch, inside):
    module = tmp_path / inside / "provenance.py"
    module.parent.mkdir(parents=True, exist_ok=True)
    module.touch()
    (tmp_path / ".gitignore").write_text("venv")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "somebody's")
    (tmp_path / "changed").touch()
    monkeypatch.setattr(provenance, "__file__", str(module))
    state = provenance.git_state.__wrapped__()
    if inside:
        assert state == {"commit": None, "dirty": None}
    else:
        assert (len(state["commit"]), state["dirty"]) == (40, True)


def test_packages_count_by_content_and_a_release_is_not_an_editable_installation():
    def hashed(package, plugin=None):
        described = {"assets": {"name": "none", "digest": ""}, "versions": {"arm": package, "rubric": 3}}
        return suite_hash(described | ({"package": {"name": "suites", **plugin}} if plugin else {}))

    editable = {"version": "1.0", "editable": "/mine", "commit": None, "dirty": None, "digest": "1"}
    moved = {**editable, "editable": "/theirs", "commit": "c0ffee", "dirty": True}
    assert hashed(editable) == hashed(moved)
    assert hashed("1.0", editable) == hashed("1.0", moved)
    others = [hashed("1.0"), hashed({**editable, "digest": "2"}), hashed("1.0", {**editable, "digest": "2"})]
    assert len({hashed(editable), hashed("1.0", editable), *others}) == 5


def test_the_command_line_is_recorded():
    code = "from eval.records import provenance; print(provenance.command())"
    assert printed(sys.executable, "-c", code, "--seed", "a b") == f"python -c '{code}' --seed 'a b'\n"
