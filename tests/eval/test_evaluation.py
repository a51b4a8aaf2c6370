"""A whole run on worlds without physics: the files it leaves, interruptions, resuming, the table."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from configs.errors import UsageError
from configs.schema import RunConfig
from eval import evaluation, provenance
from eval.evaluation import exit_code, run_evaluation
from eval.recorded import read_identity
from eval.records import RunFolder
from eval.runs import claimed, find_unfinished, new_run
from sim_envs.fake import FakeWorld
from sim_envs.libero.assets import STANDINS, AssetSet
from sim_envs.libero.tasks import FIRST_DRAWN
from tests.eval.doubles import FakePolicy

CONFIG = RunConfig(
    suites=("libero_object", "libero_goal"),
    task_ids=(0, 1),
    num_trials_per_task=2,
    max_steps=20,
    video="none",
)


class FakeAssets(AssetSet):
    @property
    def digest(self) -> str:
        return "0" * 12


class OtherAssets(AssetSet):
    @property
    def digest(self) -> str:
        return "1" * 12


@pytest.fixture
def policy(monkeypatch) -> FakePolicy:
    """The policy of every run in the test; worlds are solved after seven steps."""
    fake = FakePolicy()
    monkeypatch.setattr(evaluation, "open_policies", lambda cast, arms: [fake for _ in arms])
    monkeypatch.setattr(evaluation, "find_assets", lambda source: FakeAssets(name="none", path=Path()))
    monkeypatch.setattr("eval.worlds.LiberoSim", lambda task, **_: FakeWorld(success_at=7))
    return fake


def test_a_run_leaves_manifest_episodes_queries_and_results(tmp_path, policy, capsys):
    run = new_run(tmp_path, CONFIG)
    assert exit_code(run_evaluation(run)) == 0
    manifest = run.folder.read_manifest()
    assert manifest["status"] == "complete"
    assert manifest["config"]["suites"] == ["libero_object", "libero_goal"]
    assert set(manifest["suite_hashes"]) == {"libero_object", "libero_goal"}
    assert manifest["protocol"]["libero_goal"]["suite"]["max_steps"] == 20
    assert manifest["versions"]["mujoco"] == "3.2.3"
    assert manifest["random_weights"] is False
    assert {"commit", "dirty"} <= set(manifest["git"])
    assert len(run.folder.episodes()) == manifest["n_planned"] == 8
    assert len(list((run.folder.path / "queries").iterdir())) == 8
    results = json.loads(run.folder.results_path.read_text())
    assert results["overall"]["pc_success"] == 100.0
    assert results["per_suite"]["libero_goal"]["n_episodes"] == 4
    assert [(task["task_group"], task["task_id"]) for task in results["per_task"]] == [
        ("libero_goal", 0),
        ("libero_goal", 1),
        ("libero_object", 0),
        ("libero_object", 1),
    ]
    printed = capsys.readouterr().out
    for part in ("libero_object", "libero_goal", "100.0 %", str(run.folder.path)):
        assert part in printed


def test_other_words_are_another_protocol(tmp_path, policy):
    """Runs in other words are never compared with published ones, or with each other's."""
    manifests = []
    for chosen in ("benchmark", "training", "held_out"):
        run = new_run(tmp_path, CONFIG.model_copy(update={"wordings": chosen}))
        run_evaluation(run)
        manifests.append(run.folder.read_manifest())
    assert [manifest["config"]["wordings"] for manifest in manifests] == ["benchmark", "training", "held_out"]
    assert len({manifest["protocol_hash"] for manifest in manifests}) == 3
    assert len({manifest["suite_hashes"]["libero_goal"] for manifest in manifests}) == 3
    assert "wordings" not in manifests[0]["protocol"]["libero_goal"]
    assert manifests[2]["protocol"]["libero_goal"]["wordings"]["name"] == "held_out"


def test_every_mode_is_told_the_same(tmp_path, policy):
    said = []
    for mode in ("isolated", "unified"):
        run = new_run(tmp_path, CONFIG.model_copy(update={"wordings": "held_out", "mode": mode}))
        run_evaluation(run)
        said.append({key: result.language for key, result in run.folder.episodes().items()})
    assert said[0] == said[1]
    assert len(said[0]) == 8


def test_ctrl_c_leaves_a_run_that_resume_completes(tmp_path, policy, capsys):
    policy.interrupted_at = 5
    run = new_run(tmp_path, CONFIG)
    with pytest.raises(KeyboardInterrupt):
        run_evaluation(run)
    assert policy.answers == policy.queries == 6, "the signal is heeded after the query, not within"
    assert run.folder.read_manifest()["status"] == "interrupted"
    assert len(run.folder.episodes()) == len(list((run.folder.path / "queries").iterdir())) == 2
    assert "Interrupted: 2 of 8 episodes" in " ".join(capsys.readouterr().out.split())

    (again,) = find_unfinished(tmp_path, {"policy": "tiny"})
    assert again.folder == run.folder
    done = len(policy.episodes)
    assert exit_code(run_evaluation(again)) == 0
    assert len(policy.episodes) - done == 6
    uninterrupted = new_run(tmp_path, CONFIG)
    run_evaluation(uninterrupted)
    assert list(again.folder.episodes()) == list(uninterrupted.folder.episodes())
    with pytest.raises(UsageError, match="is complete"):
        find_unfinished(tmp_path, {"policy": "tiny"})


def test_resume_retries_errors(tmp_path, policy, capsys):
    policy.fails_at = 0
    run = new_run(tmp_path, CONFIG)
    assert exit_code(run_evaluation(run)) == evaluation.NOTHING_GRADED
    assert json.loads(run.folder.results_path.read_text())["overall"]["n_errors"] == 8
    assert run.folder.read_manifest()["status"] == "complete"
    assert "with --resume plays" in capsys.readouterr().out
    policy.fails_at = None
    assert exit_code(run_evaluation(*find_unfinished(tmp_path, {}))) == 0
    overall = json.loads(run.folder.results_path.read_text())["overall"]
    assert (overall["n_errors"], overall["n_success"]) == (0, 8)
    assert "with --resume plays" not in capsys.readouterr().out
    with pytest.raises(UsageError, match="is complete and without errors"):
        find_unfinished(tmp_path, {})


def test_what_an_error_says_is_printed_as_it_is_and_the_run_goes_on(tmp_path, policy, capsys):
    """Square brackets are markup to the terminal's library; a closing one without an opening one kills."""
    policy.fails_at, policy.complaint = 0, "template lacks [/INST], has [bold] and :smile:"
    run = new_run(tmp_path / "[red]", CONFIG.model_copy(update={"task_ids": (0,)}))
    assert exit_code(run_evaluation(run)) == evaluation.NOTHING_GRADED
    assert run.folder.read_manifest()["status"] == "complete"
    assert len(run.folder.episodes()) == 4
    printed = "".join(capsys.readouterr().out.split())
    assert printed.count("".join(policy.complaint.split())) == 4
    assert printed.count("".join(str(run.folder.path).split())) == 2


def test_drawn_initial_states_are_another_protocol(tmp_path, policy):
    """Any number of them may be drawn; what is measured on them never ranks with what is published."""
    manifests = []
    for init_ids in ((1,), (FIRST_DRAWN,), (FIRST_DRAWN + 7, FIRST_DRAWN + 8)):
        run = new_run(tmp_path, CONFIG.model_copy(update={"init_ids": init_ids}))
        run_evaluation(run)
        manifests.append(run.folder.read_manifest())
    stored, one, others = (manifest["protocol_hash"] for manifest in manifests)
    assert stored != one == others
    with pytest.raises(UsageError, match=f"init id {FIRST_DRAWN - 1}: .* or {FIRST_DRAWN} and more"):
        run_evaluation(new_run(tmp_path, CONFIG.model_copy(update={"init_ids": (FIRST_DRAWN - 1,)})))


def test_resume_refuses_a_run_under_another_protocol(tmp_path, policy, monkeypatch):
    policy.interrupted_at = 3
    with pytest.raises(KeyboardInterrupt):
        run_evaluation(new_run(tmp_path, CONFIG))
    monkeypatch.setattr(evaluation, "find_assets", lambda source: OtherAssets(name="none", path=Path()))
    with pytest.raises(UsageError, match="start a new run without --resume"):
        run_evaluation(*find_unfinished(tmp_path, {}))


def test_resume_refuses_other_weights_than_the_run_began_with(tmp_path, policy, monkeypatch):
    monkeypatch.setattr(evaluation, "weights_sha256", lambda cast: "a" * 64)
    policy.interrupted_at = 3
    run = new_run(tmp_path, CONFIG)
    with pytest.raises(KeyboardInterrupt):
        run_evaluation(run)
    left = run.folder.read_manifest()
    monkeypatch.setattr(evaluation, "weights_sha256", lambda cast: "b" * 64)
    with pytest.raises(UsageError, match=r"weights a{12}, tiny now has b{12}; .* without --resume"):
        run_evaluation(*find_unfinished(tmp_path, {}))
    assert run.folder.read_manifest() == left
    assert exit_code(run_evaluation(new_run(tmp_path, CONFIG))) == 0


def test_a_run_keeps_what_every_sitting_was_played_on(tmp_path, policy, monkeypatch):
    policy.interrupted_at = 3
    run = new_run(tmp_path, CONFIG)
    commits = iter(("first", "second"))
    monkeypatch.setattr(provenance, "git_state", lambda: {"commit": next(commits), "dirty": False})
    with pytest.raises(KeyboardInterrupt):
        run_evaluation(run)
    (first,) = run.folder.read_manifest()["sittings"]
    run_evaluation(*find_unfinished(tmp_path, {}))
    manifest = run.folder.read_manifest()
    before, after = manifest["sittings"]
    assert before == first
    assert (before["git"]["commit"], after["git"]["commit"]) == ("first", "second")
    assert after["versions"] == manifest["versions"]
    assert after["hardware"] == manifest["hardware"]
    assert manifest["started"] == before["started"] <= before["finished"] <= after["started"]
    assert manifest["finished"] == after["finished"]


def test_resume_refuses_a_run_whose_policy_was_shown_something_else(tmp_path, policy):
    policy.interrupted_at = 3
    with pytest.raises(KeyboardInterrupt):
        run_evaluation(new_run(tmp_path, CONFIG))
    policy.inputs = {"prompt": "another"}
    with pytest.raises(UsageError, match=r"another.*; start a new run without --resume"):
        run_evaluation(*find_unfinished(tmp_path, {}))


def test_the_same_assets_under_another_name_are_the_same_protocol(tmp_path, policy, monkeypatch):
    hashes = []
    for name in ("none", "renamed"):
        monkeypatch.setattr(
            evaluation, "find_assets", lambda source, name=name: FakeAssets(name=name, path=Path())
        )
        run = new_run(tmp_path, CONFIG)
        run_evaluation(run)
        assert run.folder.read_manifest()["assets"]["name"] == name
        hashes.append(run.folder.read_manifest()["protocol_hash"])
    assert hashes[0] == hashes[1]


def test_what_a_policy_is_shown_is_beside_the_protocol_and_not_in_it(tmp_path, policy):
    manifests = []
    for policy.inputs in ({"prompt": "{language}"}, {"privileged_state": True}):
        run = new_run(tmp_path, CONFIG)
        run_evaluation(run)
        manifests.append(run.folder.read_manifest())
    assert manifests[0]["protocol_hash"] == manifests[1]["protocol_hash"]
    assert [manifest["policy_inputs"] for manifest in manifests] == [
        {"prompt": "{language}"},
        {"privileged_state": True},
    ]


def test_a_run_from_before_the_inputs_were_set_apart_is_resumed_and_compared(tmp_path, policy):
    """Its manifest has the policy's inputs within the protocol, and other hashes."""
    policy.inputs, policy.interrupted_at = {"prompt": "{language}"}, 3
    with pytest.raises(KeyboardInterrupt):
        run_evaluation(new_run(tmp_path, CONFIG))
    (older,) = find_unfinished(tmp_path, {})
    manifest = older.folder.read_manifest()
    for description in manifest["protocol"].values():
        description["policy_inputs"] = manifest["policy_inputs"]
    del manifest["policy_inputs"]
    older.folder.write_manifest({**manifest, "protocol_hash": "0lder", "suite_hashes": {}})
    before = read_identity(older.folder)
    run_evaluation(*find_unfinished(tmp_path, {}))
    newer = new_run(tmp_path, CONFIG)
    run_evaluation(newer)
    assert before.policy_inputs == policy.inputs
    assert before.protocol_hash == read_identity(newer.folder).protocol_hash
    assert before.suite_hashes == read_identity(newer.folder).suite_hashes


def test_resume_finds_only_what_agrees_with_the_options_given(tmp_path, policy):
    policy.interrupted_at = 3
    with pytest.raises(KeyboardInterrupt):
        run_evaluation(new_run(tmp_path, CONFIG))
    assert find_unfinished(tmp_path, {"suites": ("libero_object", "libero_goal")})[0].resumed
    with pytest.raises(UsageError, match="nothing to resume"):
        find_unfinished(tmp_path, {"seed": 8})


def test_what_cannot_be_run_leaves_no_folder(tmp_path, policy):
    for wrong in ({"task_ids": (10,)}, {"init_ids": (50,)}, {"num_trials_per_task": 51}):
        with pytest.raises(UsageError):
            run_evaluation(new_run(tmp_path, CONFIG.model_copy(update=wrong)))
    assert list(tmp_path.iterdir()) == []


def test_more_steps_than_a_query_is_answered_with_are_refused(tmp_path, policy):
    for name in ("tiny", "noop"):
        config = CONFIG.model_copy(update={"policy": name, "replan_steps": 11})
        with pytest.raises(UsageError, match=f"'{name}' answers .* 10 actions; give --replan-steps 10"):
            run_evaluation(new_run(tmp_path, config))
    assert list(tmp_path.iterdir()) == []


def test_a_task_whose_objects_the_assets_lack_is_refused(tmp_path, policy, monkeypatch):
    monkeypatch.setattr(evaluation, "find_assets", lambda source: FakeAssets(name=STANDINS, path=Path()))
    config = CONFIG.model_copy(update={"suites": ("libero_90",), "task_ids": (0, 88)})
    with pytest.raises(UsageError, match=r"libero_90 task \d+ needs .*--assets"):
        run_evaluation(new_run(tmp_path, config))
    assert list(tmp_path.iterdir()) == []


def test_runs_begun_in_the_same_second_have_folders_of_their_own(tmp_path, policy):
    for _ in range(3):
        run_evaluation(new_run(tmp_path, CONFIG.model_copy(update={"task_ids": (0,)})))
    assert len([path for path in tmp_path.iterdir() if RunFolder(path).manifest_path.exists()]) == 3


def test_one_name_taken_by_many_at_once_becomes_as_many_folders(tmp_path):
    wanted, together = new_run(tmp_path, CONFIG), threading.Barrier(8)

    def claim(_):
        together.wait()
        with claimed(wanted) as run:
            return run.folder.path

    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(claim, range(8)))
    assert len(set(folders)) == 8
    assert set(folders) == set(tmp_path.iterdir())


def test_a_policy_whose_name_looks_like_a_pattern_has_folders_too(tmp_path):
    wanted = new_run(tmp_path, CONFIG.model_copy(update={"policy": "mine/tiny[2].yaml"}))
    with claimed(wanted) as first, claimed(wanted) as second:
        assert first.folder.path.is_dir()
        assert second.folder.path.is_dir()
        assert first.folder != second.folder
