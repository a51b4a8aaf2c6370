"""Results are of the weights that are bundled: they are added, and those of other weights go."""

import pytest

from configs.errors import UsageError
from eval.bundle.bundling import CARD_FILE, bundle, read_results
from tests.eval.bundle.conftest import write_checkpoint


def test_results_are_added_and_those_of_other_weights_dropped(shipped, evaluate, demonstrations, tmp_path):
    first, second = evaluate(shipped), evaluate(shipped, "--mode", "shared")
    bundle(shipped, [first], shipped)
    bundle(shipped, [second, first], shipped)
    bundle(shipped, [], shipped)
    assert len(read_results(shipped)) == 2
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
