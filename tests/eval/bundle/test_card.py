"""The model card says what the files beside it say; results are of the weights that are bundled."""

import json
import math

import pytest

from configs.errors import UsageError
from eval.bundle.bundling import (
    CARD_FILE,
    TEST_STATES,
    bundle,
    read_bundle_manifest,
    read_results,
    render,
    write_results,
)
from oxygen.model import params
from oxygen.model.config import TINY
from tests.eval.bundle.conftest import STEP, write_checkpoint
from tests.eval.collect.collecting import NEVER, collect

FIRST, LAST = TEST_STATES[0], TEST_STATES[-1]
WORDS = ("--wordings", "held_out")


def test_the_card_of_a_policy_without_results(shipped):
    card = (shipped / CARD_FILE).read_text()
    manifest = read_bundle_manifest(shipped)
    for told in (
        manifest.files["model.safetensors"],
        f"{sum(math.prod(shape) for shape in params.shapes(TINY).values()):,} parameters",
        "It acts in simulation (libero_goal, libero_object) and produces text while it acts (narration).",
        "None yet for these weights.",
        f"1 training: {STEP} steps in all.",
        "python -m eval.pipeline tiny",
        "| demos | expert | libero_goal 0-1, 3; libero_object 0-1, 3 | 8 | 4 | 16 |",
        "Apache-2.0",
    ):
        assert told in card
    assert len(card.splitlines()) < 60


def test_a_dataset_for_texts_alone_is_marked(tmp_path):
    assert collect(tmp_path / "said", init_ids=(0, NEVER), policy="tiny", keep_failures=True) == 0
    write_checkpoint(tmp_path / "step_0000007", tmp_path / "said", seed=0)
    bundle(tmp_path / "step_0000007", [], tmp_path / "box")
    card = (tmp_path / "box" / CARD_FILE).read_text()
    (said,) = read_bundle_manifest(tmp_path / "box").data
    assert said.frames > 0
    assert "| said | tiny (failures are kept, for their texts) | " in card
    assert f" | 8 | 4 | {said.frames} |" in card


def test_reserved_states_are_the_test_and_other_runs_are_counted(shipped, evaluate):
    states = f"{FIRST}-{FIRST + 19}"
    runs = [
        evaluate(shipped, *WORDS, init_ids=states),
        evaluate(shipped, *WORDS, init_ids=f"{FIRST},1000"),  # not all reserved
        evaluate(shipped, *WORDS, init_ids=str(LAST + 1)),
        evaluate(shipped, init_ids=str(FIRST)),  # in words that training saw
    ]
    bundle(shipped, runs, shipped)
    results, card = read_results(shipped), (shipped / CARD_FILE).read_text()
    assert card == render(shipped)
    (row,) = [line for line in card.splitlines() if line.startswith("| libero_object")]
    (test,) = [result for result in results if len(result.init_ids) == 20]
    scores = test.texts["narration"]
    options = "--language-tasks narration --task-ids 0 1 --wordings held_out"
    assert row.split(" | ")[2:] == [
        f"`--mode unified --init-ids {states} {options}`",
        "40 of 40: 100.0 % (91.2 – 100.0)",
        "0-1: 100 %",
        f"narration phase {scores['phase']['pc']:.1f}, object {scores['object']['pc']:.1f}",
        "2 / 5 |",
    ]
    assert "also has 3 from other initial states" in card


def test_states_of_demonstrations_are_not_tests_and_silent_policies_have_no_text_scores(shipped, evaluate):
    silent = evaluate(shipped, *WORDS, "--language-tasks", "none", init_ids=str(FIRST))
    bundle(shipped, [silent], shipped)
    assert "2 of 2: 100.0 %" in render(shipped)
    assert "narration phase" not in render(shipped)
    manifest = json.loads((shipped / "manifest.json").read_text())
    manifest["data"][0]["init_ids"]["libero_object"].append(FIRST)
    (shipped / "manifest.json").write_text(json.dumps(manifest))
    assert "None yet for these weights." in render(shipped)


def test_results_are_added_and_those_of_other_weights_dropped(shipped, evaluate, demonstrations, tmp_path):
    first, second = evaluate(shipped), evaluate(shipped, "--mode", "shared")
    bundle(shipped, [first], shipped)
    (result,) = read_results(shipped)
    # Two evaluations that begin in one second, in folders of their own, are called the same.
    namesake = result.model_copy(update={"init_ids": (8, 9)})
    write_results(shipped, [result, namesake, result])
    assert read_results(shipped) == (result, namesake)
    bundle(shipped, [second, first], shipped)
    bundle(shipped, [], shipped)
    assert len(read_results(shipped)) == 3
    other = tmp_path / "step_0000009"
    write_checkpoint(other, demonstrations, seed=1)
    bundle(other, [], shipped)
    assert read_results(shipped) == ()


def test_options_without_effect_in_a_mode_are_not_part_of_a_result(shipped, evaluate, tmp_path):
    """An arm shares all options with the others; alone, it would be refused what only another can heed."""
    several = tmp_path / "several.yaml"
    several.write_text("tokens_per_frame: 2\n")
    shared, unified = (
        evaluate(shipped, "--config", str(several), "--mode", m) for m in ("shared", "unified")
    )
    bundle(shipped, [shared, unified], shipped)
    assert [result.options.get("tokens_per_frame") for result in read_results(shipped)] == [None, 2]


def test_a_run_of_another_preset_with_these_weights_names_it(shipped, evaluate):
    run = evaluate(shipped, *WORDS, init_ids=str(FIRST))
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["config"]["policy"] = "tiny_memory"
    (run / "manifest.json").write_text(json.dumps(manifest))
    bundle(shipped, [run], shipped)
    card = (shipped / CARD_FILE).read_text()
    assert "--policy tiny_memory --task-ids 0 1" in card
    assert "or with the policy that the options name" in card


def test_runs_of_other_weights_and_unfinished_ones_are_refused(shipped, evaluate, checkpoint):
    before = (shipped / CARD_FILE).read_bytes()
    random = evaluate(checkpoint, "--random-weights")
    with pytest.raises(UsageError, match=r"other weights.*\(random weights\)"):
        bundle(checkpoint, [random], shipped)
    unfinished = evaluate(checkpoint)
    manifest = unfinished / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"complete"', '"interrupted"'))
    with pytest.raises(UsageError, match="is interrupted; complete it with --resume"):
        bundle(checkpoint, [unfinished], shipped)
    with pytest.raises(UsageError, match=f"no run in {checkpoint}"):
        bundle(checkpoint, [unfinished.parent, checkpoint], shipped)
    assert (shipped / CARD_FILE).read_bytes() == before
