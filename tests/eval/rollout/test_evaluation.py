"""A whole run on worlds without physics: what it leaves, what ends it early, and how it is resumed."""

import dataclasses
import errno
import json

import pytest

from configs.exits import INPUT_ERROR
from configs.schema import RunConfig
from contracts.episode import Outcome
from contracts.errors import UsageError
from eval import libero
from eval.policies.base import PolicyLostError
from eval.records import provenance
from eval.records.run_folders import find_unfinished, new_run
from eval.records.schema import RunFolder
from eval.rollout import evaluation, manifest, prepare
from eval.rollout.evaluation import exit_code
from eval.rollout.rollout import ActionError
from sim_envs.fake import FakeSuite
from sim_envs.libero.tasks import FIRST_SAMPLED
from tests.commands import call
from tests.eval.conftest import CONFIG, evaluate, play, play_until_ctrl_c
from tests.eval.doubles import FakeAssets, without_physics
from tests.eval.rollout.scaled import suite_file


def test_a_run_leaves_manifest_episodes_queries_and_results(tmp_path, policy, capsys):
    run = new_run(tmp_path, CONFIG)
    assert exit_code(evaluate(run)) == 0
    manifest = run.folder.read_manifest()
    assert manifest["status"] == "complete"
    assert manifest["config"]["suites"] == ["libero_object", "libero_goal"]
    assert manifest["protocol"]["libero_goal"]["suite"]["max_steps"] == 20
    assert manifest["versions"]["mujoco"] == "3.2.3"
    assert manifest["random_weights"] is False
    assert {"commit", "dirty"} <= set(manifest["git"])
    assert len(run.folder.episodes()) == manifest["n_planned"] == 8
    assert len(list((run.folder.path / "queries").iterdir())) == 8
    results = json.loads(run.folder.results_path.read_text())
    assert results["overall"]["pc_success"] == 100.0
    assert results["per_suite"]["libero_goal"]["n_episodes"] == 4
    printed = capsys.readouterr().out
    for part in ("libero_object", "libero_goal", "100.0 %", str(run.folder.path)):
        assert part in printed


def manifests(folder, option, *values):
    """The manifest of a run with each value of an option."""
    return [play(folder / str(value), **{option: value}).read_manifest() for value in values]


def test_wordings_are_part_of_the_protocol(tmp_path, policy):
    """Runs in other words are never compared with published ones, or with each other's."""
    chosen = ["benchmark", "training", "held_out"]
    found = manifests(tmp_path, "wordings", *chosen)
    assert [manifest["config"]["wordings"] for manifest in found] == chosen
    assert len({manifest["protocol_hash"] for manifest in found}) == 3
    assert len({manifest["suite_hashes"]["libero_goal"] for manifest in found}) == 3
    assert "wordings" not in found[0]["protocol"]["libero_goal"]
    assert found[2]["protocol"]["libero_goal"]["wordings"]["name"] == "held_out"


def test_sampled_initial_states_are_part_of_the_protocol(tmp_path, policy):
    """Any number of them may be sampled; what is measured on them never ranks with what is published."""
    init_ids = (1,), (FIRST_SAMPLED,), (FIRST_SAMPLED + 7, FIRST_SAMPLED + 8)
    stored, one, others = (each["protocol_hash"] for each in manifests(tmp_path, "init_ids", *init_ids))
    assert stored != one == others
    with pytest.raises(UsageError, match=f"init id {FIRST_SAMPLED - 1}: .* or {FIRST_SAMPLED} and more"):
        manifests(tmp_path, "init_ids", (FIRST_SAMPLED - 1,))


EIGHT = (
    *("--suite", "libero_object", "--task-ids", "0", "--init-ids", "0-7", "--max-steps", "20"),
    *("--policy", "noop", "--video", "none"),
)
"""Eight episodes."""


def outcomes(run: RunFolder) -> list[Outcome]:
    return [result.outcome for result in run.episodes().values()]


def test_five_errors_in_a_row_stop_a_run_in_one_line_below_the_first_traceback(tmp_path, policy, capsys):
    policy.fails_at = 0
    assert call(libero.app, *EIGHT, "--output-dir", tmp_path) == INPUT_ERROR
    *traceback, line = capsys.readouterr().err.splitlines()
    assert traceback[0] == "Traceback (most recent call last):"
    assert traceback[-1] == "FloatingPointError: the fake policy fails as it was told to"
    assert traceback.count(traceback[0]) == 1
    assert line.startswith("error: stopped: 5 episodes in a row were errors")
    assert "--resume" in line
    assert "--max-errors" in line
    (run,) = map(RunFolder, tmp_path.iterdir())
    assert outcomes(run) == [Outcome.ERROR] * 5
    assert run.read_manifest()["status"] == "interrupted"
    policy.fails_at = None
    assert call(libero.app, *EIGHT, "--output-dir", tmp_path, "--resume", "--max-errors", "2") == 0
    assert outcomes(run) == [Outcome.SUCCESS] * 8
    assert len(policy.episodes) == 5 + 8


def test_five_episodes_that_begin_with_invalid_actions_stop_a_run(tmp_path, policy, capsys):
    policy.fails_at, policy.fails_with = 0, ActionError("actions have shape (1, 10, 8)")
    assert call(libero.app, *EIGHT, "--output-dir", tmp_path) == INPUT_ERROR
    assert "5 episodes in a row were errors or began with invalid" in capsys.readouterr().err
    (run,) = map(RunFolder, tmp_path.iterdir())
    assert outcomes(run) == [Outcome.INVALID_ACTION] * 5
    policy.fails_at = 1  # they acted first
    assert call(libero.app, *EIGHT, "--output-dir", tmp_path / "later") == 0


def test_a_lost_policy_interrupts_the_run_which_resumes(tmp_path, policy, capsys):
    policy.fails_at, policy.fails_with = 0, PolicyLostError("no answer from ws://robot:8000 for 60 s")
    assert call(libero.app, *EIGHT, "--output-dir", tmp_path) == INPUT_ERROR
    captured = capsys.readouterr()
    assert captured.err == "error: no answer from ws://robot:8000 for 60 s\n"
    assert "Interrupted: 0 of 8 episodes" in " ".join(captured.out.split())
    (run,) = map(RunFolder, tmp_path.iterdir())
    assert run.read_manifest()["status"] == "interrupted"
    assert run.episodes() == {}
    policy.fails_at = None
    assert call(libero.app, *EIGHT, "--output-dir", tmp_path, "--resume") == 0
    assert outcomes(run) == [Outcome.SUCCESS] * 8


def test_resume_completes_a_run_after_ctrl_c(tmp_path, policy, capsys):
    policy.interrupted_at = 5
    folder = play_until_ctrl_c(tmp_path)
    assert policy.answers == policy.queries == 6, "the signal is heeded after the query, not within"
    assert folder.read_manifest()["status"] == "interrupted"
    assert len(folder.episodes()) == len(list((folder.path / "queries").iterdir())) == 2
    assert "Interrupted: 2 of 8 episodes" in " ".join(capsys.readouterr().out.split())

    (again,) = find_unfinished(tmp_path, {"policy": "tiny"})
    assert again.folder == folder
    done = len(policy.episodes)
    assert exit_code(evaluate(again)) == 0
    assert len(policy.episodes) - done == 6
    assert list(folder.episodes()) == list(play(tmp_path).episodes())
    with pytest.raises(UsageError, match="is complete"):
        find_unfinished(tmp_path, {"policy": "tiny"})


def test_resume_plays_an_episode_of_a_complete_run_whose_line_was_cut_off(tmp_path, policy):
    folder = play(tmp_path)
    whole = list(folder.episodes())
    folder.episodes_path.write_bytes(folder.episodes_path.read_bytes()[:-9])
    assert list(folder.episodes()) == whole[:-1]
    assert exit_code(evaluate(*find_unfinished(tmp_path, {}))) == 0
    assert list(folder.episodes()) == whole


def test_what_a_killed_attempt_was_writing_is_removed(tmp_path, policy):
    policy.interrupted_at = 3
    folder = play_until_ctrl_c(tmp_path)
    for name in ("manifest.3.partial", "queries/libero_goal.0.0.7.3.partial"):
        (folder.path / name).touch()
    policy.interrupted_at = None
    evaluate(*find_unfinished(tmp_path, {}))
    assert not [*folder.path.rglob("*.partial")]


@pytest.mark.parametrize("name", ["task00_ep000_error.mp4", "task00_ep000_seed7_error.mp4"])
def test_a_retry_removes_the_video_of_the_error(name, tmp_path, policy, monkeypatch):
    policy.fails_at = 0
    folder = play(tmp_path, how={"max_errors": 9})
    (key, first), *_ = folder.episodes().items()
    video = folder.path / "videos" / key.suite / name  # former names lack the seed
    video.parent.mkdir(parents=True)
    video.touch()
    folder.append(dataclasses.replace(first, video=str(video.relative_to(folder.path))))
    policy.fails_at, append = None, RunFolder.append

    def appended(folder, result):
        assert result.key != key or not video.exists(), "a kill would leave it to nobody"
        append(folder, result)

    monkeypatch.setattr(RunFolder, "append", appended)
    evaluate(*find_unfinished(tmp_path, {}))
    assert folder.episodes()[key].outcome is Outcome.SUCCESS
    assert not video.exists()


def test_resume_retries_errors(tmp_path, policy, capsys):
    policy.fails_at = 0
    run = new_run(tmp_path, CONFIG)
    assert exit_code(evaluate(run, max_errors=9)) == evaluation.NOTHING_GRADED
    assert json.loads(run.folder.results_path.read_text())["overall"]["n_errors"] == 8
    assert run.folder.read_manifest()["status"] == "complete"
    assert "with --resume retries" in " ".join(capsys.readouterr().out.split())
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
    return play_until_ctrl_c(tmp_path / "runs", config)


def refused(tmp_path) -> str:
    with pytest.raises(UsageError, match="put it back, or start a new run without --resume") as caught:
        evaluate(*find_unfinished(tmp_path / "runs", {}))
    return str(caught.value)


def test_resume_refuses_other_options_of_the_policy(tmp_path, policy, monkeypatch):
    interrupted(policy, tmp_path)
    resolved = prepare.resolve_policy(CONFIG)
    other = resolved.policy.model_copy(update={"weights_seed": 5})
    monkeypatch.setattr(prepare, "resolve_policy", lambda _: dataclasses.replace(resolved, policy=other))
    assert "begun with policy_options.weights_seed None, this has 5" in refused(tmp_path)


def test_resume_refuses_other_assets_and_other_weights(tmp_path, policy, monkeypatch):
    monkeypatch.setattr(manifest, "weights_sha256", lambda cast: "a" * 64)
    left = interrupted(policy, tmp_path).read_manifest()
    with monkeypatch.context() as other:
        without_physics(other, find_assets=lambda source: FakeAssets(digest="1" * 12))
        assert "libero_object.assets '000000000000', this has '111111111111'" in refused(tmp_path)
    monkeypatch.setattr(manifest, "weights_sha256", lambda cast: "b" * 64)
    assert f"weights_sha256 '{'a' * 64}', this has '{'b' * 64}'" in refused(tmp_path)
    (again,) = find_unfinished(tmp_path / "runs", {})
    assert again.folder.read_manifest() == left


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"max_steps": 9}, "protocol.fake.suite.max_steps 20, this has 9;"),
        ({"environment": {"instructions": ["a", "d"]}}, "environment.instructions.1 'b', this has 'd'"),
        ({"trials_per_task": 1}, "begun with 4 episodes, this has 2: `trials_per_task`"),
    ],
)
def test_resume_names_what_has_changed_in_the_file_of_a_suite(tmp_path, policy, changes, named):
    fake = {"environment": {"instructions": ["a", "b"]}, "camera_size": 256}
    file = suite_file(tmp_path, "fake", FakeSuite, **fake)
    interrupted(policy, tmp_path, RunConfig(suites=(file,), video="none"))
    suite_file(tmp_path, "fake", FakeSuite, **{**fake, **changes})
    assert named in refused(tmp_path)


def test_resume_refuses_two_suites_that_have_swapped_their_trials(tmp_path, policy):
    def written(name: str, trials: int) -> str:
        (tmp_path / name).mkdir(exist_ok=True)
        changes = {"name": name, "trials_per_task": trials, "camera_size": 256, "max_steps": 5}
        return suite_file(tmp_path / name, "fake", FakeSuite, **changes)

    suites = (written("one", 2), written("two", 1))
    interrupted(policy, tmp_path, RunConfig(suites=suites, video="none"), after=2)
    assert (written("one", 1), written("two", 2)) == suites
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
    commands = iter(("oxygen-eval run", "oxygen-eval run --resume"))
    monkeypatch.setattr(provenance, "command", lambda: next(commands))
    folder = interrupted(policy, tmp_path)
    (first,) = folder.read_manifest()["attempts"]
    evaluate(*find_unfinished(tmp_path / "runs", {}))
    left = folder.read_manifest()
    before, after = left["attempts"]
    assert before == first
    assert (before["git"]["commit"], after["git"]["commit"]) == ("first", "second")
    assert (left["command"], after["command"]) == ("oxygen-eval run", "oxygen-eval run --resume")
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
    wanted, damaged = interrupted(policy, tmp_path), play(tmp_path / "runs")
    if content is None:  # all but a field
        manifest = {**damaged.read_manifest()}
        del manifest["started"]
        content = json.dumps(manifest).encode()
    (damaged.path / file).write_bytes(content)
    capsys.readouterr()
    (again,) = find_unfinished(tmp_path / "runs", {})
    assert again.folder == wanted
    said = capsys.readouterr().err
    assert said.startswith(f"skipped {damaged.path}: ")
    assert said.count("\n") == 1
