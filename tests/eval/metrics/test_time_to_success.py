"""Time to success is paired over what both solved; the curve counts failures in its denominator."""

import math

import numpy as np
import pytest

from eval.metrics.noninferiority import Verdict
from eval.metrics.simulated_time import restricted_times, success_curve, time_ratio
from eval.metrics.statistics import wilson_95
from eval.report.comparison_verdict import judge_restricted, judge_time
from tests.eval.factory import episode, key


def took(seconds: float | None, outcome: str = "success"):
    return episode(key(0), outcome, simulated_s=seconds)


def test_the_ratio_is_the_geometric_mean_over_what_both_solved():
    pairs = [
        (took(2), took(4)),
        (took(4), took(2)),
        (took(1), took(8)),
        (took(9), took(30, "timeout")),
        (took(30, "timeout"), took(1)),
        (took(None), took(3)),
    ]
    found = time_ratio(pairs)
    assert found.n_pairs == 3
    assert found.ratio == pytest.approx(2)
    assert found.ci95.low <= 2 <= found.ci95.high


def test_swapping_the_runs_inverts_the_ratio():
    pairs = [(took(2), took(3)), (took(5), took(4)), (took(6), took(7)), (took(3), took(3.5))]
    forth, back = time_ratio(pairs), time_ratio([(b, a) for a, b in pairs])
    assert forth.ratio == pytest.approx(1 / back.ratio)
    assert (forth.ci95.low, forth.ci95.high) == pytest.approx((1 / back.ci95.high, 1 / back.ci95.low))


@pytest.mark.parametrize("pairs", [[], [(took(None), took(None))], [(took(3), took(9, "timeout"))]])
def test_nothing_solved_by_both_or_no_time_recorded_has_no_ratio(pairs):
    assert time_ratio(pairs) is None
    assert judge_time(time_ratio(pairs)) is None


def test_restricted_times_pair_all_episodes_and_count_failures_as_the_limit():
    pairs = [(took(2), took(4)), (took(4), took(9, "invalid_action")), (took(20, "timeout"), took(6))]
    found = restricted_times(pairs, {"libero_object": 20.0})
    assert found.seconds.n_pairs == 3
    assert (found.seconds.a, found.seconds.b) == pytest.approx((26 / 3, 10))
    assert found.seconds.difference == pytest.approx(4 / 3)
    assert found.ratio == pytest.approx(30 / 26)
    assert found.ci95.low < found.ratio < found.ci95.high
    back = restricted_times([(b, a) for a, b in pairs], {"libero_object": 20.0})
    assert back.seconds.difference == pytest.approx(-found.seconds.difference)
    assert restricted_times([(took(None), took(None))], {}) is None


def test_restricted_times_of_unsolved_episodes_have_no_interval():
    unsolved = (took(20, "timeout"), took(20, "timeout"))
    found = restricted_times([unsolved] * 30, {})
    assert (found.ratio, found.ci95, found.seconds.ci95) == (1, None, None)
    assert restricted_times([*[unsolved] * 29, (took(5), took(5))], {}).ci95 is not None


def test_failing_more_often_is_slower_though_what_both_solved_took_as_long():
    pairs = [(took(5), took(5))] * 60 + [(took(5), took(20, "timeout"))] * 20
    judgement = judge_restricted(restricted_times(pairs, {}), a="isolated", b="unified")
    assert judgement.verdict is Verdict.INFERIOR
    assert judge_time(time_ratio(pairs)).verdict is Verdict.NON_INFERIOR
    assert (
        "unified is inferior to isolated in restricted mean time (margin 10 %): +3.75 s" in judgement.sentence
    )


def test_ratios_that_agree_have_an_interval_only_if_there_are_six():
    assert time_ratio([(took(2), took(3))] * 5).ci95 is None
    six = time_ratio([(took(2), took(3))] * 6).ci95
    assert (six.low, six.high) == pytest.approx((1.5, 1.5))


@pytest.mark.parametrize(
    ("ratio", "spread", "verdict", "words"),
    [
        (
            0.7,
            0.05,
            Verdict.SUPERIOR,
            "is superior to isolated in time to success (margin 10 %): 0.7",
        ),
        (1.0, 0.05, Verdict.NON_INFERIOR, "unified is non-inferior to isolated in time to success"),
        (1.06, 0.02, Verdict.NON_INFERIOR, "though worse: 1.06 times as long, 95 % 1.0"),
        (1.12, 0.15, Verdict.INCONCLUSIVE, "but by how much is inconclusive: 1.1"),
        (1.0, 0.8, Verdict.INCONCLUSIVE, "Whether unified is non-inferior to isolated in time to success"),
        (1.3, 0.05, Verdict.INFERIOR, "unified is inferior to isolated"),
    ],
)
def test_a_ratio_is_held_against_a_margin_of_its_own(ratio, spread, verdict, words):
    factors = np.exp(np.log(ratio) + spread * np.linspace(-1.5, 1.5, 30)).tolist()
    judgement = judge_time(time_ratio([(took(4), took(4 * f)) for f in factors]), a="isolated", b="unified")
    assert judgement.verdict is verdict
    assert words in judgement.sentence
    assert judgement.sentence.endswith("30 episodes solved by both.")


def test_one_pair_settles_nothing():
    judgement = judge_time(time_ratio([(took(2), took(1))]))
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert "0.50 times as long, no interval, 1 episode solved by both." in judgement.sentence


def test_identical_variants_are_rarely_told_apart_by_time():
    rng = np.random.default_rng(5)
    told_apart = 0
    for _ in range(100):
        a, b = np.exp(0.3 * rng.standard_normal((2, 20))).tolist()
        found = judge_time(time_ratio([(took(x), took(y)) for x, y in zip(a, b, strict=True)]))
        told_apart += found.verdict in (Verdict.INFERIOR, Verdict.SUPERIOR)
    assert told_apart <= 5


def test_the_curve_counts_ties_at_once_and_failures_never():
    results = [took(2), took(2), took(5), took(10, "timeout"), took(3, "invalid_action"), took(1, "error")]
    curve = success_curve(results)
    assert [(point.seconds, point.percent) for point in curve] == [(0, 0), (2, 40), (5, 60), (10, 60)]
    for point, solved in zip(curve, (0, 2, 3, 3), strict=True):
        interval = wilson_95(solved, 5)
        assert (point.low, point.high) == pytest.approx((100 * interval.low, 100 * interval.high))


def test_the_curve_never_falls_and_ends_at_the_success_rate():
    rng = np.random.default_rng(1)
    results = [took(float(s), "success" if s < 7 else "timeout") for s in rng.uniform(1, 10, 60)]
    percents = [point.percent for point in success_curve(results)]
    assert percents == sorted(percents)
    assert math.isclose(percents[-1], 100 * sum(r.success_s is not None for r in results) / 60)


@pytest.mark.parametrize("results", [[], [took(1, "error")], [took(2), took(None)]])
def test_there_is_no_curve_without_graded_episodes_or_their_times(results):
    assert success_curve(results) == []
