"""Whether the arm can bring its gripper somewhere, touching nothing: tried on a copy of the state."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float64, Int

from sim_envs.scripted.poses import Pose, Vector6

Joints = Float64[np.ndarray, " joints"]

_ITERATIONS = 80
_NEAR, _ALIGNED = 0.004, 0.04
"""A pose is reached at this distance (m, rad)."""

_LONGEST = np.array([0.05, 0.3])
"""The most (m, rad) of what is missing that one iteration makes up for."""

_SOFTNESS = 1e-3
"""Keeps joints from racing where the arm is stretched."""

_HOMING = 0.02
"""How much of the way to its resting joints the arm takes in an iteration, as far as the gripper does not
feel it: as LIBERO's controller does."""

_OVERLAP = 0.001
"""Overlaps smaller than this (m) are none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeldObject:
    """What moves with the gripper.

    Attributes:
        body: Number of its body, which has a free joint.
        grip: Its pose in the gripper's frame.
    """

    body: int
    grip: Pose


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmJoints:
    """Which parts of a MuJoCo model are the arm.

    Attributes:
        root: Number of its root body.
        site: Number of the grip site.
        qpos: The joints' places among the positions.
        dof: And among the velocities.
        fingers: The finger joints' places among the positions.
        open: The finger joints' positions when fully open.
        limits: Least and greatest joint positions (rad).
        resting: The joints that the controller draws to (rad).
    """

    root: int
    site: int
    qpos: Int[np.ndarray, " joints"]
    dof: Int[np.ndarray, " joints"]
    fingers: Int[np.ndarray, " fingers"]
    open: Float64[np.ndarray, " fingers"]
    limits: Float64[np.ndarray, "joints 2"]
    resting: Joints


class ReachabilityCheck:
    """A copy of a scene in which the arm, with open fingers, may be moved."""

    def __init__(self, model: Any, data: Any, arm: ArmJoints) -> None:
        """Copy a moment of a MuJoCo simulation, which is not touched."""
        self._model, self._arm = model, arm
        self._data = mujoco.MjData(model)
        self._data.qpos[:] = data.qpos
        self._start = data.qpos[arm.qpos].copy()
        self._data.qpos[arm.fingers] = arm.open

    def along(
        self,
        poses: Iterable[Pose],
        *,
        start: Joints | None = None,
        beside: int | None = None,
        holding: HeldObject | None = None,
    ) -> Joints | None:
        """The arm's joints when its gripper has gone through some poses.

        None if one cannot be reached from the one before, or if something is touched there.

        Args:
            poses: Of the grip site.
            start: The arm's joints before the first; those of now by default.
            beside: A body that the arm may touch.
            holding: What moves with the gripper; the arm may touch it, it may touch nothing else.
        """
        joints = self._start if start is None else start
        for pose in poses:
            reached = self._solved(pose, joints)
            if reached is None or self._touches(reached, beside, holding):
                return None
            joints = reached
        return joints

    def _solved(self, pose: Pose, joints: Joints) -> Joints | None:
        """Joints for a pose, by damped least squares within the joints' limits."""
        for _ in range(_ITERATIONS):
            self._move(joints)
            twist = self._pose().twist_to(pose)
            missing = np.linalg.norm(twist.reshape(2, 3), axis=1)
            if missing[0] < _NEAR and missing[1] < _ALIGNED:
                return joints
            taken = twist * np.repeat(np.minimum(1.0, _LONGEST / np.maximum(missing, 1e-9)), 3)
            joints = np.clip(joints + self._step(taken, joints), *self._arm.limits.T)
        return None

    def _step(self, twist: Vector6, joints: Joints) -> Joints:
        jacobian = np.zeros((6, self._model.nv))
        mujoco.mj_jacSite(self._model, self._data, jacobian[:3], jacobian[3:], self._arm.site)
        jacobian = jacobian[:, self._arm.dof]
        inverse = jacobian.T @ np.linalg.inv(jacobian @ jacobian.T + _SOFTNESS * np.eye(6))
        homing = _HOMING * (self._arm.resting - joints)
        return inverse @ (twist - jacobian @ homing) + homing

    def _touches(self, joints: Joints, beside: int | None, holding: HeldObject | None) -> bool:
        self._move(joints)
        if holding is not None:
            self._move_along(holding)
        mujoco.mj_collision(self._model, self._data)
        held = [] if holding is None else [self._root(holding.body)]
        moving = {self._arm.root, *held}
        allowed = moving if beside is None else moving | {self._root(beside)}
        return any(bool(pair & moving) and not pair <= allowed for pair in self._pairs())

    def _pairs(self) -> list[set[int]]:
        """Root bodies of what overlaps."""
        contacts, count = self._data.contact, self._data.ncon
        roots = self._model.body_rootid[self._model.geom_bodyid[contacts.geom[:count]]]
        return [set(pair) for pair in roots[contacts.dist[:count] < -_OVERLAP].tolist()]

    def _root(self, body: int) -> int:
        return int(self._model.body_rootid[body])

    def _move(self, joints: Joints) -> None:
        self._data.qpos[self._arm.qpos] = joints
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)

    def _move_along(self, holding: HeldObject) -> None:
        pose = self._pose().after(holding.grip)
        place = int(self._model.jnt_qposadr[self._model.body_jntadr[holding.body]])
        self._data.qpos[place : place + 3] = pose.position
        mujoco.mju_mat2Quat(self._data.qpos[place + 3 : place + 7], pose.rotation.ravel())
        mujoco.mj_kinematics(self._model, self._data)

    def _pose(self) -> Pose:
        site = self._arm.site
        rotation = self._data.site_xmat[site].reshape(3, 3).copy()
        return Pose(position=self._data.site_xpos[site].copy(), rotation=rotation)
