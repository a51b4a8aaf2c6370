"""The model card says what the files say: of the weights, the data, the recipe and the results."""

import dataclasses
import json

from eval.bundle.bundling import bundle
from eval.bundle.card import CARD_FILE, ranges, render
from eval.bundle.contents import read_contents
from eval.bundle.data import read_demonstrated
from eval.bundle.results import merged, read_results
from eval.bundle.splits import TEST_STATES
from eval.policies.checkpoints import read_record
from oxygen.training.recipe import Recipe
from oxygen.weights.source import bundled
from tests.eval.bundle.conftest import STEP, write_checkpoint
from tests.eval.collect.collecting import NEVER, collect


def test_the_card_tells_the_hash_the_parameters_the_data_and_the_recipe(shipped):
    card = (shipped / CARD_FILE).read_text()
    contents = read_contents(shipped)
    (data,) = contents.data
    assert (data.demonstrations, data.failures, data.policy) == (8, 4, "expert")
    assert data.suites["libero_goal"].tasks == (0, 1)
    assert data.suites["libero_goal"].init_ids == (0, 1, NEVER)
    for told in (
        contents.weights_sha256,
        f"{contents.parameters:,} parameters",
        "12,345 frames",
        f"{STEP} steps",
        "| trunk.width | 128 |",
        f"| recipe.peak_rate | {Recipe(steps=STEP).peak_rate} |",
        "| recipe.seed | 0 |",
        "| recipe.text_rows | none |",
        "| recipe.reach.texts | yes |",
        "libero_goal: 0–1; 0–1, 3",
        "narration (`Narrate: `)",
        "reserved: no demonstration",
        "None has been recorded for these weights yet.",
        "| success | libero_spatial, stand-ins | ≥ 80 % | – | – | – | – | not measured |",
        "| narration: target | libero_object, real assets | ≥ 95 % | – | – | – | – | not measured |",
        "Its actions are learnt from a scripted demonstrator alone",
        "| a query, median | 2 cores, any suite | ≤ 60 ms | – | – | – | – | not measured |",
    ):
        assert told in card
    assert "Apache-2.0" in card


def test_the_card_tells_who_played_and_whether_failures_were_kept(tmp_path):
    assert collect(tmp_path / "said", init_ids=(0, NEVER), policy="tiny", keep_failures=True) == 0
    data = read_demonstrated(tmp_path / "said")
    assert (data.policy, data.demonstrations, data.failures, data.keeps_failures) == ("tiny", 8, 4, True)
    write_checkpoint(tmp_path / "step_0000007", tmp_path / "said", seed=0)
    bundle(tmp_path / "step_0000007", [], tmp_path / "box", data=[])
    card = (tmp_path / "box" / CARD_FILE).read_text()
    digest = read_contents(bundled("tiny")).weights_sha256
    assert f"| said | 1 | tiny ({digest[:8]}) | 0.0 | 8 | 4, kept for their texts |" in card
    assert "learnt from a scripted demonstrator alone" not in card


def test_the_card_tells_in_how_many_words_instructions_were_given(shipped):
    card = (shipped / CARD_FILE).read_text()
    assert "2 instructions in 2 to 3 wordings each" in card
    assert "shut it" not in card
    (shipped / "training.json").write_text(json.dumps({**read_record(shipped), "wordings": {}}))
    assert "Instructions were given as the benchmark has them." in render(shipped)


def test_results_are_of_the_runs_with_intervals_and_what_training_has_seen(shipped, evaluate, checkpoint):
    solved = evaluate(checkpoint, "--mode", "isolated")
    late = evaluate(shipped, "--max-steps", "10", "--replan-steps", "2")
    bundle(None, [late], shipped, data=[])
    assert "Weakest on libero_object (no-physics): `pick_up_the_alphabet_soup" in render(shipped)
    assert render(shipped).count("(0 of 2)") == 2
    made = bundle(None, [solved, late], shipped, data=[])
    card = (shipped / CARD_FILE).read_text()
    assert card == render(shipped)
    assert read_results(shipped) == made.results
    assert [(r.mode, r.n_success, r.n_episodes) for r in made.results] == [
        ("isolated", 4, 4),
        ("unified", 0, 4),
    ]
    assert "| isolated | 4 | 100.0 % | 51.0 – 100.0 | 0 | 1–2 | 1 | 2.0 / 2.0 | 5.0 / 5.0 |" in card
    assert "| unified | 0 | 0.0 % |" not in card
    assert "| unified | 4 | 0.0 % | 0.0 – 49.0 | 0 | 1–2 | 1 |" in card
    assert "--init-ids 1-2 --language-tasks narration --max-steps 10 --replan-steps 2 --task-ids 0 1" in card
    weakest = [line for line in card.splitlines() if "Weakest" in line]
    assert weakest == []  # of the episodes that both runs played, the first counts
    assert "libero_goal on a, libero_object on a" in card
    born = json.loads((solved / "results.json").read_text())["per_suite"]["libero_object"]["texts"]
    assert f"phase {born['narration']['born']['phase']['pc']:.1f}" in card


def test_reserved_states_are_the_test_set_and_all_others_are_development(shipped, evaluate):
    words = ("--wordings", "held_out")
    first, last = str(TEST_STATES[0]), str(TEST_STATES[-1] + 1)
    for states, options in {
        f"{first}-{TEST_STATES[19]}": words,  # the test set
        f"{first},1000": words,  # a mixture
        last: words,  # beyond it
        TEST_STATES[1]: (),  # in words that training saw
    }.items():
        bundle(None, [evaluate(shipped, *options, init_ids=str(states))], shipped, data=[])
    card = (shipped / CARD_FILE).read_text()
    assert card.index("## Test") < card.index("## Targets") < card.index("## Development")
    test, development = card.partition("## Targets")[::2]
    assert "| libero_object | no-physics (00000000) | unified | 40 | 100.0 % |" in test
    assert test.count("| 500000–500019 | none |") == 1
    assert "500050" not in test
    assert "500000–500019" not in development.partition("## Again")[0]
    assert [each for each in ("1000, 500000", "500050 |", "500001 |") if each not in development] == []
    assert f"--init-ids {first}-{TEST_STATES[19]} " in card


def test_the_card_says_whether_noise_is_drawn(shipped):
    assert "It draws no noise: the flow begins at zero" in render(shipped)


def test_runs_of_one_name_on_other_episodes_are_results_of_their_own(shipped, evaluate):
    """Two evaluations that begin in one second, in folders of their own, are called the same."""
    (result,) = bundle(None, [evaluate(shipped)], shipped, data=[]).results
    namesake = dataclasses.replace(result, init_ids=(8, 9))
    assert merged([result], [namesake], [result]) == (result, namesake)


def test_a_policy_that_said_nothing_has_no_scores_of_texts(shipped, evaluate):
    bundle(None, [evaluate(shipped, "--language-tasks", "none")], shipped, data=[])
    assert "### Narration" not in (shipped / CARD_FILE).read_text()
    bundle(None, [evaluate(shipped)], shipped, data=[])
    assert (shipped / CARD_FILE).read_text().count("### Narration") == 1


def test_numbers_in_short():
    assert ranges([3, 0, 1, 2, 9, 7, 9]) == "0–3, 7, 9"
    assert ranges([]) == ""
