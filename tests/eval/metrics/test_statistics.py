"""Statistics agree with their definitions; verdicts follow from interval and margin, and are rarely wrong."""

import functools
import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from contracts.latency import Quantiles
from eval.metrics.noninferiority import (
    PairCounts,
    TwoRates,
    Verdict,
    corrected_verdicts,
    episodes_needed,
    verdict_of,
)
from eval.metrics.statistics import (
    Interval,
    agreed,
    cluster_bootstrap_95,
    holm,
    independent_share,
    mcnemar_exact,
    mean_95,
    paired_difference_95,
    quantiles,
    rate_95,
    ratio_of_sums,
    wilson_95,
)

trials = st.integers(1, 2000)
counts = st.integers(0, 300)


@given(n=trials, fraction=st.floats(0, 1))
def test_the_wilson_interval_equals_a_reference(n, fraction):
    from statsmodels.stats.proportion import proportion_confint

    successes = round(fraction * n)
    interval = wilson_95(successes, n)
    low, high = proportion_confint(successes, n, alpha=0.05, method="wilson")
    assert interval.low == pytest.approx(low, abs=1e-9)
    assert interval.high == pytest.approx(high, abs=1e-9)


@given(only_a=counts, only_b=counts)
def test_mcnemar_is_a_binomial_test_of_discordant_pairs(only_a, only_b):
    from statsmodels.stats.contingency_tables import mcnemar

    assume(only_a + only_b > 0)
    fair = mcnemar([[0, only_a], [only_b, 0]], exact=True).pvalue
    differences = [-1] * only_a + [1] * only_b
    assert mcnemar_exact(differences) == pytest.approx(fair, abs=1e-9)
    assert mcnemar_exact(differences) == mcnemar_exact([-each for each in differences])


@given(differences=st.lists(st.integers(-3, 3), max_size=8))
def test_the_exact_test_of_clusters_counts_all_choices_of_their_signs(differences):
    sums = [
        abs(sum(sign * each for sign, each in zip(signs, differences, strict=True)))
        for signs in itertools.product((-1, 1), repeat=len(differences))
    ]
    share = sum(each >= abs(sum(differences)) for each in sums) / len(sums)
    assert mcnemar_exact(differences) == pytest.approx(share, abs=1e-9)


outcomes = st.lists(st.booleans(), min_size=2, max_size=40)


@given(solved=outcomes)
def test_without_repetition_an_interval_over_initial_states_is_the_usual_one(solved):
    assert rate_95(solved, range(len(solved))) == wilson_95(sum(solved), len(solved))
    values, alone = [float(each) for each in solved], range(len(solved))
    columns = np.array(values), np.ones(len(values))
    assert mean_95(values, alone) == cluster_bootstrap_95(ratio_of_sums, *columns, method="percentile")


def test_a_bootstrap_draws_a_cluster_whole_and_is_as_wide_as_students_interval():
    assert cluster_bootstrap_95(ratio_of_sums, np.arange(2.0, 18, 2), np.arange(1.0, 9)) is None, "always 2"
    values = np.sin(2.1 * np.arange(1, 21))
    found, half = mean_95(values, range(20)), 2.093 * values.std(ddof=1) / math.sqrt(20)  # t of 19
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.02)


@pytest.mark.parametrize(("clusters", "has_one"), [(5, False), (6, True)])
def test_six_clusters_have_an_interval_and_five_have_none(clusters, has_one):
    values = [*map(float, range(clusters))]
    assert (mean_95(values, range(clusters)) is not None) == has_one
    assert (agreed(1.0, range(clusters)) is not None) == has_one


@given(solved=outcomes, seeds=st.integers(2, 4))
def test_seeds_that_always_agree_count_as_one(solved, seeds):
    """The estimate between n states is of n - 1 degrees of freedom."""
    repeated, states = solved * seeds, [*range(len(solved))] * seeds
    effective = independent_share(repeated, states) * len(repeated)
    assert len(solved) - 1 <= effective + 1e-9
    assert effective <= len(solved) + 1e-9
    sums = rate_95(repeated, states)
    assert (
        sums.high - sums.low
        >= wilson_95(sum(solved), len(solved)).high - wilson_95(sum(solved), len(solved)).low - 1e-9
    )


def test_the_design_effect_is_that_of_a_worked_example():
    """Four states of three seeds: 3, 2, 0 and 1 successes, a rate of 1/2."""
    solved = [True] * 3 + [True, True, False] + [False] * 3 + [True, False, False]
    states = [state for state in range(4) for _ in range(3)]
    between = 4 / 3 * (1.5**2 + 0.5**2 + 1.5**2 + 0.5**2)  # against 12 / 4 of independent outcomes
    assert independent_share(solved, states) == pytest.approx(3 / between)
    assert independent_share(solved, states[::-1]) == pytest.approx(3 / between)
    assert independent_share([True, False, False] * 4, states) == 1.0, "less than independent ones vary"


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


def test_the_unpaired_interval_is_normal_with_a_success_and_a_failure_more_in_either_run():
    """0 of 8 against 4 of 8 are 1 and 5 of 10: the variance is (0.09 + 0.25) / 10."""
    rates = TwoRates(solved_a=0, of_a=8, solved_b=4, of_b=8)
    found, half = rates.interval, 1.959964 * math.sqrt(0.034)
    assert (found.low, found.high) == pytest.approx((0.4 - half, 0.4 + half))
    assert rates.difference == 0.5
    assert rates.p_value(above=found.low) == pytest.approx(0.025, abs=1e-6)
    assert rates.p_value(above=found.high) == pytest.approx(0.975, abs=1e-6)
    assert TwoRates(solved_a=0, of_a=1, solved_b=1, of_b=1).interval.high == 1
    assert TwoRates(solved_a=1, of_a=1, solved_b=0, of_b=1).interval.low == -1


def test_episodes_needed_without_pairs_are_by_the_variance_of_either_rate():
    same = TwoRates(solved_a=4, of_a=8, solved_b=4, of_b=8)  # 5 of 10, a variance of 1/4 in either run
    assert episodes_needed(same, 0.1) == math.ceil((1.959964 + 0.841621) ** 2 * 0.5 / 0.1**2) == 393
    other = TwoRates(solved_a=0, of_a=8, solved_b=4, of_b=8)  # 1 and 5 of 10
    assert episodes_needed(other, 0.1) == math.ceil((1.959964 + 0.841621) ** 2 * 0.34 / 0.6**2) == 8


@st.composite
def paired_counts(draw):
    pairs = draw(st.integers(1, 500))
    only_a = draw(st.integers(0, pairs))
    return only_a, draw(st.integers(0, pairs - only_a)), pairs


@given(paired_counts())
def test_at_zero_the_paired_score_test_is_mcnemars(counts):
    """0 is in the interval exactly if McNemar's test, uncorrected, does not reject at 5 %."""
    from statsmodels.stats.contingency_tables import mcnemar

    only_a, only_b, pairs = counts
    assume(only_a + only_b > 0)
    p_value = mcnemar([[0, only_a], [only_b, 0]], exact=False, correction=False).pvalue
    assume(abs(p_value - 0.05) > 1e-9)
    found = paired_difference_95(only_a, only_b, pairs)
    assert (found.low <= 0 <= found.high) == (p_value > 0.05)


def test_quantiles_of_a_known_sample():
    assert quantiles(range(101)) == Quantiles(p50=50, p95=95, p99=99)


@pytest.mark.parametrize(("clusters", "least"), [(40, 0.89), (10, 0.84)])
def test_intervals_have_nominal_coverage(clusters, least):
    rng, rate, covered = np.random.default_rng(1), 0.7, 0
    of = np.full(clusters, 20.0)
    for _ in range(100):
        hits = rng.binomial(20, rng.beta(7, 3, size=clusters)).astype(float)
        found = cluster_bootstrap_95(lambda h, o, axis=-1: h.sum(axis) / o.sum(axis), hits, of)
        covered += found.low <= rate <= found.high
    assert least <= covered / 100 <= 0.99


@functools.cache
def judged(only_a: int, only_b: int, pairs: int, margin: float = 0.05) -> Verdict:
    return verdict_of(paired_difference_95(only_a, only_b, pairs), margin)


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


@pytest.mark.parametrize(
    ("only_a", "only_b", "expected"),
    [(6, 4, Verdict.NON_INFERIOR), (3, 3, Verdict.NON_INFERIOR), (15, 3, Verdict.INFERIOR)],
)
def test_the_recommended_sample_size_has_80_percent_power(only_a, only_b, expected):
    needed = episodes_needed(PairCounts(only_a=10 * only_a, only_b=10 * only_b, pairs=1000), 0.05)
    shares = [only_a / 100, only_b / 100, 1 - (only_a + only_b) / 100]
    sampled = np.random.default_rng(3).multinomial(needed, shares, 1000)
    verdicts = [judged(a, b, needed) for a, b, _ in sampled.tolist()]
    assert 0.76 < verdicts.count(expected) / len(verdicts) < 0.87


pair_counts = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 300)).map(
    lambda n: PairCounts(only_a=n[0], only_b=n[1], pairs=n[0] + n[1] + n[2] + 1)
)


@given(st.lists(pair_counts, min_size=1, max_size=5))
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
    from statsmodels.stats.multitest import multipletests

    p_values = np.random.default_rng(2).beta(0.3, 3, 12).tolist()
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1].tolist())
