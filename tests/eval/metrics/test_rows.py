"""Results and times are functions of the records, count no error as a failure, and read like LeRobot's."""

import itertools

import pytest

from contracts.episode import MotionQuality
from eval.metrics.noninferiority import Verdict
from eval.metrics.results_file import results_of
from eval.metrics.rows import row_of, times_of
from eval.metrics.simulated_time import (
    TimeToSuccess,
    restricted_s,
    restricted_times,
    success_curve,
    summarize_time,
    time_ratio,
)
from eval.metrics.statistics import scaled, wilson_95
from eval.report.comparison_verdict import judge_time
from tests.eval.factory import RunBuilder, apart, episode, key, query, run_rows, scores


def test_invalid_actions_are_failures_and_nothing_graded_is_no_rate_rather_than_zero(tmp_path):
    results = run_rows(RunBuilder.at(tmp_path / "run").add_all("sitsei").folder)
    for row in (results.overall, results.suites["libero_object"], results.tasks[0]):
        assert (row.n_episodes, row.n_success) == (5, 2)
        assert (row.n_invalid_actions, row.n_errors) == (2, 1)
        assert row.pc_success == 40.0
        assert 0 < row.pc_success_ci95.low < 40 < row.pc_success_ci95.high < 100
    assert results.tasks[0].successes == [True, False, False, True, False]
    overall = run_rows(RunBuilder.at(tmp_path / "errors").add_all("ee").folder).overall
    assert (overall.n_episodes, overall.n_errors, overall.latency_ms) == (0, 2, {})
    assert [overall.pc_success, overall.pc_success_ci95, overall.mean_steps, overall.tokens_per_s] == [
        None
    ] * 4


def test_rows_add_up_over_tasks_and_suites(tmp_path):
    run = RunBuilder.at(tmp_path / "run")
    for suite, outcome in (("libero_object", "success"), ("libero_goal", "timeout")):
        for task_id in (1, 0):
            for init_id in range(task_id + 1):
                run.add(episode(key(init_id, task_id, suite), outcome))
    results = run_rows(run.folder)
    assert list(results.suites) == ["libero_object", "libero_goal"]
    episodes = {(row.suite, row.task_id): row.n_episodes for row in results.tasks}
    assert episodes == {(suite, task_id): task_id + 1 for suite in results.suites for task_id in (0, 1)}
    for name in ("n_episodes", "n_success", "n_invalid_actions", "n_errors", "tokens"):
        total = getattr(results.overall, name)
        assert total == sum(getattr(row, name) for row in results.suites.values())
        assert total == sum(getattr(row, name) for row in results.tasks)
    assert {row.instruction for row in results.tasks} == {"do task 0", "do task 1"}


def test_results_are_the_same_in_whatever_order_episodes_ended(tmp_path):
    """As worlds beside each other and joined shares leave them."""
    episodes = [
        episode(
            key(init_id),
            simulated_s=1.0 + init_id**2,
            steps=20 + init_id,
            progress=0.1 * init_id,
            motion=MotionQuality(path_length_m=init_id**1.5),
            texts={"narration": scores(current_s=init_id / 7)},
        )
        for init_id in range(7)
    ]
    forward, backward = RunBuilder.at(tmp_path / "forward"), RunBuilder.at(tmp_path / "backward")
    for one, other in zip(episodes, reversed(episodes), strict=True):
        forward.add(one)
        backward.add(other)
    assert results_of(run_rows(forward.folder)) == results_of(run_rows(backward.folder))


def test_latency_is_over_queries_and_not_over_episodes(tmp_path):
    run = RunBuilder.at(tmp_path / "run")
    run.add(episode(key(0)), *(query(i, action=10.0, frame=20.0) for i in range(99)))
    run.add(episode(key(1)), query(0, action=1000.0, frame=2000.0))
    latency = run_rows(run.folder).overall.latency_ms
    assert latency["action"].p50 == 10.0
    assert latency["frame"].p95 == 20.0
    assert 10.0 < latency["action"].p99 < 1000.0


def test_lerobots_tools_read_the_results(tmp_path):
    """Its CI's metrics, and a merge of sharded runs."""
    video = "videos/libero_object/task00_ep000_success.mp4"
    run = RunBuilder.at(tmp_path / "run").add(episode(key(0), video=video)).add(episode(key(1), "timeout"))
    run.add(episode(key(0, 3), "success")).add(episode(key(1, 3), "error"))
    results = results_of(run_rows(run.folder))
    overall, tasks = results["overall"], results["per_task"]
    successes = [success for task in tasks for success in task["metrics"]["successes"]]
    rate = overall["pc_success"]
    assert overall["n_episodes"] == len(successes) == 3
    assert rate == pytest.approx(100 * sum(successes) / 3)
    assert [reward for task in tasks for reward in task["metrics"]["sum_rewards"]] == successes
    assert (overall["eval_s"], set(results["per_group"])) == (40.0, {task["task_group"] for task in tasks})
    group = results["per_group"]["libero_object"]
    assert group["pc_success"] == rate
    assert group["avg_sum_reward"] == pytest.approx(rate / 100)
    assert group["video_paths"] == [video]


def test_progress_is_a_mean_and_unknown_unless_all_episodes_have_it():
    def of(shares):
        """The row of episodes that succeeded if all was done."""
        found = apart([episode(key(), "success" if s == 1 else "timeout", progress=s) for s in shares])
        return row_of(found, {each.key: times_of([]) for each in found}, {})

    for shares, mean in (([], None), ([1.0, None], None), ([0.0, 0.0], 0), ([1.0, 0.0], 50)):
        assert of(shares).pc_progress == mean


SOLVED = [
    episode(key(0), steps=100, queries=20, simulated_s=5.0),
    episode(key(1), steps=60, queries=6, simulated_s=3.0, idle_steps=3, skipped_actions=4),
    episode(key(2), steps=240, queries=40, simulated_s=12.0, idle_steps=30, continued_steps=80),
]
UNSOLVED = [
    episode(key(3), "timeout", steps=280, queries=14, simulated_s=14.0, idle_steps=67, skipped_actions=16),
    episode(key(4), "invalid_action", steps=20, queries=20, simulated_s=1.0),
]
ERROR = episode(key(5), "error", steps=100, queries=900, simulated_s=0.1, idle_steps=100)
UNRECORDED = [episode(key(6)), episode(key(7), "timeout")]


def test_time_metrics_of_mixed_outcomes_equal_a_hand_calculation(tmp_path):
    run = RunBuilder.at(tmp_path / "run")
    for result in (*SOLVED, *UNSOLVED, ERROR, *UNRECORDED):
        run.add(result)
    results = run_rows(run.folder)
    for row in (results.overall, results.suites["libero_object"], results.tasks[0]):
        assert row.time_to_success_s == TimeToSuccess(mean=pytest.approx(20 / 3), median=5.0, n=3)
        assert row.query_hz == pytest.approx(100 / 35)
        assert row.pc_idle == pytest.approx(100 * 100 / 700)
    assert results.overall.n_success == 4, "an episode that recorded no time is solved all the same"
    at_once = episode(key(0), "invalid_action", steps=0, queries=1, simulated_s=0.0)
    row = summarize_time([at_once], {})
    assert (row.query_hz, row.pc_idle) == (None, None)
    assert summarize_time([at_once, SOLVED[0]], {}).query_hz == pytest.approx(21 / 5)


def test_a_failure_counts_as_the_limit_and_an_unknown_limit_as_nothing():
    unsolved, limit = UNSOLVED[1], {"libero_object": 14.0}
    assert restricted_s(SOLVED[0], limit) == SOLVED[0].simulated_s
    assert restricted_s(unsolved, limit) == 14.0
    assert restricted_s(unsolved, {}) is None, "actions that could not be executed ended it early"
    assert restricted_s(UNSOLVED[0], {}) == 14.0, "what ran out of time shows the limit"
    row = summarize_time(apart([*SOLVED, *UNSOLVED] * 2), limit)
    assert row.restricted_mean_s == pytest.approx((20 + 28) / 5)
    assert row.restricted_mean_ci95.low < row.restricted_mean_s < row.restricted_mean_ci95.high


STATES = itertools.count()


def of_states(pairs):
    """The pairs, each of an initial state of its own."""
    return list(zip(*(apart(side) for side in zip(*pairs, strict=True)), strict=True))


def took(seconds: float | None, outcome: str = "success"):
    return episode(key(next(STATES)), outcome, simulated_s=seconds)


def test_the_ratio_is_the_geometric_mean_over_what_both_solved():
    pairs = [
        (took(2), took(4)),
        (took(4), took(2)),
        (took(1), took(8)),
        (took(9), took(30, "timeout")),
        (took(30, "timeout"), took(1)),
        (took(None), took(3)),
    ]
    found = time_ratio(of_states(pairs * 2))
    assert found.n_pairs == 6
    assert found.ratio == pytest.approx(2)
    assert found.ci95.low <= 2 <= found.ci95.high
    assert (time_ratio(pairs).ratio, time_ratio(pairs).ci95) == (pytest.approx(2), None)
    for none in ([], [(took(None), took(None))], [(took(3), took(9, "timeout"))]):
        assert time_ratio(none) is None
        assert judge_time(time_ratio(none)) is None


def test_restricted_times_pair_all_episodes_and_count_failures_as_the_limit():
    pairs = [(took(2), took(4)), (took(4), took(9, "invalid_action")), (took(20, "timeout"), took(6))]
    pairs = of_states(pairs * 2)
    found = restricted_times(pairs, {"libero_object": 20.0})
    assert found.seconds.n_pairs == 6
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
    assert restricted_times(of_states([*[unsolved] * 29, (took(5), took(5))]), {}).ci95 is not None


def test_restricted_mean_time_counts_failures():
    pairs = of_states([(took(5), took(5))] * 60 + [(took(5), took(20, "timeout"))] * 20)
    judgement = judge_time(restricted_times(pairs, {}), a="isolated", b="unified")
    assert judgement.verdict is Verdict.INFERIOR
    assert judge_time(time_ratio(pairs)).verdict is Verdict.NON_INFERIOR
    said = "unified is inferior to isolated in restricted mean time (margin 10 %): +3.75 s"
    assert said in judgement.sentence


def test_the_success_curve_counts_ties_together():
    results = [took(2), took(2), took(5), took(10, "timeout"), took(3, "invalid_action"), took(1, "error")]
    curve = success_curve(results)
    assert [(seconds, rate.percent) for seconds, rate in curve] == [(0, 0), (2, 40), (5, 60), (10, 60)]
    for (_, rate), solved in zip(curve, (0, 2, 3, 3), strict=True):
        assert rate.interval == pytest.approx(scaled(wilson_95(solved, 5), 100))
