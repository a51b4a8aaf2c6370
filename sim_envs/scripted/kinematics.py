"""Checks whether the arm can reach poses without collisions, on a copy of the state."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float64

from sim_envs.scripted.poses import Pose, Vector3

Joints = Float64[np.ndarray, " joints"]

_ITERATIONS = 80
_NEAR, _ALIGNED = 0.004, 0.04  # tolerances (m, rad) of a reached pose
_LONGEST = np.array([0.05, 0.3])  # largest correction (m, rad) per iteration
_SOFTNESS = 1e-3  # damping of the least squares, for stretched arms
_HOMING = 0.02  # null-space step to the resting joints per iteration, a fraction, as in LIBERO's controller
_OVERLAP = 0.001  # penetrations smaller than this (m) do not count as collisions


class ReachabilityCheck:
    """A copy of a scene for moving the arm with open fingers."""

    def __init__(
        self,
        data: Any,
        *,
        site: int,
        joints: Sequence[str],
        open_fingers: Mapping[str, float],
        resting: Joints,
    ) -> None:
        """Copy the current state of a simulation, which is not changed.

        `site` is the grip site's id; `open_fingers` maps finger joints to their positions when fully open;
        `resting` are the controller's resting joint positions (rad).
        """
        model = data.model
        self._model, self._site, self._resting = model, site, resting
        self._root = int(model.body_rootid[model.site_bodyid[site]])
        self._qpos = np.array([model.joint(name).qposadr[0] for name in joints])
        self._dof = np.array([model.joint(name).dofadr[0] for name in joints])
        self._limits = np.array([model.joint(name).range for name in joints])
        self._data = mujoco.MjData(model)
        self._data.qpos[:] = data.qpos
        self._start = data.qpos[self._qpos].copy()
        for name, position in open_fingers.items():
            self._data.joint(name).qpos[:] = position

    def along(
        self,
        poses: Iterable[Pose],
        *,
        start: Joints | None = None,
        beside: int | None = None,
        holding: tuple[int, Pose] | None = None,
    ) -> list[Joints] | None:
        """The joint positions (rad) for poses of the grip site in sequence, from `start` or the current ones.

        None if a pose cannot be reached from the previous one, or has a collision. The arm may touch the body
        `beside`, and an object that it is `holding`: the id of its body, with a free joint, and its pose in
        the gripper's frame. That may touch nothing else.
        """
        path: list[Joints] = []
        joints = self._start if start is None else start
        for pose in poses:
            reached = self._solved(pose, joints)
            if reached is None or self._touches(reached, beside, holding):
                return None
            path.append(joints := reached)
        return path

    def shifted(self, joints: Joints, way: Vector3) -> Joints | None:
        """The joint positions (rad) that translate the gripper by `way` (m); None if it cannot reach."""
        self._move(joints)
        return self._solved(self._pose().shifted(way), joints)

    def _solved(self, pose: Pose, joints: Joints) -> Joints | None:
        """Inverse kinematics by damped least squares within the joint limits."""
        for _ in range(_ITERATIONS):
            self._move(joints)
            twist = self._pose().twist_to(pose)
            missing = np.linalg.norm(twist.reshape(2, 3), axis=1)
            if missing[0] < _NEAR and missing[1] < _ALIGNED:
                return joints
            taken = twist * np.repeat(np.minimum(1.0, _LONGEST / np.maximum(missing, 1e-9)), 3)
            jacobian = np.zeros((6, self._model.nv))
            mujoco.mj_jacSite(self._model, self._data, jacobian[:3], jacobian[3:], self._site)
            jacobian = jacobian[:, self._dof]
            inverse = jacobian.T @ np.linalg.inv(jacobian @ jacobian.T + _SOFTNESS * np.eye(6))
            homing = _HOMING * (self._resting - joints)
            step = inverse @ (taken - jacobian @ homing) + homing
            joints = np.clip(joints + step, *self._limits.T)
        return None

    def _touches(self, joints: Joints, beside: int | None, holding: tuple[int, Pose] | None) -> bool:
        self._move(joints)
        roots, moving = self._model.body_rootid, {self._root}
        if holding is not None:
            body, grip = holding
            moving.add(int(roots[body]))
            pose = self._pose().after(grip)
            place = int(self._model.jnt_qposadr[self._model.body_jntadr[body]])
            self._data.qpos[place : place + 3] = pose.position
            mujoco.mju_mat2Quat(self._data.qpos[place + 3 : place + 7], pose.rotation.ravel())
            mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_collision(self._model, self._data)
        allowed = moving if beside is None else moving | {int(roots[beside])}
        contacts, count = self._data.contact, self._data.ncon
        overlapping = contacts.geom[:count][contacts.dist[:count] < -_OVERLAP]
        pairs = map(set, roots[self._model.geom_bodyid[overlapping]].tolist())
        return any(bool(pair & moving) and not pair <= allowed for pair in pairs)

    def _move(self, joints: Joints) -> None:
        self._data.qpos[self._qpos] = joints
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)

    def _pose(self) -> Pose:
        return Pose.of(self._data.site(self._site))
