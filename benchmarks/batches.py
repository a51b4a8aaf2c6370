"""`python -m benchmarks.batches`: a PyTorch policy of 21 million parameters, copied for each world or not.

Plays the same episodes of libero_object in turns, with 1, 2 and 4 worlds; each measurement is a process of
its own. Records episodes per hour, the memory of the policy's process, and the shares of the worlds' time.
"""

import resource
import statistics
import tempfile
from pathlib import Path
from typing import Any

from cyclopts import App

from benchmarks.record import record
from benchmarks.scale import in_turns, play
from configs.cli import run_app
from configs.schema import ExecutionConfig
from eval.records.query_logs import read_queries

POLICIES, NUM_ENVS = ("Copied", "Batched"), (1, 2, 4)

app = App(name="python -m benchmarks.batches")


@app.default
def main(
    *,
    suite: str = "libero_object",
    assets: str = "auto",
    episodes: int = 12,
    steps: int = 100,
    turns: int = 2,
    num_envs: tuple[int, ...] = NUM_ENVS,
    output: Path = Path("benchmarks/results/batches.json"),
) -> None:
    """Play in every way, in turns, and write rates, memory and shares.

    Args:
        suite: The suite whose first task is played.
        assets: Its assets.
        episodes: Episodes of a measurement, more than the largest number of worlds.
        steps: Steps of an episode.
        turns: Measurements of each.
        num_envs: Numbers of worlds.
        output: JSON file.
    """
    ways = [(policy, worlds) for worlds in num_envs for policy in POLICIES]
    what = suite, assets, episodes, steps
    measured = in_turns(
        {f"{policy}:{worlds}": (measure, policy, worlds, *what) for policy, worlds in ways}, turns
    )
    medians = {
        way: {name: round(statistics.median(each[name] for each in turns), 3) for name in turns[0]}
        for way, turns in measured.items()
    }
    played_what = {"suite": suite, "assets": assets, "episodes": episodes, "steps": steps, "turns": turns}
    record({**played_what, "medians": medians, "measured": measured}, output)


def measure(policy: str, worlds: int, suite: str, assets: str, episodes: int, steps: int) -> dict[str, float]:
    """Play one run.

    Shares are of the worlds' time in the episodes after all worlds are open: physics, rendering, the model's
    own time, and the rest, which is waiting for the model (another batch, or this one to fill), resets and
    records. The cores in use are the CPU seconds of all processes over the seconds: software rendering and
    PyTorch use several with one world.
    """
    what: Any = {"suite": suite, "episodes": episodes, "steps": steps, "assets": assets, "mode": "actions"}
    with tempfile.TemporaryDirectory() as folder:
        execution = ExecutionConfig(num_envs=worlds)
        run, began, ended = play(folder, execution, policy=f"benchmarks.batch_policy:{policy}", **what)
        last, after = ended[-1], [end.result for end in ended]
        queries = [query for result in after for query in read_queries(run.folder, result.key)]
    spent = {name: sum(query.timings_ms[key] for query in queries) / 1e3 for name, key in _STAGES.items()}
    total = sum(result.wall_s for result in after)
    spent["rest"] = total - sum(spent.values())
    seconds = last.at_s - began.at_s
    return {
        "episodes_per_hour": round(3600 * len(after) / seconds, 1),
        "memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1),
        "cores_in_use": round((last.cpu_s - began.cpu_s) / seconds, 2),
        **{f"share_{name}": round(each / total, 3) for name, each in spent.items()},
    }


_STAGES = {"physics": "advance", "rendering": "observe", "model": "action"}

if __name__ == "__main__":
    run_app(app)
