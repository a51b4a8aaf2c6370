"""A run's results in the formats of other tools, and several runs' in LaTeX."""

import dataclasses
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from configs.assets import badged
from configs.console import visible_text
from contracts.clock import PAUSED
from contracts.episode import EpisodeResult, graded_only, solved
from contracts.errors import UsageError, pluralize
from eval.metrics.noninferiority import ERROR_BUDGET, exceeds
from eval.metrics.results_file import eval_times, lerobot_group, lerobot_metrics
from eval.metrics.rows import Row, RunRows
from eval.records.reader import RunIdentity, RunRecords
from eval.records.schema import RunFolder
from eval.report.leaderboard import leaderboard_latex, read_leaderboard
from eval.report.table import to_csv

_RATES = ("n_episodes", "n_success", "n_errors", "pc_success", "pc_success_ci95")
_COLUMNS = (
    *("task", "language", "outcome", "steps", "queries", "simulated_s", "idle_steps"),
    *("progress", "tokens", "policy_s", "wall_s", "error"),
)
"""Fields of an episode in CSV, after those of its key."""


def lerobot(folder: RunFolder) -> str:
    """The `eval_info.json` of `lerobot-eval`, with counts and 95 % Wilson intervals (LeRobot #4628)."""
    run, rows = _read_rates(folder)

    def rates(row: Row) -> dict[str, Any]:
        return {name: getattr(row, name) for name in _RATES}

    return _json(
        {
            "per_task": [
                {
                    "task_group": badged(task.suite, run.assets.name),
                    "task_id": task.task_id,
                    "metrics": lerobot_metrics(task, folder.path),
                    **rates(task),
                }
                for task in rows.tasks
            ],
            "per_group": {
                badged(suite, run.assets.name): {**lerobot_group(row, folder.path), **rates(row)}
                for suite, row in rows.suites.items()
            },
            "overall": {
                **lerobot_group(rows.overall, folder.path),
                **rates(rows.overall),
                **eval_times(rows.overall),
            },
        }
    )


def vla_eval(folder: RunFolder) -> str:
    """The aggregate JSON of vla-evaluation-harness 0.8, in which errors count as failures."""
    run, episodes = _read(RunRecords(folder))
    manifest = folder.read_manifest()
    config = manifest.get("config", {})
    tasks = defaultdict[tuple[str, int], list[EpisodeResult]](list)
    for episode in sorted(episodes, key=lambda episode: episode.key):
        tasks[episode.key.suite, episode.key.task_id].append(episode)
    names = {task: f"{task[0]}/{members[0].task}" for task, members in tasks.items()}
    uses = Counter(names.values())
    names = {task: name if uses[name] == 1 else f"{name} ({task[1]})" for task, name in names.items()}
    return _json(
        {
            "benchmark": badged(", ".join(sorted({each.key.suite for each in episodes})), run.assets.name),
            "mode": "sync" if run.clock == PAUSED else "live",
            "harness_version": f"oxygen-eval {manifest.get('git', {}).get('commit') or 'of unknown commit'}",
            "created_at": manifest.get("finished"),
            "tasks": [_vla_eval_task(names[task], members) for task, members in tasks.items()],
            "config": config,
            "seed": seeds[0] if len(seeds := config.get("seeds", ())) == 1 else None,
            "metric_keys": {"success": "mean"},
            "mean_success": _mean_success(episodes),
            "num_episodes_total": len(episodes),
            "num_errors": _n_errors(episodes),
        }
    )


def _vla_eval_task(name: str, episodes: Sequence[EpisodeResult]) -> dict[str, Any]:
    def failure(episode: EpisodeResult) -> dict[str, Any]:
        told = {"failure_reason": episode.outcome, "failure_detail": episode.error}
        return told if episode.outcome.has_traceback else {}

    known = [episode.known_steps for episode in episodes if episode.known_steps is not None]
    return {
        "task": name,
        "episodes": [
            {
                "episode_id": number,
                "metrics": {"success": solved(episode)},
                "steps": episode.known_steps,
                "elapsed_sec": episode.wall_s or None,
                "suite": episode.key.suite,
                "task_id": episode.key.task_id,
                "init_id": episode.key.init_id,
                "seed": episode.key.seed,
                **failure(episode),
            }
            for number, episode in enumerate(episodes)
        ],
        "num_episodes": len(episodes),
        "avg_steps": sum(known) / len(known) if len(known) == len(episodes) else None,
        **({"num_errors": count} if (count := _n_errors(episodes)) else {}),
        "mean_success": _mean_success(episodes),
    }


def _n_errors(episodes: Sequence[EpisodeResult]) -> int:
    return sum(episode.outcome.has_traceback for episode in episodes)


def _mean_success(episodes: Sequence[EpisodeResult]) -> float:
    return round(sum(map(solved, episodes)) / len(episodes), 4)


def episodes_csv(folder: RunFolder) -> str:
    """CSV with a line per episode; unknown values are empty.

    There are columns of tokens if a text was requested, of idle steps on clocks other than `paused`, and of
    queries and their time if the run was played here.
    """
    run, episodes = _read(RunRecords(folder))
    left_out = set() if any(episode.requests.requested for episode in episodes) else {"tokens"}
    left_out |= {"idle_steps"} if run.clock == PAUSED else set()
    left_out |= {"queries", "policy_s"} if run.imported else set()
    columns = [name for name in _COLUMNS if name not in left_out]
    assets = {"assets": badged(run.assets.name, run.assets.name)}
    return to_csv(
        [
            dataclasses.asdict(episode.key)
            | {name: getattr(episode, name) for name in columns}
            | {"steps": episode.known_steps, "wall_s": episode.wall_s or None}
            | assets
            for episode in episodes
        ]
    )


def latex(*folders: RunFolder, columns: str | None = None) -> str:
    """The leaderboard of runs in LaTeX, with columns named `a,b` or those of a paper."""
    for folder in folders:
        _read_rates(folder)
    board = read_leaderboard([folder.path for folder in folders]).showing(columns)
    left_out = [f"% not ranked: {visible_text(each['reason'])}" for each in board.unranked]
    return "\n".join([*left_out, leaderboard_latex(board)])


def model_card(folder: RunFolder) -> str:
    """The front matter of a Hugging Face model card: `model-index` with a result per suite."""
    from huggingface_hub import EvalResult, ModelCardData

    run, rows = _read_rates(folder)
    protocol = {"mode": run.mode, "clock": str(run.clock), "assets": visible_text(str(run.assets))}
    found = [
        EvalResult(
            task_type="robotics",
            task_name="Closed-loop evaluation in simulation",
            dataset_type=suite,
            dataset_name=badged(suite, run.assets.name),
            dataset_args={**protocol, "protocol": run.suite_hashes.get(suite, run.protocol_hash)},
            metric_type="success_rate",
            metric_name="success rate (%)",
            metric_value=round(row.pc_success, 2),
            metric_args={
                "n_episodes": row.n_episodes,
                "wilson_ci95": [round(bound, 2) for bound in row.pc_success_ci95],
            },
        )
        for suite, row in rows.suites.items()
        if row.pc_success is not None and row.pc_success_ci95 is not None
    ]
    card = ModelCardData(model_name=visible_text(run.policy), pipeline_tag="robotics", eval_results=found)
    return f"---\n{card.to_yaml()}\n---\n"


FORMATS: Mapping[str, Callable[[RunFolder], str]] = {
    "lerobot": lerobot,
    "vla-eval": vla_eval,
    "csv": episodes_csv,
    "latex": latex,
    "model-card": model_card,
}
"""Format to the function that writes it. All raise UsageError for a run that is damaged or incomplete; those
that have no place for errors also for a run with more errors than the budget."""


def _read(records: RunRecords) -> tuple[RunIdentity, Sequence[EpisodeResult]]:
    run, episodes = records.identity, list(records.episodes.values())
    if run.status != "complete" or not episodes:
        raise UsageError(
            f"{records.folder.path} is {run.status} with {len(episodes)} of "
            f"{pluralize(run.n_planned, 'episode')}; complete it with --resume"
        )
    return run, episodes


def _read_rates(folder: RunFolder) -> tuple[RunIdentity, RunRows]:
    records = RunRecords(folder)
    run, episodes = _read(records)
    errors = len(episodes) - len(graded_only(episodes))
    if exceeds(errors, len(episodes)):
        raise UsageError(
            f"{folder.path}: {errors} of {pluralize(len(episodes), 'episode')} ended in an error, more than "
            f"{ERROR_BUDGET:g} %; run it again, or export csv or vla-eval, which list them"
        )
    return run, RunRows(records)


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"
