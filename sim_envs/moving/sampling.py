"""Samples the movers of an episode: objects stay in free space, within reach and in view."""

import dataclasses
import math
from collections.abc import Callable, Mapping

import mujoco
import numpy as np

from configs.motion import Drift, Shuttle
from sim_envs.moving.free_space import FreeSpace
from sim_envs.moving.mover import Mover
from sim_envs.moving.trajectory import sample_trajectory
from sim_envs.scripted.collisions import Collisions
from sim_envs.scripted.poses import Vector3
from sim_envs.scripted.surfaces import Points

_SIGHT = 0.9
"""Largest distance from the image center, as a fraction of that to its edge."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounds:
    """Where objects may be: within reach of the arm and in view of a camera.

    Attributes:
        robot: Id of the robot's root body.
        reach: Range of distances from it, m.
        camera: Id of the camera.
        aspect: Width of its images over their height.
    """

    robot: int
    reach: tuple[float, float]
    camera: int
    aspect: float = 1.0

    def check(self, data: mujoco.MjData, start: Vector3) -> Callable[[Vector3], bool]:
        """Whether an object may move to a position (m), from its initial one.

        An object that starts outside the range of reach may stay at its initial distance.
        """
        base, eye = data.xpos[self.robot, :2].copy(), data.cam_xpos[self.camera].copy()
        axes = data.cam_xmat[self.camera].reshape(3, 3).copy()
        away = float(np.linalg.norm(start[:2] - base))
        nearest, farthest = min(self.reach[0], away), max(self.reach[1], away)
        highest = _SIGHT * math.tan(math.radians(data.model.cam_fovy[self.camera]) / 2)
        edge = highest * np.array([self.aspect, 1.0])

        def may_be_at(place: Vector3) -> bool:
            seen = (place - eye) @ axes
            in_sight = (np.abs(seen[:2]) <= -seen[2] * edge).all()
            return bool(in_sight and nearest <= np.linalg.norm(place[:2] - base) <= farthest)

        return may_be_at


def sample_movers(
    data: mujoco.MjData, bodies: Mapping[str, int], motion: Shuttle | Drift, bounds: Bounds, *, digest: int
) -> dict[str, Mover]:
    """The movers of an episode, by name of the object; objects without free space do not move.

    Args:
        data: The state, after settling.
        bodies: The bodies to move by name of the object; each has a free joint.
        motion: The kind of motion.
        bounds: Where they may be.
        digest: Hash of the episode, which determines directions and phases.
    """
    collisions = Collisions(data.model, data, robot=bounds.robot)
    roots = data.model.body_rootid
    found: dict[str, Mover] = {}
    swept: list[Points] = []
    for number, (name, body) in enumerate(bodies.items()):
        own = roots == roots[body]
        obj, others = (collisions.surface(set(np.flatnonzero(part).tolist())) for part in (own, ~own))
        allowed = bounds.check(data, obj.mean(axis=0))
        room = FreeSpace(obj, np.concatenate([others, *swept]), may_be_at=allowed)
        trajectory = sample_trajectory(motion, room, np.random.default_rng([digest, number]))
        if trajectory is not None:
            found[name] = Mover(data.model, data, body, trajectory)
            swept += [obj + trajectory.offset(seconds) for seconds in np.arange(0.0, 10.0, 0.5)]
    return found
