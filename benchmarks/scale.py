"""`python -m benchmarks.scale`: episodes per hour by the number of parallel worlds.

Plays the same LIBERO episodes in turns: one world in the policy's process, several in worker processes, and
on a local Ray cluster if Ray is installed. A model predicts the rate on more cores and a GPU.
"""

import argparse
import concurrent.futures
import importlib.util
import multiprocessing
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import record
from benchmarks.scale_run import play
from configs.exits import exit_code_of
from configs.load import load
from configs.profile import ProfileConfig
from sim_envs.libero.assets import find_assets

RESULTS = Path(__file__).parent / "results" / "scale.json"
PLOT = Path(__file__).parents[1] / "docs" / "scale.png"
SERIAL, RAY = "serial:1", "ray:2"
_MS_PER_HOUR = 3.6e6


def main() -> None:
    options = _options()
    find_assets(options.assets)
    has_ray = importlib.util.find_spec("ray") is not None and 2 in options.num_envs
    players = [SERIAL, *(f"processes:{n}" for n in options.num_envs), *([RAY] if has_ray else [])]
    turns = [{player: _played(player, options) for player in players} for _ in range(options.turns)]
    pairs = [(player, SERIAL) for player in players if player.startswith("processes")]
    pairs += [(RAY, "processes:2")] if has_ray else []
    rate = "episodes_per_hour"
    found = {player: _median([turn[player] for turn in turns]) for player in players}
    row = {
        "assets": options.assets,
        "episodes": options.episodes,
        "turns": options.turns,
        "players": found,
        "ratios": {
            f"{one} over {other}": [round(turn[one][rate] / turn[other][rate], 3) for turn in turns]
            for one, other in pairs
        },
        "model": model(found[SERIAL], cores=os.cpu_count() or 1),
    }
    record("scale", row, options.output)
    _plot(row, options.plot)


def _played(player: str, options: argparse.Namespace) -> dict[str, Any]:
    """One measurement, in its own process."""
    what = {"episodes": options.episodes, "steps": options.steps, "assets": options.assets}
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(play, player, **what).result()


def _median(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = runs[0]
    return {
        name: _median([run[name] for run in runs])
        if isinstance(value, Mapping)
        else round(statistics.median(run[name] for run in runs), 3)
        for name, value in first.items()
    }


def model(serial: Mapping[str, Any], *, cores: int) -> dict[str, Any]:
    """Predict episodes per hour of N worlds from the time per query of one world.

    A query costs world time (physics, rendering, records) and model time, both on a core if the policy is on
    the CPU. With a GPU, one core is the driver's, and model time is that of a latency profile of one robot:
    batching is assumed to save nothing.
    """
    queries_per_episode = serial["queries"] / serial["episodes_ended"]
    query_ms = _MS_PER_HOUR / serial["episodes_per_hour"] / queries_per_episode
    model_ms = query_ms * serial["shares"]["model"]
    world_ms = query_ms - model_ms
    profile = load(ProfileConfig, "h200")
    gpu_ms = profile.host.ms + profile.prefill.ms + profile.denoise.ms + 5 * profile.decode[1].ms
    hour = _MS_PER_HOUR / queries_per_episode

    def on_cpu(worlds: int) -> float:
        return hour * min(worlds, cores) / query_ms

    def with_gpu(worlds: int, machine_cores: int) -> float:
        return hour * min(min(worlds, machine_cores - 1) / (world_ms + gpu_ms), 1 / gpu_ms)

    return {
        "world_ms_per_query": round(world_ms, 2),
        "model_ms_per_query": round(model_ms, 2),
        "queries_per_episode": round(queries_per_episode, 2),
        "cores": cores,
        "episodes_per_hour_here": {n: round(on_cpu(n)) for n in (1, 2, 4)},
        "gpu_ms_per_query": round(gpu_ms, 2),
        "episodes_per_hour_on_16_cores_and_a_gpu": {n: round(with_gpu(n, 16)) for n in (1, 4, 8, 15, 30)},
        "most_that_the_gpu_serves": round(hour / gpu_ms),
    }


def _plot(row: Mapping[str, Any], path: Path) -> None:
    """Plot episodes per hour over N, measured and predicted."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    predicted = row["model"]["episodes_per_hour_here"]
    axes.plot(list(map(int, predicted)), list(predicted.values()), ":", color="grey", label="by the parts")
    for name, style in (("serial", "o"), ("processes", "o"), ("ray", "s")):
        found = {player: each for player, each in row["players"].items() if player.partition(":")[0] == name}
        worlds = [int(player.partition(":")[2] or 1) for player in found]
        rates = [each["episodes_per_hour"] for each in found.values()]
        axes.plot(worlds, rates, style, label=name)
    axes.set(xlabel="worlds at once", ylabel="episodes per hour", ylim=(0, None), xticks=[1, 2, 4])
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=144)
    plt.close(figure)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--num-envs", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--episodes", type=int, default=24, help="a multiple of every --num-envs")
    parser.add_argument("--steps", type=int, default=100, help="control steps of an episode")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--assets", default="standins", help="folder of LIBERO's asset tree, or standins")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--plot", type=Path, default=PLOT)
    options = parser.parse_args()
    if min(options.num_envs) < 1 or any(options.episodes % n for n in options.num_envs):
        parser.error("--episodes must be a multiple of every --num-envs")
    if options.episodes <= max(options.num_envs) or options.turns < 1:
        parser.error("give more --episodes than --num-envs, and 1 turn or more")
    return options


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
