"""The content of `results.json`, with LeRobot's names where it has some.

LeRobot's `eval_info.json` has `overall`, `per_group` and `per_task`; its tools read `overall.pc_success`,
`overall.n_episodes` and `per_task[i].metrics.successes`, which have the same names here.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eval.metrics.rows import Row, RunRows

_LEFT_OUT = ("prompt_age_steps", "successes", "videos", "wall_s")
_FIELDS = [field.name for field in dataclasses.fields(Row) if field.name not in _LEFT_OUT]


def results_of(rows: RunRows) -> dict[str, Any]:
    """The content of a run's `results.json`.

    Stages without measurements are absent from `latency_ms`. A task's `language` is the benchmark's
    instruction, `wordings` those given to the policy.
    """
    run, overall = rows.records.identity, rows.overall
    return {
        "clock": str(run.clock),
        "clock_device": run.clock_device,
        "while_waiting": run.while_waiting,
        "overlap": run.overlap,
        "overall": {**fields_of(overall), **lerobot_group(overall), **eval_times(overall)},
        "per_suite": {suite: fields_of(row) for suite, row in rows.suites.items()},
        "per_seed": [{"seed": seed, **fields_of(row)} for seed, row in rows.seeds.items()],
        "per_group": {suite: lerobot_group(row) for suite, row in rows.suites.items()},
        **(
            {"per_kind": {kind: fields_of(row) for kinds in rows.kinds for kind, row in kinds.items()}}
            if rows.kinds
            else {}
        ),
        "per_task": [
            {
                "task_group": task.suite,
                "task_id": task.task_id,
                "task": task.task,
                "language": task.instruction,
                "wordings": task.wordings,
                **fields_of(task),
                "metrics": lerobot_metrics(task),
            }
            for task in rows.tasks
        ],
    }


def fields_of(row: Row, names: Sequence[str] = _FIELDS) -> dict[str, Any]:
    """Fields of a row as JSON types, by default those in `overall`, `per_suite` and `per_task`."""
    fields = dataclasses.asdict(row)
    return {name: fields[name] for name in names}


def lerobot_group(row: Row, folder: Path = Path()) -> dict[str, Any]:
    """LeRobot's fields of a group, whose reward is 1 at the step that solves the task."""
    mean_reward = row.n_success / row.n_episodes if row.n_episodes else None
    return {
        "avg_sum_reward": mean_reward,
        "avg_max_reward": mean_reward,
        "pc_success": row.pc_success,
        "n_episodes": row.n_episodes,
        "video_paths": [str(folder / video) for video in row.videos],
    }


def lerobot_metrics(row: Row, folder: Path = Path()) -> dict[str, Any]:
    """LeRobot's fields of a task; paths of videos are from the run's folder, or of it."""
    rewards = [float(success) for success in row.successes]
    return {
        "successes": row.successes,
        "sum_rewards": rewards,
        "max_rewards": rewards,
        "video_paths": [str(folder / video) for video in row.videos],
    }


def eval_times(row: Row) -> dict[str, float | None]:
    """LeRobot's fields of wall time, seconds; None if it is not known."""
    total = row.wall_s
    return {"eval_s": total, "eval_ep_s": total and total / (row.n_episodes + row.n_errors)}
