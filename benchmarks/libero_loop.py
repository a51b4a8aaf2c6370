"""`python -m benchmarks.libero_loop`: our LIBERO loop against the usual one, same episode, same images.

The usual loop steps LIBERO's `OffScreenRenderEnv`, which renders both cameras at every control step, and uses
the images of every fifth. Ours renders at queries only. Both run in this process, chunk by chunk in turns,
and at every query the images and states of both must be equal, byte by byte. Also gives the ratios of a
control step without rendering, and of rendering one observation.

On one core: `taskset -c 0 python -m benchmarks.libero_loop`.
"""

import argparse
import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.record import record
from configs.exits import exit_code_of
from eval.bench.ratios import paired_ratio
from sim_envs.libero.assets import AssetSet, find_assets
from sim_envs.libero.bootstrap import load_libero, use_assets
from sim_envs.libero.conventions import CAMERAS
from sim_envs.libero.sim import SETTLE_ACTION, LiberoSim
from sim_envs.libero.tasks import LiberoTask, get_init_state, get_task

RESULTS = Path(__file__).parent / "results" / "libero_loop.json"
SEED, SETTLE_STEPS, CAMERA_SIZE = 7, 10, 256


def main() -> None:
    options = _options()
    task = get_task(options.suite, options.task_id)
    assets = find_assets(options.assets)
    actions = _actions(options.steps, options.replan_steps)
    with LiberoSim(task, assets=assets, camera_size=CAMERA_SIZE) as sim, usual_env(task, assets) as usual:
        seconds = _time_resets(sim, usual, task)
        rows = _race(sim, usual, actions)
    loops = {
        "usual loop": sum(row["usual loop"] for row in rows),
        "ours": sum(row["our steps"] + row["our pictures"] for row in rows),
    }
    result = {
        "episode": f"{task.suite}.{task.task_id}.0.{SEED}",
        "control_steps": options.steps,
        "replan_steps": options.replan_steps,
        "camera_size": CAMERA_SIZE,
        "seconds": {name: round(value, 3) for name, value in (seconds | loops).items()},
        "speedup": round(loops["usual loop"] / loops["ours"], 2),
        "speedup_of_reset": round(seconds["usual reset"] / seconds["our reset"], 2),
        "control_step": _compared(rows, "usual steps", "our steps", each=options.replan_steps),
        "pictures": _compared(rows, "usual pictures", "our pictures", each=1),
        "pictures_and_states_equal_at_every_query": True,
        "assets": {"name": assets.name, "digest": assets.digest},
        "renderer": os.environ["MUJOCO_GL"],
    }
    record("libero_loop", result, options.output)


def _time_resets(sim: LiberoSim, usual: Any, task: LiberoTask) -> dict[str, float]:
    """Reset both to the same state; returns the seconds of each."""
    seconds = dict.fromkeys(["usual reset", "our reset"], 0.0)
    with _timed(seconds, "usual reset"):
        usual_reset(usual, task)
    with _timed(seconds, "our reset"):
        sim.reset(init_id=0, seed=SEED, settle_steps=SETTLE_STEPS)
    sim.observe()  # opens the renderer; the usual environment has opened its own
    return seconds


def _race(sim: LiberoSim, usual: Any, chunks: np.ndarray) -> list[dict[str, float]]:
    """Run both loops on the same episode, chunk by chunk in turn; returns seconds, one row per chunk.

    The usual loop's pictures are counted once per query, all other time as steps.

    Raises:
        AssertionError: A picture or a state at a query differs.
    """
    rows = []
    for chunk in chunks:
        row = dict.fromkeys(["usual loop", "usual rendering", "our steps", "our pictures"], 0.0)
        with _rendering_timed(type(usual.env.sim), row), _timed(row, "usual loop"):
            for action in chunk:
                expected, *_ = usual.step(action)
        with _timed(row, "our steps"):
            sim.advance(chunk)
        with _timed(row, "our pictures"):
            seen = sim.observe()
        row["usual pictures"] = row["usual rendering"] / len(chunk)
        row["usual steps"] = row["usual loop"] - row["usual rendering"]
        rows.append(row)
        for name, camera in CAMERAS.items():
            np.testing.assert_array_equal(seen.images[name], expected[f"{camera}_image"][::-1, ::-1])
        np.testing.assert_array_equal(sim.flat_state(), usual.get_sim_state())
    return rows


def _compared(rows: Sequence[Mapping[str, float]], usual: str, ours: str, *, each: int) -> dict[str, Any]:
    """Median milliseconds of one of `each` in a chunk, usual and ours, and their ratio with intervals."""
    usual_s, our_s = [row[usual] for row in rows], [row[ours] for row in rows]
    return {
        "usual_ms": round(1000 * float(np.median(usual_s)) / each, 2),
        "our_ms": round(1000 * float(np.median(our_s)) / each, 2),
        "usual_over_ours": dataclasses.asdict(paired_ratio(usual_s, our_s)),
    }


def usual_reset(usual: Any, task: LiberoTask, init_id: int = 0) -> Mapping[str, np.ndarray]:
    """Reset the usual environment to the start of an episode; returns its observation."""
    usual.seed(SEED)
    usual.reset()
    seen = usual.set_init_state(get_init_state(task, init_id))
    for _ in range(SETTLE_STEPS):
        seen, *_ = usual.step(SETTLE_ACTION)
    return seen


@contextlib.contextmanager
def usual_env(task: LiberoTask, assets: AssetSet) -> Iterator[Any]:
    """LIBERO's own environment, which renders at every step."""
    envs = load_libero()
    with use_assets(assets.path):
        env = envs.OffScreenRenderEnv(
            bddl_file_name=str(task.bddl_file), camera_heights=CAMERA_SIZE, camera_widths=CAMERA_SIZE
        )
        try:
            yield env
        finally:
            env.close()


def _actions(steps: int, replan_steps: int) -> np.ndarray:
    """Chunks of a smooth random walk, [chunk, replan_steps, 7]."""
    random = np.random.default_rng(0)
    wander = np.repeat(random.uniform(-0.5, 0.5, (steps // 20 + 1, 7)), 20, axis=0)[:steps]
    return (wander + random.normal(0, 0.05, (steps, 7))).reshape(-1, replan_steps, 7)


@contextlib.contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[name] += time.perf_counter() - start


@contextlib.contextmanager
def _rendering_timed(simulator: Any, row: dict[str, float]) -> Iterator[None]:
    """Add up the time that LIBERO's environment spends rendering."""
    render: Callable[..., Any] = simulator.render

    def timed(*args: Any, **kwargs: Any) -> Any:
        with _timed(row, "usual rendering"):
            return render(*args, **kwargs)

    with mock.patch.object(simulator, "render", timed):
        yield


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.libero_loop", description=__doc__)
    parser.add_argument("--suite", default="libero_spatial")
    parser.add_argument("--task-id", type=int, default=0)
    parser.add_argument("--steps", type=int, default=200, help="control steps, a multiple of --replan-steps")
    parser.add_argument("--replan-steps", type=int, default=5)
    parser.add_argument("--assets", help="folder of LIBERO's asset tree")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    if (
        options.replan_steps < 1
        or options.steps < 2 * options.replan_steps
        or options.steps % options.replan_steps
    ):
        parser.error("--steps must be twice or more times --replan-steps, and a multiple of it")
    return options


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
