"""Chooses the objects of a LIBERO task that move, and their trajectories."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from configs.errors import UsageError
from configs.motion import Drift, Shuttle
from sim_envs.libero.conventions import CAMERAS
from sim_envs.libero.experts.scene import ExpertScene
from sim_envs.libero.libero_env import read_problem
from sim_envs.libero.tasks import LiberoTask
from sim_envs.libero.truth.items import GROUNDS
from sim_envs.moving.free_space import FreeSpace
from sim_envs.moving.mover import Mover
from sim_envs.moving.trajectory import sample_trajectory
from sim_envs.scripted.poses import Vector3
from sim_envs.scripted.surfaces import Points
from sim_envs.truth.places import FIXTURES
from sim_envs.world import EpisodeKey

_REACH = (0.4, 0.75)
"""Range of distances (m) from the robot's base: nearer the arm is folded, at 0.85 it is stretched."""

_SIGHT = 0.9
"""Largest distance from the image center, as a fraction of that to its edge."""


def movable(problem: Mapping[str, Any]) -> list[str]:
    """The objects that the goals require to be moved and that initially stand on the table or floor.

    Args:
        problem: A parsed BDDL problem, as LIBERO's `robosuite_parse_problem` returns it.
    """
    objects = {name for names in problem["objects"].values() for name in names}
    grounds = {
        name for kind, names in problem["fixtures"].items() if FIXTURES[kind] in GROUNDS for name in names
    }
    on_ground = {
        state[1]
        for state in problem["initial_state"]
        if state[0] == "on" and problem["regions"].get(state[2], {}).get("target") in grounds
    }
    wanted = [goal[1] for goal in problem["goal_state"] if goal[0] in ("in", "on")]
    return [name for name in dict.fromkeys(wanted) if name in objects & on_ground]


def require_movable(tasks: Iterable[LiberoTask], motion: str, others: Sequence[LiberoTask]) -> None:
    """Check that every task has an object that can move.

    Args:
        tasks: The tasks to be run.
        motion: The motion, in the syntax of `--motion`.
        others: All tasks of the suite.

    Raises:
        UsageError: Some tasks have none; the message names the suite's tasks that do.
    """
    still = [task for task in tasks if not movable(read_problem(task))]
    if not still:
        return
    can = [str(task.task_id) for task in others if movable(read_problem(task))]
    numbers = ", ".join(str(task.task_id) for task in still)
    raise UsageError(
        f"motion {motion}: in {still[0].suite} task {numbers}, the object to be grasped cannot move: it is "
        "in or on another object, or nothing is grasped; "
        + (f"give --task-ids {' '.join(can)}" if can else "give another suite, or leave out --motion")
    )


def movers(env: Any, motion: Shuttle | Drift, key: EpisodeKey) -> dict[str, Mover]:
    """The movers of an episode, by name of the object; objects without free space do not move.

    Args:
        env: LIBERO's environment, reset and settled.
        motion: The kind of motion.
        key: The episode, which determines directions and phases.
    """
    scene, model, data = ExpertScene(env), env.sim.model._model, env.sim.data._data
    found: dict[str, Mover] = {}
    swept: list[Points] = []
    for number, name in enumerate(movable(env.parsed_problem)):
        thing, others = scene.surface(name), scene.surroundings(name)
        allowed = _in_reach_and_sight(scene, model, data, thing.mean(axis=0))
        room = FreeSpace(thing, np.concatenate([others, *swept]), may_be_at=allowed)
        trajectory = sample_trajectory(motion, room, np.random.default_rng([key.digest(), number]))
        if trajectory is not None:
            found[name] = Mover(model, data, scene.body(name), trajectory)
            swept += [thing + trajectory.offset(seconds) for seconds in np.arange(0.0, 10.0, 0.5)]
    return found


def _in_reach_and_sight(
    scene: ExpertScene, model: Any, data: Any, start: Vector3
) -> Callable[[Vector3], bool]:
    """Whether an object may move to a position (m): within reach of the arm and in view of the front camera.

    An object that starts outside the range of reach may stay at its initial distance.
    """
    base, camera = scene.base.position[:2], model.camera(CAMERAS["image"]).id
    away = float(np.linalg.norm(start[:2] - base))
    nearest, farthest = min(_REACH[0], away), max(_REACH[1], away)
    eye, axes = data.cam_xpos[camera].copy(), data.cam_xmat[camera].reshape(3, 3).copy()
    widest = _SIGHT * math.tan(math.radians(model.cam_fovy[camera]) / 2)

    def may_be_at(place: Vector3) -> bool:
        seen = (place - eye) @ axes
        in_sight = np.abs(seen[:2]).max() <= -seen[2] * widest
        return bool(in_sight and nearest <= np.linalg.norm(place[:2] - base) <= farthest)

    return may_be_at
