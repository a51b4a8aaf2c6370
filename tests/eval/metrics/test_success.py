"""Results are a function of the records, count no error as a failure, and read like LeRobot's."""

import dataclasses

import numpy as np
import pytest

from eval.metrics.success import summarize, summarize_progress
from eval.records.schema import MotionQuality, TextScores
from tests.eval.factory import RunBuilder, episode, key, query


def test_invalid_actions_are_failures_and_nothing_graded_is_no_rate_rather_than_zero(tmp_path):
    results = summarize(RunBuilder.at(tmp_path / "run").add_all("sitsei").path)
    for row in (results["overall"], results["per_suite"]["libero_object"], results["per_task"][0]):
        assert (row["n_episodes"], row["n_success"]) == (5, 2)
        assert (row["n_invalid_actions"], row["n_errors"]) == (2, 1)
        assert row["pc_success"] == 40.0
        low, high = row["pc_success_ci95"]
        assert 0 < low < 40 < high < 100
    assert results["per_task"][0]["metrics"]["successes"] == [True, False, False, True, False]
    overall = summarize(RunBuilder.at(tmp_path / "errors").add_all("ee").path)["overall"]
    assert (overall["n_episodes"], overall["n_errors"]) == (0, 2)
    for name in ("pc_success", "pc_success_ci95", "mean_steps", "tokens_per_s", "avg_sum_reward"):
        assert overall[name] is None
    assert overall["latency_ms"] == {}


def test_rows_add_up_over_tasks_and_suites(tmp_path):
    run = RunBuilder.at(tmp_path / "run")
    for suite, outcome in (("libero_object", "success"), ("libero_goal", "timeout")):
        for task_id in (1, 0):
            for init_id in range(task_id + 1):
                run.add(episode(key(init_id, task_id, suite), outcome))
    results = summarize(run.path)
    assert list(results["per_suite"]) == ["libero_object", "libero_goal"]
    tasks = [(row["task_group"], row["task_id"], row["n_episodes"]) for row in results["per_task"]]
    assert sorted(tasks) == [
        ("libero_goal", 0, 1),
        ("libero_goal", 1, 2),
        ("libero_object", 0, 1),
        ("libero_object", 1, 2),
    ]
    for name in ("n_episodes", "n_success", "n_invalid_actions", "n_errors", "tokens"):
        total = results["overall"][name]
        assert total == sum(row[name] for row in results["per_suite"].values())
        assert total == sum(row[name] for row in results["per_task"])
    assert {row["language"] for row in results["per_task"]} == {"do task 0", "do task 1"}


def test_results_are_the_same_in_whatever_order_episodes_ended(tmp_path):
    """As worlds beside each other and joined shares leave them."""
    scores = TextScores(texts=1, not_graded=0, oracle=0, at_request={}, on_delivery={}, staleness_s=0.0)
    episodes = [
        episode(
            key(init_id),
            simulated_s=1.0 + init_id**2,
            steps=20 + init_id,
            progress=0.1 * init_id,
            motion=MotionQuality(path_length_m=init_id**1.5),
            texts={"narration": dataclasses.replace(scores, current_s=init_id / 7)},
        )
        for init_id in range(7)
    ]
    forward, backward = RunBuilder.at(tmp_path / "forward"), RunBuilder.at(tmp_path / "backward")
    for one, other in zip(episodes, reversed(episodes), strict=True):
        forward.add(one)
        backward.add(other)
    assert summarize(forward.path) == summarize(backward.path)


def test_latency_is_over_queries_and_not_over_episodes(tmp_path):
    run = RunBuilder.at(tmp_path / "run")
    run.add(episode(key(0)), *(query(i, action=10.0, frame=20.0) for i in range(99)))
    run.add(episode(key(1)), query(0, action=1000.0, frame=2000.0))
    latency = summarize(run.path)["overall"]["latency_ms"]
    assert latency["action"]["p50"] == 10.0
    assert latency["frame"]["p95"] == 20.0
    assert 10.0 < latency["action"]["p99"] < 1000.0


def test_a_torn_last_line_and_a_retried_error_do_not_count(tmp_path):
    run = RunBuilder.at(tmp_path / "run").add_all("se")
    assert summarize(run.path)["overall"]["n_errors"] == 1
    run.add(episode(key(1), "success"))
    whole = summarize(run.path)
    with run.folder.episodes_path.open("a") as lines:
        lines.write('{"key": {"suite": "libero_ob')
    assert summarize(run.path) == whole
    assert (whole["overall"]["n_success"], whole["overall"]["n_errors"]) == (2, 0)


def test_lerobots_tools_read_the_results(tmp_path):
    """Its CI's metrics, and a merge of sharded runs."""
    run = RunBuilder.at(tmp_path / "run").add(
        episode(key(0), video="videos/libero_object/task00_ep000_success.mp4")
    )
    run.add(episode(key(1), "timeout")).add(episode(key(0, 3), "success")).add(episode(key(1, 3), "error"))
    results = summarize(run.path)
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
    assert group["video_paths"] == ["videos/libero_object/task00_ep000_success.mp4"]


def test_progress_is_a_mean_with_an_interval_and_omitted_if_it_equals_success():
    def of(shares):
        """Episodes that succeeded if all was done."""
        return [episode(key(), "success" if share == 1 else "timeout", progress=share) for share in shares]

    for same in ([], [1.0, 0.0]):
        assert summarize_progress(of(same)) == {"pc_progress": None, "pc_progress_ci95": None}
    summary = summarize_progress(of(np.linspace(0, 1, 21).tolist()))
    assert summary["pc_progress"] == pytest.approx(50)
    low, high = summary["pc_progress_ci95"]
    assert 30 < low < 45
    assert 55 < high < 70
