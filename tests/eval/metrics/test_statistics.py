"""The statistics agree with their definitions, and stay defined at the edges."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import norm
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint

from eval.metrics.statistics import (
    cluster_bootstrap_95,
    mcnemar_exact,
    paired_difference_95,
    quantiles,
    wilson_95,
)

trials = st.integers(1, 2000)
counts = st.integers(0, 300)


@given(n=trials, fraction=st.floats(0, 1))
def test_the_wilson_interval_equals_a_reference(n, fraction):
    successes = round(fraction * n)
    interval = wilson_95(successes, n)
    low, high = proportion_confint(successes, n, alpha=0.05, method="wilson")
    assert interval.low == pytest.approx(low, abs=1e-9)
    assert interval.high == pytest.approx(high, abs=1e-9)


@given(only_a=counts, only_b=counts)
def test_mcnemar_is_a_binomial_test_of_discordant_pairs(only_a, only_b):
    assume(only_a + only_b > 0)
    fair = mcnemar([[0, only_a], [only_b, 0]], exact=True).pvalue
    assert mcnemar_exact(only_a, only_b) == pytest.approx(fair, abs=1e-9)
    assert mcnemar_exact(only_a, only_b) == mcnemar_exact(only_b, only_a)


@pytest.mark.parametrize(
    ("only_b", "only_a", "pairs", "low", "high"),
    [
        (1, 7, 21, -0.517, -0.026),  # airway hyper-responsiveness (Bentur et al. 2009)
        (6, 16, 161, -0.1240, -0.0054),  # response to consolidation therapy (Cavo et al. 2012)
    ],
)
def test_the_paired_interval_equals_published_values(only_b, only_a, pairs, low, high):
    """From Fagerland, Lydersen and Laake, Statistical Analysis of Contingency Tables (2017), chapter 8."""
    found = paired_difference_95(only_a, only_b, pairs)
    assert (found.low, found.high) == pytest.approx((low, high), abs=6e-4 if pairs == 21 else 6e-5)


@st.composite
def paired_counts(draw):
    pairs = draw(st.integers(1, 500))
    only_a = draw(st.integers(0, pairs))
    return only_a, draw(st.integers(0, pairs - only_a)), pairs


@given(paired_counts())
def test_at_zero_the_paired_score_test_is_mcnemars(counts):
    """0 is in the interval exactly if McNemar's test, uncorrected, does not reject at 5 %."""
    only_a, only_b, pairs = counts
    assume(only_a + only_b > 0)
    p_value = mcnemar([[0, only_a], [only_b, 0]], exact=False, correction=False).pvalue
    assume(abs(p_value - 0.05) > 1e-9)
    found = paired_difference_95(only_a, only_b, pairs)
    assert (found.low <= 0 <= found.high) == (p_value > 0.05)


@pytest.mark.parametrize(("only_a", "only_b", "pairs"), [(3, 8, 40), (1, 0, 44), (30, 12, 200)])
def test_the_intervals_ends_are_barely_rejected(only_a, only_b, pairs):
    """With the likeliest proportions under each difference found by search, not by Tango's formula."""

    def score(difference):
        def unlikelihood(a):
            b, rest = a + difference, 1 - 2 * a - difference
            counts = ((only_a, a), (only_b, b), (pairs - only_a - only_b, rest))
            return -sum(n * math.log(max(p, 1e-300)) for n, p in counts if n)

        bounds = max(0.0, -difference), (1 - difference) / 2
        a = minimize_scalar(unlikelihood, bounds=bounds, method="bounded", options={"xatol": 1e-12}).x
        variance = pairs * (2 * a + difference - difference**2)
        return (only_b - only_a - pairs * difference) / math.sqrt(variance)

    found = paired_difference_95(only_a, only_b, pairs)
    assert score(found.low) == pytest.approx(norm.ppf(0.975), abs=1e-3)
    assert score(found.high) == pytest.approx(norm.ppf(0.025), abs=1e-3)


def test_quantiles_of_a_known_sample():
    assert quantiles(range(101)) == {"p50": 50, "p95": 95, "p99": 99}


@pytest.mark.parametrize(("clusters", "least"), [(40, 0.89), (10, 0.84)])
def test_intervals_have_nominal_coverage(clusters, least):
    rng, rate, covered = np.random.default_rng(1), 0.7, 0
    of = np.full(clusters, 20.0)
    for _ in range(100):
        hits = rng.binomial(20, rng.beta(7, 3, size=clusters)).astype(float)
        found = cluster_bootstrap_95(lambda h, o, axis=-1: h.sum(axis) / o.sum(axis), hits, of)
        covered += found.low <= rate <= found.high
    assert least <= covered / 100 <= 0.99
