"""Moves a free body of a MuJoCo model along a trajectory until it is touched."""

import copy

import mujoco
import numpy as np

from sim_envs.moving.trajectory import Trajectory
from sim_envs.scripted.poses import Vector3

_AT_REST = (0.005, 0.1)
"""A body slower than this (m/s, rad/s) is at rest, and its trajectory may start."""


class Mover:
    """Moves one body in one episode, starting when the body is at rest.

    While it is moved, its pose and velocity are set from the trajectory, so that it neither tips nor drags
    its support. At the first contact with anything that is not fixed to the ground, physics takes over, with
    the body's current velocity.
    """

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, body: int, trajectory: Trajectory) -> None:
        """Start an episode.

        Args:
            model: The model.
            data: Its state.
            body: Id of the body, which has a free joint.
            trajectory: Its trajectory.
        """
        joint = int(model.body_jntadr[body])
        assert model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE, "only a free body can be moved"
        self._trajectory = trajectory
        self._qpos, self._dof = int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])
        self._bind(data)
        roots = model.body_rootid[model.geom_bodyid]
        self._own = roots == model.body_rootid[body]
        self._fixed = model.body_weldid[model.geom_bodyid] == 0
        self._start: np.ndarray | None = None
        self._began = 0.0
        self._touched: float | None = None
        self.lead()

    def copy(self, data: mujoco.MjData) -> "Mover":
        """An independent mover of a copy of the state."""
        twin = copy.copy(self)
        twin._bind(data)
        return twin

    @property
    def leads(self) -> bool:
        """Whether the body follows the trajectory now."""
        return self._start is not None and self._touched is None

    def ahead(self, seconds: float) -> Vector3:
        """The displacement (m) in the next `seconds`, if nothing touches the body."""
        return self.offset(seconds) - self.offset()

    def offset(self, seconds: float = 0.0) -> Vector3:
        """The displacement (m) since the start, `seconds` from now; once touched, that at the touch."""
        if self._start is None:
            return np.zeros(3)
        if self._touched is not None:
            return self._trajectory.offset(self._touched - self._began)
        return self._trajectory.offset(self._data.time - self._began + seconds)

    def lead(self) -> None:
        """Set the body's pose and velocity; call it after every physics step."""
        if self._touched is None and self._is_touched():
            self._touched = self._data.time
        if self._touched is not None:
            return
        if self._start is None:
            if not self._is_at_rest():
                return
            self._start, self._began = self._pose.copy(), self._data.time
        seconds = self._data.time - self._began
        self._pose[:] = self._start
        self._pose[:3] += self._trajectory.offset(seconds)
        self._velocity[:3], self._velocity[3:] = self._trajectory.velocity(seconds), 0.0

    def _bind(self, data: mujoco.MjData) -> None:
        self._data = data
        self._pose = data.qpos[self._qpos : self._qpos + 7]
        self._velocity = data.qvel[self._dof : self._dof + 6]

    def _is_at_rest(self) -> bool:
        fast = np.linalg.norm(self._velocity.reshape(2, 3), axis=1)
        return bool(fast[0] < _AT_REST[0] and fast[1] < _AT_REST[1])

    def _is_touched(self) -> bool:
        pairs = self._data.contact.geom
        own = self._own[pairs]
        other = ~own & ~self._fixed[pairs]
        return bool((own & other[:, ::-1]).any())
