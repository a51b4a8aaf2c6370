"""Rest poses of LIBERO's objects, to be compared between asset sets.

`python -m tests.sim_envs.libero.rest_poses ASSETS` measures those in `rest_poses.json` anew.
"""

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from configs.reading import read_json_object
from sim_envs.libero.assets import AssetSet, find_assets
from sim_envs.libero.sim import LiberoSim
from sim_envs.libero.tasks import LiberoTask, list_tasks

FILE = Path(__file__).with_suffix(".json")
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


def measure(sim: LiberoSim, init_id: int) -> Poses:
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


def load(task: LiberoTask, init_id: int) -> Poses:
    """The stored poses of one episode's beginning."""
    stored = read_json_object(FILE)[f"{task.suite}.{task.task_id}"]
    scale = np.array([LENGTH] * 3 + [TURN] * 4)
    return {name: np.array(poses[init_id]) * scale for name, poses in stored.items()}


def _up(quaternion: Float64[np.ndarray, " 4"]) -> Float64[np.ndarray, " 3"]:
    w, x, y, z = quaternion / np.linalg.norm(quaternion)
    return np.array([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)])


def _write(file: Path, assets: AssetSet) -> None:
    stored: dict[str, dict[str, list[list[int]]]] = {}
    for task in (task for suite in SUITES for task in list_tasks(suite)):
        with LiberoSim(task, assets=assets) as sim:
            episodes = [measure(sim, init_id) for init_id in INIT_IDS]
        stored[f"{task.suite}.{task.task_id}"] = {
            name: [_compact(episode[name]) for episode in episodes] for name in episodes[0]
        }
    lines = (f'"{key}":{json.dumps(value, separators=(",", ":"))}' for key, value in stored.items())
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _compact(pose: Float64[np.ndarray, " 7"]) -> list[int]:
    return [round(float(value)) for value in (*(pose[:3] / LENGTH), *(pose[3:] / TURN))]


if __name__ == "__main__":
    _write(FILE, find_assets(sys.argv[1]))
