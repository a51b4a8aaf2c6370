"""A ratio of two modes that drift together: paired, with an interval that covers the truth."""

import numpy as np
import pytest

from eval.bench.ratios import decode_growth, paired_ratio


def drifting(seed: int, repetitions: int = 8):
    """Two series whose true ratio is 3, under a drift common to both and noise of 2 % in each.

    The noise has long tails: now and then a repetition is disturbed.
    """
    random = np.random.default_rng(seed)
    drift = np.exp(np.cumsum(random.normal(0, 0.3, repetitions)))
    noise = np.exp(0.02 * random.standard_t(3, (2, repetitions)))
    return (3 * drift * noise[0]).tolist(), (drift * noise[1]).tolist()


def test_drift_cancels():
    for seed in range(20):
        ratio = paired_ratio(*drifting(seed))
        assert ratio.value == pytest.approx(3, rel=0.05)
        assert ratio.ci95.high - ratio.ci95.low < 0.4


SLOW = [(5, 0.91, 0.90), (8, 0.92, 0.88), (12, 0.92, 0.90)]


@pytest.mark.parametrize(
    ("repetitions", "least", "least_drawn"),
    [
        (3, 0.70, 0.70),
        (6, 0.92, 0.89),
        *(pytest.param(n, *least, marks=pytest.mark.slow) for n, *least in SLOW),
    ],
)
def test_the_intervals_hold_the_truth_as_often_as_they_say(repetitions, least, least_drawn):
    """By order 95 % from six repetitions on, 94 % of five and 75 % of three, less what chance takes in 400
    tries; by a bootstrap, a little less from six on."""
    ratios = [paired_ratio(*drifting(seed, repetitions)) for seed in range(400)]
    by_order = np.mean([ratio.ci95.low <= 3 <= ratio.ci95.high for ratio in ratios])
    drawn = np.mean([ratio.bootstrap95.low <= 3 <= ratio.bootstrap95.high for ratio in ratios])
    assert least < by_order < 0.98
    assert least_drawn < drawn < 0.97


def test_the_bootstrap_draws_repetitions_whole_and_the_same_ones_every_time():
    """Drift by factors widens it by nothing, since both sides of a repetition are drawn together."""
    numerators, denominators = drifting(1)
    steady = [a / b for a, b in zip(numerators, denominators, strict=True)]
    drawn, alone = paired_ratio(numerators, denominators), paired_ratio(steady, [1.0] * 8)
    assert drawn.bootstrap95.low == pytest.approx(alone.bootstrap95.low)
    assert drawn.bootstrap95.high == pytest.approx(alone.bootstrap95.high)
    assert drawn.bootstrap95 == paired_ratio(numerators, denominators).bootstrap95
    assert min(steady) < drawn.bootstrap95.low < drawn.value < drawn.bootstrap95.high < max(steady)


def test_few_repetitions_have_the_interval_from_the_least_to_the_greatest():
    ratio = paired_ratio([5.0, 1.0, 2.0, 4.0, 3.0], [1.0] * 5)
    assert (ratio.value, ratio.ci95.low, ratio.ci95.high) == (3, 1, 5)
    assert ratio.bootstrap95 == ratio.ci95


def test_a_disturbed_repetition_does_not_widen_the_interval_of_many():
    quiet = [1.0 + 0.01 * n for n in range(12)]
    assert paired_ratio([*quiet, 50.0], [1.0] * 13).ci95.high < 1.12


def test_what_was_expected_is_divided_out():
    ratio = paired_ratio([6.0, 8.0], [2.0, 2.0], expected=[3.0, 4.0])
    assert ratio.value == 1
    assert (ratio.ci95.low, ratio.ci95.high) == (1, 1)


def test_one_disturbed_repetition_of_many_does_not_count():
    assert paired_ratio([2.0] * 8 + [50.0], [1.0] * 9).value == 2


def test_one_repetition_has_no_interval_and_none_no_ratio():
    lone = paired_ratio([4.0], [2.0])
    assert (lone.ci95, lone.bootstrap95) == (None, None)
    with pytest.raises(ValueError, match="no repetitions"):
        paired_ratio([], [])
    with pytest.raises(ValueError, match=r"shorter|longer"):
        paired_ratio([1.0, 2.0], [1.0])


def test_a_decode_step_grows_from_the_smallest_batch_to_the_largest():
    growth = decode_growth([{size: slow * (3 + size) for size in (30, 1, 6)} for slow in (1.0, 2.0, 1.5)])
    assert growth.value == pytest.approx(33 / 4)
    assert growth.ci95.low == pytest.approx(growth.ci95.high)
    assert decode_growth([{4: 7.0}]) is None
