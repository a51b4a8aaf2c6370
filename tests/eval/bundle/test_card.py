"""The model card says what the files beside it say."""

import dataclasses
import json

from eval.bundle.bundling import bundle
from eval.bundle.card import CARD_FILE, render
from eval.bundle.manifest import read_bundle_manifest
from eval.bundle.results import TEST_STATES, merged, read_results
from oxygen.presets.checkpoints import read_record
from tests.eval.bundle.conftest import STEP, write_checkpoint
from tests.eval.collect.collecting import NEVER, collect

FIRST, LAST = TEST_STATES[0], TEST_STATES[-1]
WORDS = ("--wordings", "held_out")


def test_the_card_of_a_policy_without_results(shipped):
    card = (shipped / CARD_FILE).read_text()
    manifest = read_bundle_manifest(shipped)
    for told in (
        manifest.weights_sha256,
        f"{manifest.parameters:,} parameters",
        "It acts in simulation (libero_goal, libero_object) and produces text while it acts (narration).",
        "None yet for these weights.",
        f"1 training: {STEP} steps in all.",
        "python -m eval.pipeline tiny",
        "in 2-3 wordings",
        "| expert | demos | 8 | 4 | 16 |",
        "- libero_goal: 0-1, 3\n",
        "learned from a scripted expert alone",
        "Apache-2.0",
    ):
        assert told in card
    assert len(card.splitlines()) < 60
    (shipped / "training.json").write_text(json.dumps({**read_record(shipped), "wordings": {}}))
    assert "wordings." not in render(shipped).partition("## Training")[2]


def test_a_policy_trained_on_another_is_not_trained_on_the_expert_alone(tmp_path):
    assert collect(tmp_path / "said", init_ids=(0, NEVER), policy="tiny", keep_failures=True) == 0
    write_checkpoint(tmp_path / "step_0000007", tmp_path / "said", seed=0)
    bundle(tmp_path / "step_0000007", [], tmp_path / "box", data=[])
    card = (tmp_path / "box" / CARD_FILE).read_text()
    (said,) = read_bundle_manifest(tmp_path / "box").data
    assert said.frames > 0
    assert f"| tiny, for texts alone (failures are kept) | said | 8 | 4 | {said.frames} |" in card
    assert "scripted expert alone" not in card


def test_reserved_states_are_the_test_and_other_runs_are_counted(shipped, evaluate):
    states = f"{FIRST}-{FIRST + 19}"
    runs = [
        evaluate(shipped, *WORDS, init_ids=states),
        evaluate(shipped, *WORDS, init_ids=f"{FIRST},1000"),  # not all reserved
        evaluate(shipped, *WORDS, init_ids=str(LAST + 1)),
        evaluate(shipped, init_ids=str(FIRST)),  # in words that training saw
    ]
    results = bundle(None, runs, shipped, data=[]).results
    card = (shipped / CARD_FILE).read_text()
    assert card == render(shipped)
    assert read_results(shipped) == results
    (row,) = [line for line in card.splitlines() if line.startswith("| libero_object")]
    (test,) = [result for result in results if result.is_test]
    scores = test.texts["narration"].at_request
    assert row.split(" | ")[3:] == [
        "`--language-tasks narration --task-ids 0 1`",
        "40 of 40: 100.0 % (91.2 – 100.0)",
        "0-1: 20 of 20",
        f"phase {scores['phase']['pc']:.1f}, object {scores['object']['pc']:.1f}",
        "2 / 5 |",
    ]
    assert "and 3 runs from other initial states" in card
    command = f"--suite libero_object --assets FOLDER --mode unified --init-ids {states} --wordings held_out"
    assert f"python -m eval.run --policy tiny {command} --language-tasks narration --task-ids 0 1" in card


def test_states_of_demonstrations_are_not_tests(shipped, evaluate):
    bundle(None, [evaluate(shipped, *WORDS, init_ids=str(FIRST))], shipped, data=[])
    assert "1 of 1" in render(shipped)
    manifest = json.loads((shipped / "manifest.json").read_text())
    manifest["data"][0]["suites"]["libero_object"]["init_ids"].append(FIRST)
    (shipped / "manifest.json").write_text(json.dumps(manifest))
    assert "None yet for these weights." in render(shipped)


def test_suites_with_equal_options_share_a_command(shipped, evaluate):
    summary = bundle(None, [evaluate(shipped, *WORDS, init_ids=str(FIRST))], shipped, data=[])
    (result,) = summary.results
    other = {**dataclasses.asdict(result), "suite": "libero_goal"}
    (shipped / "results.json").write_text(json.dumps({"results": [other, dataclasses.asdict(result)]}))
    assert "--suite libero_goal libero_object --assets" in render(shipped)


def test_a_policy_without_texts_has_no_text_scores(shipped, evaluate):
    run = evaluate(shipped, *WORDS, "--language-tasks", "none", init_ids=str(FIRST))
    bundle(None, [run], shipped, data=[])
    assert "| narration |" not in (shipped / CARD_FILE).read_text()


def test_runs_of_one_name_on_other_episodes_are_separate_results(shipped, evaluate):
    """Two evaluations that begin in one second, in folders of their own, are called the same."""
    (result,) = bundle(None, [evaluate(shipped)], shipped, data=[]).results
    namesake = dataclasses.replace(result, init_ids=(8, 9))
    assert merged([result], [namesake], [result]) == (result, namesake)
