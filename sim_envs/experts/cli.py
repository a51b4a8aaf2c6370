"""The options of `python -m sim_envs.experts`, and what it prints and writes."""

import argparse
import json
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from configs.errors import UsageError
from sim_envs.experts.measure import Attempt, attempts, summary
from sim_envs.experts.policies import SCRIPTED_POLICIES
from sim_envs.libero.assets import AssetSet, find_assets
from sim_envs.libero.bootstrap import PINNED_VERSIONS
from sim_envs.libero.tasks import Task, list_tasks

_SEED = 7


def measure(arguments: Sequence[str] | None = None) -> None:
    """Parse, play, print a line per task, and write what is asked for.

    Raises:
        UsageError: The arguments are not usable.
    """
    options = _parser().parse_args(arguments)
    assets = find_assets(options.assets)
    tasks = _tasks(options.suite, options.task_ids)
    done: list[Attempt] = []
    episodes = attempts(
        options.policy, tasks, options.init_ids, seed=_SEED, assets=assets, noise=options.expert_noise
    )
    for attempt in episodes:
        done.append(attempt)
        if options.output:
            with options.output.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(attempt.as_record()) + "\n")
        if len(done) % len(options.init_ids) == 0:
            _print_task(tasks[len(done) // len(options.init_ids) - 1], done[-len(options.init_ids) :])
    _print_suites(done)
    if options.results:
        text = json.dumps(_report(options, assets, done), indent=1)
        options.results.write_text(text + "\n", encoding="utf-8")


def _tasks(suites: Sequence[str], task_ids: Sequence[int]) -> list[Task]:
    tasks = [task for suite in suites for task in list_tasks(suite)]
    chosen = [task for task in tasks if not task_ids or task.task_id in task_ids]
    if not chosen:
        raise UsageError(f"no task of {', '.join(suites)} is among --task-ids {list(task_ids)}")
    return chosen


def _print_task(task: Task, done: Sequence[Attempt]) -> None:
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


def _report(options: argparse.Namespace, assets: AssetSet, done: Sequence[Attempt]) -> dict[str, Any]:
    return {
        "command": shlex.join(["python", "-m", "sim_envs.experts", *_portable(sys.argv[1:])]),
        "policy": options.policy,
        "noise": options.expert_noise,
        "seed": _SEED,
        "init_ids": list(options.init_ids),
        "versions": dict(PINNED_VERSIONS),
        "assets": {"name": assets.name, "digest": assets.digest},
        "suites": summary(done),
    }


def _portable(arguments: Sequence[str]) -> list[str]:
    """The arguments without paths of this machine."""
    return [Path(argument).name if Path(argument).is_absolute() else argument for argument in arguments]


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m sim_envs.experts", description=__doc__)
    parser.add_argument("--suite", nargs="+", default=["libero_object", "libero_spatial"])
    parser.add_argument("--task-ids", type=_ids, default=(), metavar="0-9", help="default: all")
    parser.add_argument("--init-ids", type=_ids, default=tuple(range(10)), metavar="0-9")
    parser.add_argument("--policy", choices=list(SCRIPTED_POLICIES), default="expert")
    parser.add_argument(
        "--expert-noise",
        type=float,
        default=0.0,
        metavar="0-1",
        help="how much it varies and errs",
    )
    parser.add_argument("--assets", help="folder of LIBERO's asset tree, `standins`, `download` or `auto`")
    parser.add_argument("--output", type=Path, help="append one JSON line per episode to this file")
    parser.add_argument("--results", type=Path, help="write the table as JSON to this file")
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See --help.")


def _ids(text: str) -> tuple[int, ...]:
    """`0-3,7` as 0, 1, 2, 3, 7."""
    ids: list[int] = []
    for piece in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", piece)
        if match is None:
            raise argparse.ArgumentTypeError(f"{piece!r} is neither a number (7) nor a range (0-9)")
        ids += range(int(match[1]), int(match[2] or match[1]) + 1)
    if not ids:
        raise argparse.ArgumentTypeError(f"{text!r} names nothing")
    return tuple(dict.fromkeys(ids))
