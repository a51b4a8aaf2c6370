"""`python -m benchmarks.scale`: episodes per hour by the number of parallel worlds.

Plays the same LIBERO episodes in turns: one world in the policy's process, several in worker processes, and
on a local Ray cluster if Ray is installed.
"""

import concurrent.futures
import importlib.util
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import matplotlib as mpl
import psutil
from cyclopts import App
from typing_extensions import override

from benchmarks.record import record
from configs.cli import run_app
from configs.errors import check
from configs.schema import ExecutionConfig, RunConfig
from contracts.episode import EpisodeResult
from eval.monitors.console import EvaluationConsole
from eval.records.run_folders import Run, new_run
from eval.report.figures import STYLE, new_figure
from eval.rollout.evaluation import run_evaluation
from eval.rollout.executors.choice import batch_size_for, choose_executor
from eval.rollout.prepare import prepare

NUM_ENVS, EPISODES, STEPS, TURNS = (1, 2, 4), 24, 100, 2
"""Numbers of worlds; episodes of a measurement, a multiple of them; their steps; measurements of each."""

app = App(name="python -m benchmarks.scale")


@app.default
def main(
    *,
    assets: str = "standins",
    output: Path = Path("benchmarks/results/scale.json"),
    plot: Path = Path("docs/scale.png"),
) -> None:
    """Play in every way, in turns, and write the rates and their figure.

    Args:
        assets: Folder of LIBERO's asset tree, or standins.
        output: JSON file.
        plot: The figure.
    """
    has_ray = importlib.util.find_spec("ray") is not None
    players = ["serial:1", *(f"processes:{n}" for n in NUM_ENVS), *(["ray:2"] if has_ray else [])]
    rates = in_turns({player: (episodes_per_hour, player, assets) for player in players}, TURNS)
    row = {
        "assets": assets,
        "episodes": EPISODES,
        "turns": TURNS,
        "episodes_per_hour": {player: statistics.median(each) for player, each in rates.items()},
        "ratios": {
            f"{player} over serial:1": [round(a / b, 3) for a, b in zip(each, rates["serial:1"], strict=True)]
            for player, each in rates.items()
        },
    }
    record(row, output)
    draw(row["episodes_per_hour"], plot)


def in_turns(calls: Mapping[str, tuple[Any, ...]], turns: int) -> dict[str, list[Any]]:
    """Call functions, given with their arguments, in turns, each in a new process; returns their results."""
    results: dict[str, list[Any]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                results[name].append(process.submit(*call).result())
    return results


class Ended(NamedTuple):
    """An episode that has ended."""

    at_s: float  # wall time
    cpu_s: float  # CPU time of this process and its children until then
    result: EpisodeResult


class Stopwatch(EvaluationConsole):
    """Notes when the episodes of this process's only run end."""

    ended: ClassVar[list[Ended]] = []

    @override
    def episode(self, variant: int, result: EpisodeResult) -> None:
        super().episode(variant, result)
        assert not result.error, result.error
        this = psutil.Process()
        processes = (this, *this.children(recursive=True))
        cpu_s = sum(sum(process.cpu_times()[:2]) for process in processes)
        self.ended.append(Ended(time.perf_counter(), cpu_s, result))


def play(
    folder: str, execution: ExecutionConfig, *, suite: str, episodes: int, steps: int, **options: Any
) -> tuple[Run, Ended, list[Ended]]:
    """Play a suite's first task; returns the run, the end at which all worlds are open, and later ends."""
    worlds = execution.num_envs
    config = RunConfig(
        suites=(suite,),
        task_ids=(0,),
        init_ids=tuple(range(episodes)),
        max_steps=steps,
        batch_size=batch_size_for(worlds),
        video="none",
        **options,
    )
    run = new_run(Path(folder), config)
    run_evaluation(prepare([run], executor=choose_executor(execution)), monitor=Stopwatch)
    return run, Stopwatch.ended[worlds - 1], Stopwatch.ended[worlds:]


def episodes_per_hour(player: str, assets: str) -> float:
    """The rate of one run by `serial:1`, `processes:N` or `ray:N`."""
    executor, _, worlds = player.partition(":")
    address = "local" if executor == "ray" else None
    chosen = {"num_envs": int(worlds), "executor": executor, "ray_address": address}
    execution = check(ExecutionConfig, chosen, source="the player")
    with tempfile.TemporaryDirectory() as folder:
        what = {"suite": "libero_object", "episodes": EPISODES, "steps": STEPS}
        _, began, after = play(folder, execution, **what, assets=assets)
    steps_per_s = sum(end.result.steps for end in after) / (after[-1].at_s - began.at_s)
    return round(3600 * steps_per_s / statistics.mean(end.result.steps for end in Stopwatch.ended), 1)


def draw(rates: Mapping[str, float], path: Path) -> None:
    """Plot episodes per hour over the number of worlds, beside those of one world times the cores in use."""
    with mpl.rc_context(STYLE):
        figure = new_figure(6, 3.6)
        axes: Any = figure.subplots()
        ideal = [min(n, os.cpu_count() or 1) * rates["serial:1"] for n in NUM_ENVS]
        axes.plot(NUM_ENVS, ideal, ":", color="grey", label="one world × cores in use")
        for name, style in (("serial", "o"), ("processes", "o"), ("ray", "s")):
            found = {int(each.split(":")[1]): rates[each] for each in rates if each.startswith(name)}
            axes.plot(list(found), list(found.values()), style, label=name)
        axes.set(xlabel="worlds at once", ylabel="episodes per hour", ylim=(0, None), xticks=NUM_ENVS)
        axes.legend(frameon=False)
        figure.savefig(path, dpi=144)


if __name__ == "__main__":
    run_app(app)
