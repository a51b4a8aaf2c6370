"""The statistics agree with their definitions, and stay defined at the edges."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import binomtest

from eval.statistics import mcnemar_exact, quantiles, wilson_95

trials = st.integers(1, 2000)
counts = st.integers(0, 300)


@given(n=trials, fraction=st.floats(0, 1))
def test_the_wilson_interval_is_an_independent_implementations(n, fraction):
    successes = round(fraction * n)
    interval = wilson_95(successes, n)
    reference = binomtest(successes, n).proportion_ci(method="wilson")
    assert interval.low == pytest.approx(reference.low, abs=1e-9)
    assert interval.high == pytest.approx(reference.high, abs=1e-9)


@given(n=trials, fraction=st.floats(0, 1))
def test_the_interval_holds_the_rate_and_mirrors_for_failures(n, fraction):
    successes = round(fraction * n)
    interval = wilson_95(successes, n)
    mirrored = wilson_95(n - successes, n)
    assert -1e-12 <= interval.low <= successes / n + 1e-12
    assert successes / n - 1e-12 <= interval.high <= 1 + 1e-12
    assert interval.low == pytest.approx(1 - mirrored.high, abs=1e-9)


def test_no_trials_have_no_interval():
    assert wilson_95(0, 0) is None


@pytest.mark.parametrize(("successes", "n"), [(2, 1), (-1, 3), (0, -1)])
def test_impossible_counts_are_refused(successes, n):
    with pytest.raises(ValueError, match=str(successes)):
        wilson_95(successes, n)


@given(only_a=counts, only_b=counts)
def test_mcnemar_is_a_fair_coin_over_the_discordant_pairs(only_a, only_b):
    assume(only_a + only_b > 0)
    fair = binomtest(only_a, only_a + only_b, 0.5).pvalue
    assert mcnemar_exact(only_a, only_b) == pytest.approx(fair, abs=1e-9)
    assert mcnemar_exact(only_a, only_b) == mcnemar_exact(only_b, only_a)


def test_arms_without_a_discordant_pair_do_not_differ():
    assert mcnemar_exact(0, 0) == 1


def test_a_negative_count_of_pairs_is_refused():
    with pytest.raises(ValueError, match="-1"):
        mcnemar_exact(-1, 2)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_quantiles_are_ordered_and_within_the_sample(values):
    found = quantiles(values)
    assert list(found) == ["p50", "p95", "p99"]
    assert min(values) <= found["p50"] <= found["p95"] <= found["p99"] <= max(values)


def test_quantiles_of_a_known_sample():
    assert quantiles(range(101)) == {"p50": 50, "p95": 95, "p99": 99}


def test_what_was_not_measured_does_not_count():
    assert quantiles([]) == {}
    assert quantiles([math.nan, math.inf]) == {}
    assert quantiles([math.nan, 4.0]) == {"p50": 4, "p95": 4, "p99": 4}
