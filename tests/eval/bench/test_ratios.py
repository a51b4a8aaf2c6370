"""Paired ratios of two modes cancel drift, and their intervals cover the true ratio."""

import numpy as np
import pytest

from eval.bench.rows import decode_growth, paired_ratio


def drifting(seed: int, repetitions: int = 8):
    """Two series with true ratio 3, common drift, and long-tailed noise of 2 % in each."""
    random = np.random.default_rng(seed)
    drift = np.exp(np.cumsum(random.normal(0, 0.3, repetitions)))
    noise = np.exp(0.02 * random.standard_t(3, (2, repetitions)))
    return (3 * drift * noise[0]).tolist(), (drift * noise[1]).tolist()


def test_drift_cancels():
    for seed in range(20):
        ratio = paired_ratio(*drifting(seed))
        assert ratio.value == pytest.approx(3, rel=0.05)
        assert ratio.ci95.high - ratio.ci95.low < 0.4


@pytest.mark.parametrize(("repetitions", "least"), [(3, 0.70), (5, 0.91), (6, 0.92), (8, 0.92), (12, 0.92)])
def test_intervals_have_their_nominal_coverage(repetitions, least):
    """95 % from six repetitions on, 94 % of five and 75 % of three, less the sampling error of 400 tries."""
    ratios = [paired_ratio(*drifting(seed, repetitions)) for seed in range(400)]
    assert least < np.mean([ratio.ci95.low <= 3 <= ratio.ci95.high for ratio in ratios]) < 0.98


def test_the_interval_of_few_repetitions_is_their_range():
    ratio = paired_ratio([5.0, 1.0, 2.0, 4.0, 3.0], [1.0] * 5)
    assert (ratio.value, ratio.ci95.low, ratio.ci95.high) == (3, 1, 5)


def test_a_disturbed_repetition_does_not_widen_the_interval_of_many():
    quiet = [1.0 + 0.01 * n for n in range(12)]
    assert paired_ratio([*quiet, 50.0], [1.0] * 13).ci95.high < 1.12


def test_the_ratio_is_divided_by_the_expected_one():
    ratio = paired_ratio([6.0, 8.0], [2.0, 2.0], expected=[3.0, 4.0])
    assert ratio.value == 1
    assert (ratio.ci95.low, ratio.ci95.high) == (1, 1)


def test_one_disturbed_repetition_of_many_does_not_change_the_ratio():
    assert paired_ratio([2.0] * 8 + [50.0], [1.0] * 9).value == 2


def test_one_repetition_has_no_interval_and_none_no_ratio():
    assert paired_ratio([4.0], [2.0]).ci95 is None
    with pytest.raises(ValueError, match="no repetitions"):
        paired_ratio([], [])
    with pytest.raises(ValueError, match=r"shorter|longer"):
        paired_ratio([1.0, 2.0], [1.0])


def test_a_decode_step_grows_from_the_smallest_batch_to_the_largest():
    growth = decode_growth([{size: slow * (3 + size) for size in (30, 1, 6)} for slow in (1.0, 2.0, 1.5)])
    assert growth.value == pytest.approx(33 / 4)
    assert growth.ci95.low == pytest.approx(growth.ci95.high)
    assert decode_growth([{4: 7.0}]) is None
