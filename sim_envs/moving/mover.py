"""Moves a free body of a MuJoCo model along a course, until anything touches it."""

import mujoco
import numpy as np

from sim_envs.moving.course import Course
from sim_envs.scripted.poses import Vector3

_AT_REST = (0.005, 0.1)
"""What moves slower than this (m/s, rad/s) has come to rest, and may begin to move."""


class Mover:
    """Leads one body, in one episode, from when it is at rest.

    While it is led, its pose and velocity are the course's: it neither tips nor drags at what it stands on.
    As soon as anything touches it that is not fixed to the ground, it is physics' own, with the velocity that
    it has.
    """

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, body: int, course: Course) -> None:
        """Begin an episode.

        Args:
            model: The model.
            data: Its state.
            body: The body, which has a free joint.
            course: Its course.
        """
        joint = int(model.body_jntadr[body])
        assert model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE, "only what is free can move by itself"
        self._data, self._course = data, course
        self._pose = data.qpos[model.jnt_qposadr[joint] : model.jnt_qposadr[joint] + 7]
        self._velocity = data.qvel[model.jnt_dofadr[joint] : model.jnt_dofadr[joint] + 6]
        roots = model.body_rootid[model.geom_bodyid]
        self._own = roots == model.body_rootid[body]
        self._fixed = model.body_weldid[model.geom_bodyid] == 0
        self._start: np.ndarray | None = None
        self._began = 0.0
        self._touched = False
        self.lead()

    @property
    def leads(self) -> bool:
        """Whether it moves by itself, and not yet or no longer by what else happens to it."""
        return self._start is not None and not self._touched

    def ahead(self, seconds: float) -> Vector3:
        """How far (m) it will have come after so many seconds from now, if nothing touches it."""
        now = self._data.time - self._began
        return self._course.offset(now + seconds) - self._course.offset(now)

    def lead(self) -> None:
        """Put it where its course has it now; to be called after every physics step."""
        self._touched = self._touched or self._is_touched()
        if self._touched:
            return
        if self._start is None:
            if not self._is_at_rest():
                return
            self._start, self._began = self._pose.copy(), self._data.time
        seconds = self._data.time - self._began
        self._pose[:] = self._start
        self._pose[:3] += self._course.offset(seconds)
        self._velocity[:3], self._velocity[3:] = self._course.velocity(seconds), 0.0

    def _is_at_rest(self) -> bool:
        fast = np.linalg.norm(self._velocity.reshape(2, 3), axis=1)
        return bool(fast[0] < _AT_REST[0] and fast[1] < _AT_REST[1])

    def _is_touched(self) -> bool:
        pairs = self._data.contact.geom
        own = self._own[pairs]
        other = ~own & ~self._fixed[pairs]
        return bool((own & other[:, ::-1]).any())
