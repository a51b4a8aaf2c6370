"""`python -m benchmarks.libero_loop`: our LIBERO loop against the usual one, same episode, same images.

The usual loop steps LIBERO's `OffScreenRenderEnv`, which renders both cameras at every control step, and uses
the images of every fifth. Ours renders at queries only. Both run in this process, chunk by chunk in turns,
and at every query the images and states of both must be equal, byte by byte. Also gives the ratios of a
control step without rendering, and of rendering one observation.

On one core: `taskset -c 0 python -m benchmarks.libero_loop`.
"""

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from cyclopts import App

from benchmarks.record import record
from configs.cli import run_app
from eval.bench.measurement import paired_ratio
from sim_envs.libero.assets import find_assets, load_libero, use_assets
from sim_envs.libero.sim import SETTLE_ACTION, LiberoSim
from sim_envs.libero.tasks import CAMERAS, get_init_state, get_task

SUITE, TASK_ID, SEED, SETTLE_STEPS, CAMERA_SIZE = "libero_spatial", 0, 7, 10, 256
CHUNKS, REPLAN_STEPS = 40, 5

app = App(name="python -m benchmarks.libero_loop")


@app.default
def main(*, assets: str | None = None, output: Path = Path("benchmarks/results/libero_loop.json")) -> None:
    """Play an episode in both loops and write their times; fails if a picture or a state differs.

    Args:
        assets: Folder of LIBERO's asset tree.
        output: JSON file.
    """
    task, found = get_task(SUITE, TASK_ID), find_assets(assets)
    random = np.random.default_rng(0)  # a smooth random walk, [chunk, replan_steps, 7]
    steps = CHUNKS * REPLAN_STEPS
    wander = np.repeat(random.uniform(-0.5, 0.5, (steps // 20 + 1, 7)), 20, axis=0)[:steps]
    chunks = (wander + random.normal(0, 0.05, (steps, 7))).reshape(CHUNKS, REPLAN_STEPS, 7)
    seconds = dict.fromkeys(["usual reset", "our reset"], 0.0)
    with contextlib.ExitStack() as opened:
        sim = opened.enter_context(LiberoSim(task, assets=found, camera_size=CAMERA_SIZE))
        opened.enter_context(use_assets(found.path))
        sizes = {"camera_heights": CAMERA_SIZE, "camera_widths": CAMERA_SIZE}
        usual = load_libero().OffScreenRenderEnv(bddl_file_name=str(task.bddl_file), **sizes)
        opened.callback(usual.close)
        with _timed(seconds, "usual reset"):
            usual.seed(SEED)
            usual.reset()
            usual.set_init_state(get_init_state(task, 0))
            for _ in range(SETTLE_STEPS):
                usual.step(SETTLE_ACTION)
        with _timed(seconds, "our reset"):
            sim.reset(init_id=0, seed=SEED, settle_steps=SETTLE_STEPS)
        sim.observe()  # opens the renderer; the usual environment has opened its own
        rows = [_both(sim, usual, chunk) for chunk in chunks]
    seconds["usual loop"] = sum(row["usual loop"] for row in rows)
    seconds["ours"] = sum(row["our steps"] + row["our pictures"] for row in rows)
    result = {
        "episode": f"{task.suite}.{task.task_id}.0.{SEED}",
        "control_steps": steps,
        "replan_steps": REPLAN_STEPS,
        "camera_size": CAMERA_SIZE,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "speedup": round(seconds["usual loop"] / seconds["ours"], 2),
        "speedup_of_reset": round(seconds["usual reset"] / seconds["our reset"], 2),
        "control_step": _compared(rows, "steps", each=REPLAN_STEPS),
        "pictures": _compared(rows, "pictures", each=1),
        "pictures_and_states_equal_at_every_query": True,
        "assets": {"name": found.name, "digest": found.digest},
        "renderer": os.environ["MUJOCO_GL"],
    }
    record(result, output)


def _both(sim: LiberoSim, usual: Any, chunk: np.ndarray) -> dict[str, float]:
    """Execute a chunk in both loops; returns the seconds of each part.

    The usual loop's pictures are counted once per query, all other time as steps. A picture or a state that
    differs is an AssertionError.
    """
    row = dict.fromkeys(["usual loop", "usual rendering", "our steps", "our pictures"], 0.0)
    simulator = type(usual.env.sim)
    render = simulator.render

    def timed(*args: Any, **kwargs: Any) -> Any:
        with _timed(row, "usual rendering"):
            return render(*args, **kwargs)

    expected: dict[str, Any] = {}
    with mock.patch.object(simulator, "render", timed), _timed(row, "usual loop"):
        for action in chunk:
            expected, *_ = usual.step(action)
    with _timed(row, "our steps"):
        sim.advance(chunk)
    with _timed(row, "our pictures"):
        seen = sim.observe()
    row["usual pictures"] = row["usual rendering"] / len(chunk)
    row["usual steps"] = row["usual loop"] - row["usual rendering"]
    for name, camera in CAMERAS.items():
        np.testing.assert_array_equal(seen.images[name], expected[f"{camera}_image"][::-1, ::-1])
    np.testing.assert_array_equal(sim.flat_state(), usual.get_sim_state())
    return row


def _compared(rows: list[dict[str, float]], what: str, *, each: int) -> dict[str, Any]:
    """Median milliseconds of one of `each` in a chunk, usual and ours, and their ratio with intervals."""
    usual, ours = ([row[f"{whose} {what}"] for row in rows] for whose in ("usual", "our"))
    return {
        "usual_ms": round(1000 * float(np.median(usual)) / each, 2),
        "our_ms": round(1000 * float(np.median(ours)) / each, 2),
        "usual_over_ours": dataclasses.asdict(paired_ratio(usual, ours)),
    }


@contextlib.contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[name] += time.perf_counter() - start


if __name__ == "__main__":
    run_app(app)
