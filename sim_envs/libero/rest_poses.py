"""Compares the rest poses of LIBERO's objects between asset sets.

python -m sim_envs.libero.rest_poses FILE --assets PATH            # measure and write
python -m sim_envs.libero.rest_poses FILE --assets standins --check
"""

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from cyclopts import App, Parameter
from jaxtyping import Float64

from configs.cli import run_app
from configs.paths import usable_file
from configs.reading import read_json_object
from sim_envs.gl import choose_backend
from sim_envs.libero.assets import AssetSet, find_assets
from sim_envs.libero.tasks import LiberoTask, list_tasks

if TYPE_CHECKING:
    from sim_envs.libero.sim import LiberoSim

app = App(
    name="python -m sim_envs.libero.rest_poses",
    help="Measure where LIBERO's objects come to rest with an asset set, or check it against such a file."
    "\n\nExit code: 0 written, or all within 5 mm and 5 degrees; 1 some are not; 2 the input is not usable.",
    version_flags=[],
)

SUITES = ("libero_spatial", "libero_object", "libero_goal", "libero_10")
INIT_IDS = range(10)
SEED = 7
SETTLE_STEPS = 10
LENGTH, TURN = 1e-4, 1e-3
"""What one unit of a stored number means: metres of position, parts of a unit quaternion."""

Poses = Mapping[str, Float64[np.ndarray, " 7"]]
"""Object name to position (m) and orientation (w, x, y, z)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deviation:
    """Deviation of an object's rest pose from the expected one.

    Attributes:
        where: Task, initial state and object.
        distance_mm: Between the two positions.
        tilt_deg: Between the two directions of the body's own z axis; a turn about it does not count.
    """

    where: str
    distance_mm: float
    tilt_deg: float


def measure(sim: "LiberoSim", init_id: int) -> Poses:
    """The pose of every object and fixture of the task after the settle steps."""
    sim.reset(init_id=init_id, seed=SEED, settle_steps=SETTLE_STEPS)
    data = sim.env.sim.data
    return {
        name: np.concatenate([data.body_xpos[body], data.body_xquat[body]])
        for name, body in sim.env.obj_body_id.items()
    }


def deviations(task: LiberoTask, init_id: int, poses: Poses, expected: Poses) -> Iterator[Deviation]:
    """The deviation of every object from its expected pose."""
    for name, pose in expected.items():
        cosine = float(np.clip(_up(poses[name][3:]) @ _up(pose[3:]), -1.0, 1.0))
        yield Deviation(
            where=f"{task.suite} task {task.task_id}, initial state {init_id}, {name}",
            distance_mm=1e3 * float(np.linalg.norm(poses[name][:3] - pose[:3])),
            tilt_deg=float(np.degrees(np.arccos(cosine))),
        )


def load(file: Path, task: LiberoTask, init_id: int) -> Poses:
    """The stored poses of one episode's beginning."""
    stored = read_json_object(file)[f"{task.suite}.{task.task_id}"]
    scale = np.array([LENGTH] * 3 + [TURN] * 4)
    return {name: np.array(poses[init_id]) * scale for name, poses in stored.items()}


def _up(quaternion: Float64[np.ndarray, " 4"]) -> Float64[np.ndarray, " 3"]:
    w, x, y, z = quaternion / np.linalg.norm(quaternion)
    return np.array([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)])


def _tasks() -> Iterator[LiberoTask]:
    for suite in SUITES:
        yield from list_tasks(suite)


def _write(file: Path, assets: AssetSet) -> None:
    from sim_envs.libero.sim import LiberoSim  # MuJoCo, which --help does not need

    stored: dict[str, dict[str, list[list[int]]]] = {}
    for task in _tasks():
        with LiberoSim(task, assets=assets) as sim:
            episodes = [measure(sim, init_id) for init_id in INIT_IDS]
        stored[f"{task.suite}.{task.task_id}"] = {
            name: [_compact(episode[name]) for episode in episodes] for name in episodes[0]
        }
    lines = (f'"{key}":{json.dumps(value, separators=(",", ":"))}' for key, value in stored.items())
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _compact(pose: Float64[np.ndarray, " 7"]) -> list[int]:
    return [round(float(value)) for value in (*(pose[:3] / LENGTH), *(pose[3:] / TURN))]


def _check(file: Path, assets: AssetSet) -> bool:
    from sim_envs.libero.sim import LiberoSim

    every: list[Deviation] = []
    for task in _tasks():
        with LiberoSim(task, assets=assets) as sim:
            for init_id in INIT_IDS:
                every += deviations(task, init_id, measure(sim, init_id), load(file, task, init_id))
    worst = sorted(every, key=lambda deviation: -deviation.distance_mm)
    for deviation in worst[:10]:
        sys.stdout.write(
            f"{deviation.distance_mm:6.2f} mm {deviation.tilt_deg:5.2f} deg  {deviation.where}\n"
        )
    good = all(deviation.distance_mm <= 5 and deviation.tilt_deg <= 5 for deviation in every)
    sys.stdout.write(
        f"{len(every)} poses with the assets {assets.name}: {'all' if good else 'not all'} within 5 mm\n"
    )
    return good


@app.default
def main(
    file: Path, /, *, assets: str | None = None, check: Annotated[bool, Parameter(negative="")] = False
) -> int:
    """Measure, then write the file or compare with it.

    Args:
        file: JSON file of rest poses.
        assets: LIBERO's asset tree: a folder, or the name of a source (auto, standins, download). Default:
            auto.
        check: Compare with the file instead of writing it.
    """
    if not check:
        usable_file(file, "the file")
    choose_backend()  # before anything imports MuJoCo
    found = find_assets(assets)
    if check:
        return 0 if _check(file, found) else 1
    _write(file, found)
    return 0


if __name__ == "__main__":
    run_app(app)
