"""Builds `results.json`: success rates with intervals, latencies, and the fields of LeRobot.

LeRobot's `eval_info.json` has `overall`, `per_group` and `per_task`; its tools read `overall.pc_success`,
`overall.n_episodes` and `per_task[i].metrics.successes`, which have the same names here. One thing differs:
errors of the program are not failures of the policy and count only in `n_errors` and wall time. Invalid
actions are failures: they count in `n_invalid_actions` and `n_episodes`. A task's `language` is the
benchmark's instruction, `wordings` those given to the policy.
"""

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from contracts.episode import EpisodeKey, EpisodeResult, Outcome, graded_only, solved
from contracts.query import QueryRecord
from eval.metrics.language import mean_staleness_ms, summarize_language
from eval.metrics.motion_quality import summarize_motion
from eval.metrics.simulated_time import summarize_time
from eval.metrics.statistics import bounds, mean_95, quantiles, wilson_95
from eval.records.query_logs import read_queries
from eval.records.reader import read_episodes, read_identity
from eval.records.schema import RunFolder

LATENCY_STAGES = ("action", "frame")
"""Until the actions were computed, and until the query was complete."""

Results = Mapping[str, Any]
"""The content of a run's `results.json`."""

Timings = Mapping[EpisodeKey, Mapping[str, Sequence[float]]]


def rate_of(episodes: Sequence[EpisodeResult]) -> dict[str, Any] | None:
    """Hits, their total and the success rate of graded episodes with its 95 % Wilson interval, percent.

    None without graded episodes.
    """
    graded = graded_only(episodes)
    hits, of = sum(map(solved, graded)), len(graded)
    ends = bounds(wilson_95(hits, of), 100)
    if ends is None:
        return None
    return {"hits": hits, "of": of, "percent": 100 * hits / of, "low": ends[0], "high": ends[1]}


def summarize(run: Path) -> dict[str, Any]:
    """The content of `results.json`, from the run's files alone.

    Latency quantiles are wall times over all queries; stages without measurements are absent. `charged_ms` is
    the mean simulated latency until the actions and until the next query can start. `control_steps` has
    median, least and most of `a`, control steps until a query's actions arrive, and of `b`, control steps
    until the next query. Both are None on clock `paused`. A record that cannot be read is a UsageError.
    """
    folder = RunFolder(run)
    identity = read_identity(folder)
    limits = identity.limits_s
    recorded = read_episodes(folder)
    episodes = [episode for _, episode in sorted(recorded.items())]  # intervals depend on their order
    timings = {episode.key: timings_of(read_queries(folder, episode.key)) for episode in episodes}
    seconds = sum(episode.wall_s for episode in episodes)
    by_suite = {suite: list(some) for suite, some in itertools.groupby(episodes, lambda each: each.key.suite)}
    suites = {suite: by_suite[suite] for suite in dict.fromkeys(key.suite for key in recorded)}
    tasks = itertools.groupby(episodes, lambda each: (each.key.suite, each.key.task_id))
    return {
        "clock": identity.clock,
        "clock_device": identity.clock_device,
        "while_waiting": identity.while_waiting,
        "overlap": identity.overlap,
        "overall": {
            **aggregate(episodes, timings, limits),
            **_lerobot(episodes),
            "eval_s": seconds,
            "eval_ep_s": seconds / max(1, len(episodes)),
        },
        "per_suite": {suite: aggregate(members, timings, limits) for suite, members in suites.items()},
        "per_group": {suite: _lerobot(members) for suite, members in suites.items()},
        "per_task": [_task(list(members), timings, limits) for _, members in tasks],
    }


def aggregate(
    episodes: Sequence[EpisodeResult], timings: Timings, limits_s: Mapping[str, float]
) -> dict[str, Any]:
    """One row of a table; all fields but `n_errors` are over graded episodes.

    `limits_s` is each suite's step limit in simulated seconds, as far as it is known.
    """
    graded, rate = graded_only(episodes), rate_of(episodes)
    policy_s = sum(episode.policy_s for episode in graded)
    tokens = sum(episode.tokens for episode in graded)
    compiles = [e.compiles_after_warm_up for e in graded if e.compiles_after_warm_up is not None]

    def pooled(name: str) -> list[float]:
        return [value for episode in graded for value in timings[episode.key].get(name, ())]

    latency_ms = {stage: summary for stage in LATENCY_STAGES if (summary := quantiles(pooled(stage)))}
    charged = {
        until: statistics.fmean(ms) for until in ("actions", "busy") if (ms := pooled(f"charged_{until}"))
    }
    control_steps = {
        name: {"median": statistics.median(steps), "least": min(steps), "most": max(steps)}
        for name in ("a", "b")
        if (steps := pooled(name))
    }
    return {
        "n_episodes": len(graded),
        "n_success": sum(map(solved, graded)),
        "n_invalid_actions": sum(episode.outcome is Outcome.INVALID_ACTION for episode in graded),
        "n_errors": len(episodes) - len(graded),
        "n_without_truth": sum(episode.truth_error is not None for episode in graded),
        "pc_success": rate and rate["percent"],
        "pc_success_ci95": rate and [rate["low"], rate["high"]],
        **summarize_progress(graded),
        "mean_steps": statistics.fmean(episode.steps for episode in graded) if graded else None,
        **summarize_time(graded, limits_s),
        "latency_ms": latency_ms,
        "charged_ms": charged or None,
        "control_steps": control_steps or None,
        "tokens": tokens,
        "compiles_after_warm_up": max(compiles, default=None),
        "policy_s": policy_s,
        "tokens_per_s": tokens / policy_s if policy_s > 0 else None,
        "staleness_ms": mean_staleness_ms(graded),
        "texts": summarize_language(graded),
        "motion": summarize_motion(graded),
    }


def timings_of(queries: Iterable[QueryRecord]) -> dict[str, list[float]]:
    """The latencies of an episode that `aggregate` summarizes, by stage, milliseconds."""
    timings: defaultdict[str, list[float]] = defaultdict(list)
    for query in queries:
        for stage in LATENCY_STAGES:
            if stage in query.timings_ms:
                timings[stage].append(query.timings_ms[stage])
        if query.latency is not None:
            timings["charged_actions"].append(query.latency.actions_ms)
            timings["charged_busy"].append(query.latency.busy_ms)
            timings["a"].append(query.actions_step - query.step)
            timings["b"].append(query.steps)
    timings["b"] = timings["b"][:-1]  # the end of the episode cuts the last one
    return dict(timings)


def _task(
    episodes: Sequence[EpisodeResult], timings: Timings, limits_s: Mapping[str, float]
) -> dict[str, Any]:
    first = episodes[0]
    graded = graded_only(episodes)
    # As LeRobot counts rewards: 1 at the step that solves the task.
    rewards = [float(solved(episode)) for episode in graded]
    return {
        "task_group": first.key.suite,
        "task_id": first.key.task_id,
        "task": first.task,
        "language": first.instruction,
        "wordings": list(dict.fromkeys(episode.language for episode in episodes)),
        **aggregate(episodes, timings, limits_s),
        "metrics": {
            "successes": [solved(episode) for episode in graded],
            "sum_rewards": rewards,
            "max_rewards": rewards,
            "video_paths": _videos(graded),
        },
    }


def _lerobot(episodes: Sequence[EpisodeResult]) -> dict[str, Any]:
    """The fields of a group in LeRobot's format."""
    graded, rate = graded_only(episodes), rate_of(episodes)
    mean_reward = rate and rate["hits"] / rate["of"]
    return {
        "avg_sum_reward": mean_reward,
        "avg_max_reward": mean_reward,
        "pc_success": rate and rate["percent"],
        "n_episodes": len(graded),
        "video_paths": _videos(graded),
    }


def _videos(episodes: Sequence[EpisodeResult]) -> list[str]:
    return [episode.video for episode in episodes if episode.video is not None]


def summarize_progress(episodes: Sequence[EpisodeResult]) -> dict[str, Any]:
    """Mean progress of graded episodes, percent, with a bootstrap interval over episodes.

    Both are None if progress is not recorded for all episodes; the interval also if all values are equal.
    """
    shares = [episode.progress for episode in episodes if episode.progress is not None]
    if not shares or len(shares) < len(episodes):
        return {"pc_progress": None, "pc_progress_ci95": None}
    return {"pc_progress": 100 * float(np.mean(shares)), "pc_progress_ci95": bounds(mean_95(shares), 100)}
