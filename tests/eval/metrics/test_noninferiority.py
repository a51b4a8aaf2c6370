"""Verdicts follow from an interval and a margin, are rarely wrong, and say how many episodes they take."""

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from eval.metrics.noninferiority import (
    PairCounts,
    Verdict,
    corrected_verdicts,
    episodes_needed,
    verdict_of,
)
from eval.metrics.statistics import Interval, holm, paired_difference_95


@functools.cache
def judged(only_a: int, only_b: int, pairs: int, margin: float = 0.05) -> Verdict:
    return verdict_of(paired_difference_95(only_a, only_b, pairs), margin)


def simulated(pairs: int, only_a: float, only_b: float, repetitions: int = 1000) -> list[Verdict]:
    """Verdicts of runs of which one alone solves such shares of the pairs."""
    sampled = np.random.default_rng(3).multinomial(pairs, [only_a, only_b, 1 - only_a - only_b], repetitions)
    return [judged(a, b, pairs) for a, b, _ in sampled.tolist()]


def share(verdicts, *wanted) -> float:
    return sum(verdict in wanted for verdict in verdicts) / len(verdicts)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.1, 4, Verdict.SUPERIOR),
        (0, 4, Verdict.NON_INFERIOR),
        (-4.9, 4, Verdict.NON_INFERIOR),
        (-4.9, -0.1, Verdict.NON_INFERIOR),
        (-5, 4, Verdict.INCONCLUSIVE),
        (-9, -0.1, Verdict.INCONCLUSIVE),
        (-9, -5, Verdict.INCONCLUSIVE),
        (-9, -5.1, Verdict.INFERIOR),
    ],
)
def test_a_verdict_follows_from_the_interval(low, high, verdict):
    assert verdict_of(Interval(low=low, high=high), 5) is verdict


@pytest.mark.parametrize(("pairs", "discordant"), [(10, 0.3), (50, 0.1), (200, 0.05), (500, 0.3)])
def test_identical_variants_are_rarely_told_apart(pairs, discordant):
    verdicts = simulated(pairs, discordant / 2, discordant / 2)
    assert share(verdicts, Verdict.INFERIOR, Verdict.SUPERIOR) <= 0.05


@pytest.mark.parametrize(("pairs", "discordant"), [(50, 0.1), (200, 0.1), (500, 0.3)])
def test_variants_at_the_margin_are_rarely_called_non_inferior(pairs, discordant):
    verdicts = simulated(pairs, discordant / 2 + 0.025, discordant / 2 - 0.025)
    assert share(verdicts, Verdict.NON_INFERIOR, Verdict.SUPERIOR) <= 0.025 + 0.015


def test_a_planted_loss_is_found_and_a_planted_gain_too():
    assert share(simulated(200, 0.3, 0.05), Verdict.INFERIOR) > 0.9
    assert share(simulated(200, 0.05, 0.3), Verdict.SUPERIOR) > 0.99


@pytest.mark.parametrize(
    ("only_a", "only_b", "expected"),
    [(6, 4, Verdict.NON_INFERIOR), (3, 3, Verdict.NON_INFERIOR), (15, 3, Verdict.INFERIOR)],
)
def test_the_recommended_sample_size_has_80_percent_power(only_a, only_b, expected):
    needed = episodes_needed(PairCounts(only_a=10 * only_a, only_b=10 * only_b, pairs=1000), 0.05)
    verdicts = simulated(needed, only_a / 100, only_b / 100)
    assert 0.76 < share(verdicts, expected) < 0.87


counts = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 300)).map(
    lambda n: PairCounts(only_a=n[0], only_b=n[1], pairs=n[0] + n[1] + n[2] + 1)
)


@given(st.lists(counts, min_size=1, max_size=5))
def test_a_single_suite_has_the_verdict_of_its_interval_and_a_correction_only_withdraws_claims(suites):
    order = {Verdict.INFERIOR: 1, Verdict.INCONCLUSIVE: 0, Verdict.NON_INFERIOR: 1, Verdict.SUPERIOR: 2}
    for each, verdict in zip(suites, corrected_verdicts(suites, 0.05), strict=True):
        alone = judged(each.only_a, each.only_b, each.pairs)
        assert corrected_verdicts([each], 0.05) == [alone]
        assert order[verdict] <= order[alone]
    borderline = PairCounts(only_a=1, only_b=8, pairs=100)
    assert corrected_verdicts([borderline], 0.05) == [Verdict.SUPERIOR]
    assert corrected_verdicts([borderline] * 4, 0.05) == [Verdict.NON_INFERIOR] * 4


def test_holm_equals_a_reference():
    p_values = np.random.default_rng(2).beta(0.3, 3, 12).tolist()
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1].tolist())
