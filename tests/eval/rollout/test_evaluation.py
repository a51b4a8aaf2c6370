"""A whole run on worlds without physics: the files it leaves, its protocol, the table."""

import json

import pytest

from configs.errors import UsageError
from eval.records.run_folders import new_run
from eval.rollout.evaluation import exit_code
from sim_envs.libero.tasks import FIRST_SAMPLED
from tests.eval.conftest import CONFIG, evaluate


def test_a_run_leaves_manifest_episodes_queries_and_results(tmp_path, policy, capsys):
    run = new_run(tmp_path, CONFIG)
    assert exit_code(evaluate(run)) == 0
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


def test_wordings_are_part_of_the_protocol(tmp_path, policy):
    """Runs in other words are never compared with published ones, or with each other's."""
    manifests = []
    for chosen in ("benchmark", "training", "held_out"):
        run = new_run(tmp_path, CONFIG.model_copy(update={"wordings": chosen}))
        evaluate(run)
        manifests.append(run.folder.read_manifest())
    assert [manifest["config"]["wordings"] for manifest in manifests] == ["benchmark", "training", "held_out"]
    assert len({manifest["protocol_hash"] for manifest in manifests}) == 3
    assert len({manifest["suite_hashes"]["libero_goal"] for manifest in manifests}) == 3
    assert "wordings" not in manifests[0]["protocol"]["libero_goal"]
    assert manifests[2]["protocol"]["libero_goal"]["wordings"]["name"] == "held_out"


def test_sampled_initial_states_are_part_of_the_protocol(tmp_path, policy):
    """Any number of them may be sampled; what is measured on them never ranks with what is published."""
    manifests = []
    for init_ids in ((1,), (FIRST_SAMPLED,), (FIRST_SAMPLED + 7, FIRST_SAMPLED + 8)):
        run = new_run(tmp_path, CONFIG.model_copy(update={"init_ids": init_ids}))
        evaluate(run)
        manifests.append(run.folder.read_manifest())
    stored, one, others = (manifest["protocol_hash"] for manifest in manifests)
    assert stored != one == others
    with pytest.raises(UsageError, match=f"init id {FIRST_SAMPLED - 1}: .* or {FIRST_SAMPLED} and more"):
        evaluate(new_run(tmp_path, CONFIG.model_copy(update={"init_ids": (FIRST_SAMPLED - 1,)})))
