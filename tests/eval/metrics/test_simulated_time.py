"""Time to success, query rate and time spent waiting are over what was recorded of graded episodes."""

import pytest

from eval.metrics.noninferiority import Verdict
from eval.metrics.simulated_time import (
    restricted_s,
    restricted_times,
    success_curve,
    summarize_time,
    time_ratio,
)
from eval.metrics.statistics import wilson_95
from eval.metrics.success import summarize
from eval.report.comparison_verdict import judge_time
from tests.eval.factory import RunBuilder, episode, key

SOLVED = [
    episode(key(0), steps=100, queries=20, simulated_s=5.0),
    episode(key(1), steps=60, queries=6, simulated_s=3.0, held_steps=3, skipped_actions=4),
    episode(key(2), steps=240, queries=40, simulated_s=12.0, held_steps=30, continued_steps=80),
]
UNSOLVED = [
    episode(key(3), "timeout", steps=280, queries=14, simulated_s=14.0, held_steps=67, skipped_actions=16),
    episode(key(4), "invalid_action", steps=20, queries=20, simulated_s=1.0),
]
ERROR = episode(key(5), "error", steps=100, queries=900, simulated_s=0.1, held_steps=100)
UNRECORDED = [episode(key(6)), episode(key(7), "timeout")]


def test_time_metrics_of_mixed_outcomes_equal_a_hand_calculation(tmp_path):
    run = RunBuilder.at(tmp_path / "run")
    for result in (*SOLVED, *UNSOLVED, ERROR, *UNRECORDED):
        run.add(result)
    results = summarize(run.path)
    for row in (results["overall"], results["per_suite"]["libero_object"], results["per_task"][0]):
        assert row["time_to_success_s"] == {"mean": pytest.approx(20 / 3), "median": 5.0, "n": 3}
        assert row["query_hz"] == pytest.approx(100 / 35)
        assert row["pc_held"] == pytest.approx(100 * 100 / 700)
        assert row["pc_continued"] == pytest.approx(100 * 80 / 700)
        assert row["skipped_per_query"] == pytest.approx(20 / 100)
    assert results["overall"]["n_success"] == 4, "an episode that recorded no time is solved all the same"
    at_once = episode(key(0), "invalid_action", steps=0, queries=1, simulated_s=0.0)
    row = summarize_time([at_once], {})
    assert (row["query_hz"], row["pc_held"], row["skipped_per_query"]) == (None, None, 0)
    assert summarize_time([at_once, SOLVED[0]], {})["query_hz"] == pytest.approx(21 / 5)


def test_a_failure_counts_as_the_limit_and_an_unknown_limit_as_nothing():
    unsolved, limit = UNSOLVED[1], {"libero_object": 14.0}
    assert restricted_s(SOLVED[0], limit) == SOLVED[0].simulated_s
    assert restricted_s(unsolved, limit) == 14.0
    assert restricted_s(unsolved, {}) is None, "actions that could not be executed ended it early"
    assert restricted_s(UNSOLVED[0], {}) == 14.0, "what ran out of time shows the limit"
    row = summarize_time([*SOLVED, *UNSOLVED], limit)
    assert row["restricted_mean_s"] == pytest.approx((20 + 28) / 5)
    low, high = row["restricted_mean_ci95"]
    assert low < row["restricted_mean_s"] < high


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
    for none in ([], [(took(None), took(None))], [(took(3), took(9, "timeout"))]):
        assert time_ratio(none) is None
        assert judge_time(time_ratio(none)) is None


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
    unsolved = (took(20, "timeout"), took(20, "timeout"))
    found = restricted_times([unsolved] * 30, {})
    assert (found.ratio, found.ci95, found.seconds.ci95) == (1, None, None)
    assert restricted_times([*[unsolved] * 29, (took(5), took(5))], {}).ci95 is not None


def test_restricted_mean_time_counts_failures():
    pairs = [(took(5), took(5))] * 60 + [(took(5), took(20, "timeout"))] * 20
    judgement = judge_time(restricted_times(pairs, {}), a="isolated", b="unified")
    assert judgement.verdict is Verdict.INFERIOR
    assert judge_time(time_ratio(pairs)).verdict is Verdict.NON_INFERIOR
    assert (
        "unified is inferior to isolated in restricted mean time (margin 10 %): +3.75 s" in judgement.sentence
    )


def test_the_success_curve_counts_ties_together():
    results = [took(2), took(2), took(5), took(10, "timeout"), took(3, "invalid_action"), took(1, "error")]
    curve = success_curve(results)
    assert [(point.seconds, point.percent) for point in curve] == [(0, 0), (2, 40), (5, 60), (10, 60)]
    for point, solved in zip(curve, (0, 2, 3, 3), strict=True):
        interval = wilson_95(solved, 5)
        assert (point.low, point.high) == pytest.approx((100 * interval.low, 100 * interval.high))
