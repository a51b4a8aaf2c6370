"""Chooses the objects of a LIBERO task that move, and their trajectories."""

from collections.abc import Mapping
from typing import Any

from configs.motion import Drift, Shuttle
from sim_envs.libero.conventions import CAMERAS
from sim_envs.libero.experts.scene import ExpertScene
from sim_envs.libero.libero_env import read_problem
from sim_envs.libero.tasks import LiberoTask
from sim_envs.libero.truth.items import GROUNDS
from sim_envs.moving.mover import Mover
from sim_envs.moving.sampling import Bounds, sample_movers
from sim_envs.truth.places import FIXTURES
from sim_envs.world import EpisodeKey

_REACH = (0.4, 0.75)
"""Range of distances (m) from the robot's base: nearer the arm is folded, at 0.85 it is stretched."""


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


def can_move(task: LiberoTask) -> bool:
    """Whether a task has an object that can move."""
    return bool(movable(read_problem(task)))


def movers(env: Any, motion: Shuttle | Drift, key: EpisodeKey) -> dict[str, Mover]:
    """The movers of an episode; see `sample_movers`.

    Args:
        env: LIBERO's environment, reset and settled.
        motion: The kind of motion.
        key: The episode, which determines directions and phases.
    """
    scene, data = ExpertScene(env), env.sim.data._data
    camera = data.model.camera(CAMERAS["image"]).id
    bounds = Bounds(robot=scene.robot_root, reach=_REACH, camera=camera)
    bodies = {name: scene.body(name) for name in movable(env.parsed_problem)}
    return sample_movers(data, bodies, motion, bounds, digest=key.digest())
