"""Time to success, query rate and time spent waiting are over what was recorded of graded episodes."""

import pytest

from eval.metrics.simulated_time import restricted_s, summarize_time
from eval.metrics.success import summarize
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


def test_a_mixture_of_outcomes_adds_up_as_by_hand(tmp_path):
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


def test_an_episode_that_ends_before_time_passes_divides_by_nothing():
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
