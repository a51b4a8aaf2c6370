"""An interrupted run is completed by resuming it, unless its episodes would then not be of one kind."""

import errno
import json
import os
import time

import pytest
import yaml

from configs.errors import UsageError
from configs.schema import RunConfig
from eval.records import provenance
from eval.records.reader import read_identity
from eval.records.run_folders import find_unfinished, new_run
from eval.records.schema import RunFolder
from eval.rollout import evaluation, manifest
from eval.rollout.evaluation import exit_code
from sim_envs.fake import FakeSuite
from tests.eval.conftest import CONFIG, evaluate
from tests.eval.doubles import FakeAssets, without_physics


def test_resume_completes_a_run_after_ctrl_c(tmp_path, policy, capsys):
    policy.interrupted_at = 5
    run = new_run(tmp_path, CONFIG)
    with pytest.raises(KeyboardInterrupt):
        evaluate(run)
    assert policy.answers == policy.queries == 6, "the signal is heeded after the query, not within"
    assert run.folder.read_manifest()["status"] == "interrupted"
    assert len(run.folder.episodes()) == len(list((run.folder.path / "queries").iterdir())) == 2
    assert "Interrupted: 2 of 8 episodes" in " ".join(capsys.readouterr().out.split())

    (again,) = find_unfinished(tmp_path, {"policy": "tiny"})
    assert again.folder == run.folder
    done = len(policy.episodes)
    assert exit_code(evaluate(again)) == 0
    assert len(policy.episodes) - done == 6
    uninterrupted = new_run(tmp_path, CONFIG)
    evaluate(uninterrupted)
    assert list(again.folder.episodes()) == list(uninterrupted.folder.episodes())
    with pytest.raises(UsageError, match="is complete"):
        find_unfinished(tmp_path, {"policy": "tiny"})


def test_resume_retries_errors(tmp_path, policy, capsys):
    policy.fails_at = 0
    run = new_run(tmp_path, CONFIG)
    assert exit_code(evaluate(run, max_errors=9)) == evaluation.NOTHING_GRADED
    assert json.loads(run.folder.results_path.read_text())["overall"]["n_errors"] == 8
    assert run.folder.read_manifest()["status"] == "complete"
    assert "with --resume retries" in capsys.readouterr().out
    policy.fails_at = None
    assert exit_code(evaluate(*find_unfinished(tmp_path, {}))) == 0
    overall = json.loads(run.folder.results_path.read_text())["overall"]
    assert (overall["n_errors"], overall["n_success"]) == (0, 8)
    assert "with --resume retries" not in capsys.readouterr().out
    with pytest.raises(UsageError, match="is complete and without errors"):
        find_unfinished(tmp_path, {})


def test_resume_refuses_a_run_under_another_protocol(tmp_path, policy, monkeypatch):
    policy.interrupted_at = 3
    with pytest.raises(KeyboardInterrupt):
        evaluate(new_run(tmp_path, CONFIG))
    without_physics(monkeypatch, find_assets=lambda source: FakeAssets(digest="1" * 12))
    with pytest.raises(UsageError, match=r"libero_object\.assets has changed; .* without --resume"):
        evaluate(*find_unfinished(tmp_path, {}))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"max_steps": 9}, r"fake\.suite\.max_steps has changed; put it back"),
        ({"environment": {"instructions": ["a", "d"]}}, r"fake\.suite\.environment\.instructions\.1 has"),
        ({"trials_per_task": 1}, "begun with 4 episodes, this has 2: `trials_per_task`"),
    ],
)
def test_resume_names_what_has_changed_in_the_file_of_a_suite(tmp_path, policy, changes, named):
    file, fake = tmp_path / "mine.yaml", {"environment": {"instructions": ["a", "b"]}, "camera_size": 256}
    fake = {**FakeSuite.published.model_dump(mode="json"), **fake}
    file.write_text(yaml.safe_dump(fake))
    policy.interrupted_at = 3
    run = new_run(tmp_path, RunConfig(suites=(str(file),), video="none"))
    with pytest.raises(KeyboardInterrupt):
        evaluate(run)
    file.write_text(yaml.safe_dump({**fake, **changes}))
    with pytest.raises(UsageError, match=named):
        evaluate(*find_unfinished(tmp_path, {}))


def test_resume_refuses_other_language_tasks_under_the_same_name(tmp_path, policy):
    file = tmp_path / "plan.yaml"
    file.write_text("{name: plan, prompt: 'Plan: ', max_tokens: 9}")
    run = new_run(tmp_path, CONFIG.model_copy(update={"policy": "small", "language_tasks": (str(file),)}))
    policy.interrupted_at = 3
    with pytest.raises(KeyboardInterrupt):
        evaluate(run)
    file.write_text("{name: plan, prompt: 'Next: ', max_tokens: 9}")
    with pytest.raises(UsageError, match=r"other texts: language_tasks\.0\.prompt has changed; put it back"):
        evaluate(*find_unfinished(tmp_path, {}))
    of_earlier_version = run.folder.read_manifest()
    del of_earlier_version["language_tasks"]
    run.folder.write_manifest(of_earlier_version)
    assert exit_code(evaluate(*find_unfinished(tmp_path, {}))) == 0


def test_resume_refuses_other_weights(tmp_path, policy, monkeypatch):
    monkeypatch.setattr(manifest, "weights_sha256", lambda cast: "a" * 64)
    policy.interrupted_at = 3
    run = new_run(tmp_path, CONFIG)
    with pytest.raises(KeyboardInterrupt):
        evaluate(run)
    left = run.folder.read_manifest()
    monkeypatch.setattr(manifest, "weights_sha256", lambda cast: "b" * 64)
    with pytest.raises(UsageError, match=r"weights a{12}, tiny now has b{12}; .* without --resume"):
        evaluate(*find_unfinished(tmp_path, {}))
    assert run.folder.read_manifest() == left
    assert exit_code(evaluate(new_run(tmp_path, CONFIG))) == 0


def test_a_run_records_the_machine_of_each_attempt(tmp_path, policy, monkeypatch):
    policy.interrupted_at = 3
    run = new_run(tmp_path, CONFIG)
    commits = iter(("first", "second"))
    monkeypatch.setattr(provenance, "git_state", lambda: {"commit": next(commits), "dirty": False})
    with pytest.raises(KeyboardInterrupt):
        evaluate(run)
    (first,) = run.folder.read_manifest()["attempts"]
    evaluate(*find_unfinished(tmp_path, {}))
    left = run.folder.read_manifest()
    before, after = left["attempts"]
    assert before == first
    assert (before["git"]["commit"], after["git"]["commit"]) == ("first", "second")
    assert after["versions"] == left["versions"]
    assert after["hardware"] == left["hardware"]
    assert left["started"] == before["started"] <= before["finished"] <= after["started"]
    assert left["finished"] == after["finished"]


def test_a_run_of_another_schema_version_is_refused_in_one_line(tmp_path, policy):
    run = new_run(tmp_path, CONFIG)
    evaluate(run)
    run.folder.write_manifest({**run.folder.read_manifest(), "schema_version": 1})
    with pytest.raises(UsageError, match="schema version 1, this program reads 2; run it again"):
        read_identity(run.folder)


def test_a_run_is_complete_only_once_its_results_are_on_disk(tmp_path, policy, monkeypatch):
    run = new_run(tmp_path, CONFIG)
    with monkeypatch.context() as failing:
        failing.setattr(evaluation, "write_json", no_space)
        with pytest.raises(OSError, match="no space"):
            evaluate(run)
    assert run.folder.read_manifest()["status"] == "running"
    played = len(policy.episodes)
    evaluate(*find_unfinished(tmp_path, {}))
    assert run.folder.read_manifest()["status"] == "complete"
    assert len(policy.episodes) == played
    results = run.folder.results_path.read_bytes()
    run.folder.results_path.unlink()  # as versions left it that said "complete" too early
    evaluate(*find_unfinished(tmp_path, {}))
    assert run.folder.results_path.read_bytes() == results


def no_space(*_) -> None:
    raise OSError(errno.ENOSPC, "no space left on device")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("manifest.json", b'{"status": "running"}'),
        ("manifest.json", b'{"run_id": '),
        ("episodes.jsonl", b'{"key": 3}\n'),
        ("episodes.jsonl", b"\xff\n"),
    ],
)
def test_resume_skips_unreadable_runs_and_names_them(tmp_path, policy, capsys, file, content):
    wanted = new_run(tmp_path, CONFIG)
    policy.interrupted_at = 3
    with pytest.raises(KeyboardInterrupt):
        evaluate(wanted)
    damaged = new_run(tmp_path, CONFIG)
    evaluate(damaged)
    (damaged.folder.path / file).write_bytes(content)
    capsys.readouterr()
    (again,) = find_unfinished(tmp_path, {})
    assert again.folder == wanted.folder
    said = capsys.readouterr().err
    assert said.startswith(f"skipped {damaged.folder.path}: ")
    assert said.count("\n") == 1


def left_by_a_kill(output_dir, name, *, age_s=120.0, manifest=None):
    """A draft of a new run, as old as given."""
    draft = output_dir / f".{name}.partial"
    draft.mkdir(parents=True)
    (draft / ".lock").touch()
    if manifest is not None:
        RunFolder(draft).write_manifest(manifest)
    then = time.time() - age_s
    os.utime(draft, (then, then))
    return draft


def test_the_next_start_cleans_up_after_a_kill(tmp_path, policy):
    config, started = CONFIG.model_dump(mode="json"), "2026-01-01T00:00:00+00:00"
    seen = {"config": config, "status": "running", "started": started}
    gone = [
        left_by_a_kill(tmp_path, "20260101-000000-tiny-actions"),
        left_by_a_kill(tmp_path, "20260101-000001-tiny-actions", manifest={**seen, "variants": ["a", "b"]}),
    ]
    (tmp_path / "visible").mkdir()
    locked = left_by_a_kill(tmp_path, "20260101-000002-tiny-actions")
    kept = [
        locked,
        left_by_a_kill(tmp_path, "20260101-000003-tiny-actions", age_s=1.0),
        left_by_a_kill(tmp_path, "20260101-000004-tiny-actions", manifest={**seen, "variants": ["visible"]}),
        left_by_a_kill(tmp_path, "a-bundle"),
    ]
    with RunFolder(locked).locked():
        evaluate(new_run(tmp_path, CONFIG))
    assert not any(draft.exists() for draft in gone)
    assert all(draft.exists() for draft in kept)
