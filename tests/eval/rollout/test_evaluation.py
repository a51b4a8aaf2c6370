"""A whole run on worlds without physics: the files it leaves, its protocol, what ends it early."""

import json

import pytest

from configs.errors import UsageError
from configs.exits import INPUT_ERROR
from eval import libero
from eval.policies.base import PolicyLostError
from eval.records.run_folders import new_run
from eval.records.schema import Outcome, RunFolder
from eval.rollout.evaluation import exit_code
from sim_envs.libero.tasks import FIRST_SAMPLED
from tests.eval.conftest import CONFIG, call, evaluate


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
    runs = [new_run(folder / str(value), CONFIG.model_copy(update={option: value})) for value in values]
    for run in runs:
        evaluate(run)
    return [run.folder.read_manifest() for run in runs]


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
