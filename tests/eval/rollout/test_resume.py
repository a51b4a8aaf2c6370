"""An interrupted run is completed by resuming it, unless its episodes would then not be of one kind."""

import errno
import json

import pytest
import yaml

from configs.errors import UsageError
from configs.schema import RunConfig
from eval.records import provenance
from eval.records.run_folders import find_unfinished, new_run
from eval.records.schema import RunFolder
from eval.rollout import evaluation
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


def interrupted(policy, tmp_path, config=CONFIG, after: int = 3) -> RunFolder:
    """A run that is to be resumed, after so many queries."""
    policy.interrupted_at = policy.queries + after
    run = new_run(tmp_path / "runs", config)
    with pytest.raises(KeyboardInterrupt):
        evaluate(run)
    return run.folder


def refused(tmp_path) -> str:
    """Why it is not resumed."""
    with pytest.raises(UsageError, match="put it back, or start a new run without --resume") as caught:
        evaluate(*find_unfinished(tmp_path / "runs", {}))
    return str(caught.value)


def test_resume_refuses_other_assets_and_other_weights(tmp_path, policy, monkeypatch):
    monkeypatch.setattr(evaluation, "weights_sha256", lambda cast: "a" * 64)
    left = interrupted(policy, tmp_path).read_manifest()
    with monkeypatch.context() as other:
        without_physics(other, find_assets=lambda source: FakeAssets(digest="1" * 12))
        assert "libero_object.assets.digest '000000000000', this has '111111111111'" in refused(tmp_path)
    monkeypatch.setattr(evaluation, "weights_sha256", lambda cast: "b" * 64)
    assert f"weights_sha256 '{'a' * 64}', this has '{'b' * 64}'" in refused(tmp_path)
    (again,) = find_unfinished(tmp_path / "runs", {})
    assert again.folder.read_manifest() == left


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"max_steps": 9}, "protocol.fake.suite.max_steps 20, this has 9;"),
        (
            {"environment": {"instructions": ["a", "d"]}},
            "fake.suite.environment.instructions.1 'b', this has 'd'",
        ),
        ({"trials_per_task": 1}, "begun with 4 episodes, this has 2: `trials_per_task`"),
    ],
)
def test_resume_names_what_has_changed_in_the_file_of_a_suite(tmp_path, policy, changes, named):
    file, fake = tmp_path / "mine.yaml", {"environment": {"instructions": ["a", "b"]}, "camera_size": 256}
    fake = {**FakeSuite.published.model_dump(mode="json"), **fake}
    file.write_text(yaml.safe_dump(fake))
    interrupted(policy, tmp_path, RunConfig(suites=(str(file),), video="none"))
    file.write_text(yaml.safe_dump({**fake, **changes}))
    assert named in refused(tmp_path)


def test_resume_refuses_two_suites_that_have_swapped_their_trials(tmp_path, policy):
    files = {name: tmp_path / f"{name}.yaml" for name in ("one", "two")}

    def write(**trials: int) -> None:
        for name, count in trials.items():
            changes = {"name": name, "trials_per_task": count, "camera_size": 256, "max_steps": 5}
            fake = {**FakeSuite.published.model_dump(mode="json"), **changes}
            files[name].write_text(yaml.safe_dump(fake))

    write(one=2, two=1)
    interrupted(policy, tmp_path, RunConfig(suites=tuple(map(str, files.values())), video="none"), after=2)
    write(one=1, two=2)
    assert "and not one.0.1.7: `trials_per_task` of a suite has changed" in refused(tmp_path)


def test_resume_refuses_other_language_tasks_under_the_same_name(tmp_path, policy):
    file = tmp_path / "plan.yaml"
    file.write_text("{name: plan, prompt: 'Plan: ', max_tokens: 9}")
    config = CONFIG.model_copy(update={"policy": "small", "language_tasks": (str(file),)})
    interrupted(policy, tmp_path, config)
    file.write_text("{name: plan, prompt: 'Next: ', max_tokens: 9}")
    assert "begun with language_tasks.0.prompt 'Plan: ', this has 'Next: '" in refused(tmp_path)


def test_a_run_records_the_machine_of_each_attempt(tmp_path, policy, monkeypatch):
    commits = iter(("first", "second"))
    monkeypatch.setattr(provenance, "git_state", lambda: {"commit": next(commits), "dirty": False})
    folder = interrupted(policy, tmp_path)
    (first,) = folder.read_manifest()["attempts"]
    evaluate(*find_unfinished(tmp_path / "runs", {}))
    left = folder.read_manifest()
    before, after = left["attempts"]
    assert before == first
    assert (before["git"]["commit"], after["git"]["commit"]) == ("first", "second")
    assert after["versions"] == left["versions"]
    assert after["hardware"] == left["hardware"]
    assert left["started"] == before["started"] <= before["finished"] <= after["started"]
    assert left["finished"] == after["finished"]


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
    run.folder.results_path.unlink()  # as after a partial copy
    evaluate(*find_unfinished(tmp_path, {}))
    assert run.folder.results_path.read_bytes() == results


def no_space(*_) -> None:
    raise OSError(errno.ENOSPC, "no space left on device")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("manifest.json", b'{"status": "running"}'),
        ("manifest.json", b'{"schema_version": 1}'),
        ("manifest.json", None),
        ("manifest.json", b'{"run_id": '),
        ("episodes.jsonl", b'{"key": 3}\n'),
        ("episodes.jsonl", b"\xff\n"),
    ],
)
def test_resume_skips_unreadable_runs_and_names_them(tmp_path, policy, capsys, file, content):
    wanted, damaged = interrupted(policy, tmp_path), new_run(tmp_path / "runs", CONFIG)
    evaluate(damaged)
    if content is None:  # all but a field
        manifest = {**damaged.folder.read_manifest()}
        del manifest["started"]
        content = json.dumps(manifest).encode()
    (damaged.folder.path / file).write_bytes(content)
    capsys.readouterr()
    (again,) = find_unfinished(tmp_path / "runs", {})
    assert again.folder == wanted
    said = capsys.readouterr().err
    assert said.startswith(f"skipped {damaged.folder.path}: ")
    assert said.count("\n") == 1
