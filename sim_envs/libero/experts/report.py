"""`python -m sim_envs.libero.experts`: plays the episodes, prints a line per task, writes the table."""

import dataclasses
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from configs.errors import UsageError
from configs.motion import parse_motion
from sim_envs.libero.assets import AssetSet, find_assets
from sim_envs.libero.bootstrap import PINNED_VERSIONS
from sim_envs.libero.experts.measure import Attempt, AttemptPlayer, attempts, summary
from sim_envs.libero.experts.policies import refuse_unknown
from sim_envs.libero.moving import require_movable
from sim_envs.libero.tasks import LiberoTask, list_tasks
from sim_envs.memory import WORLD_MB, check_memory

_SEED = 7
_MOST_ENVS = 4096


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement:
    """What to play, and where to write it.

    Attributes:
        suites: Task suites.
        task_ids: Tasks of every suite; all if empty.
        init_ids: Initial states of every task.
        policy: Name of a scripted policy.
        noise: The expert's noise, from 0 to 1.
        motion: How what is to be grasped moves, as `configs.motion.parse_motion` reads it.
        assets: The asset tree, as `find_assets` takes it.
        num_envs: Worlds that are played at once.
        output: The file that gets a JSON line per episode; none if None.
        results: The file that gets the table as JSON; none if None.
    """

    suites: tuple[str, ...]
    task_ids: tuple[int, ...]
    init_ids: tuple[int, ...]
    policy: str
    noise: float
    motion: str
    assets: str | None
    num_envs: int
    output: Path | None
    results: Path | None


def measure(asked: Measurement) -> None:
    """Play, print a line per task, and write what is asked for.

    Raises:
        UsageError: The policy, the noise, the tasks or the assets are not what they have to be.
    """
    refuse_unknown(asked.policy)
    _check_numbers(asked)
    tasks = _tasks(asked.suites, asked.task_ids)
    assets = find_assets(asked.assets)
    done: list[Attempt] = []
    motion = parse_motion(asked.motion)
    if motion is not None:
        _require_movable(tasks, asked.motion)
    player = AttemptPlayer(policy=asked.policy, assets=assets, noise=asked.noise, motion=motion)
    for attempt in attempts(player, tasks, asked.init_ids, seed=_SEED, workers=asked.num_envs):
        done.append(attempt)
        if asked.output:
            with asked.output.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(attempt.as_record()) + "\n")
        if len(done) % len(asked.init_ids) == 0:
            _print_task(tasks[len(done) // len(asked.init_ids) - 1], done[-len(asked.init_ids) :])
    _print_suites(done)
    if asked.results:
        text = json.dumps(_report(asked, assets, done), indent=1)
        asked.results.write_text(text + "\n", encoding="utf-8")


def _check_numbers(asked: Measurement) -> None:
    if not 1 <= asked.num_envs <= _MOST_ENVS:
        raise UsageError(f"--num-envs is {asked.num_envs}: give 1 to {_MOST_ENVS}")
    if not 0 <= asked.noise <= 1:
        raise UsageError(f"--expert-noise is {asked.noise:g}: give a number from 0 to 1")
    if asked.num_envs > 1:
        check_memory(asked.num_envs, option="--num-envs", each_mb=WORLD_MB)


def _tasks(suites: Sequence[str], task_ids: Sequence[int]) -> list[LiberoTask]:
    tasks = [task for suite in suites for task in list_tasks(suite)]
    chosen = [task for task in tasks if not task_ids or task.task_id in task_ids]
    if not chosen:
        raise UsageError(f"no task of {', '.join(suites)} is among --task-ids {list(task_ids)}")
    return chosen


def _require_movable(tasks: Sequence[LiberoTask], motion: str) -> None:
    for suite in dict.fromkeys(task.suite for task in tasks):
        require_movable([task for task in tasks if task.suite == suite], motion, list_tasks(suite))


def _print_task(task: LiberoTask, done: Sequence[Attempt]) -> None:
    counts = summary(done)[task.suite]
    successes, steps = f"{counts['successes']:3}/{counts['episodes']}", counts["mean_steps"]
    taken = f"{steps:5.0f} steps" if steps else "          -"
    why = "".join(f" (no skill: {reason})" for reason in counts.get("no_skill", []))
    sys.stdout.write(f"{task.suite} {task.task_id:2} {successes} {taken}  {task.language}{why}\n")
    sys.stdout.flush()


def _print_suites(done: Sequence[Attempt]) -> None:
    for suite, counts in summary(done).items():
        rate = counts["successes"] / counts["episodes"]
        sys.stdout.write(f"{suite}: {counts['successes']} of {counts['episodes']} episodes ({rate:.1%})\n")


def _report(asked: Measurement, assets: AssetSet, done: Sequence[Attempt]) -> dict[str, Any]:
    return {
        "command": shlex.join(["python", "-m", "sim_envs.libero.experts", *_portable(sys.argv[1:])]),
        "policy": asked.policy,
        "noise": asked.noise,
        "motion": asked.motion,
        "seed": _SEED,
        "init_ids": list(asked.init_ids),
        "versions": dict(PINNED_VERSIONS),
        "assets": {"name": assets.name, "digest": assets.digest},
        "suites": summary(done),
    }


def _portable(arguments: Sequence[str]) -> list[str]:
    """The arguments without paths of this machine."""
    return [Path(argument).name if Path(argument).is_absolute() else argument for argument in arguments]
