"""robosuite's OSC_POSE arm controller and gripper, faster and equal bit for bit.

robosuite 1.4.0 calls `mj_forward` three times per physics step: before the controller, inside it, and in
`mj_step`. Positions and velocities are the same in all three, so their stages, such as collision detection,
run only once here. The constraint solver still runs three times: each run is warm-started from the previous
one, on which the last bits of a trajectory depend. They may also depend on the memory order of matrices, so
arrays are written in place, in robosuite's order.
"""

import math
from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float64

from sim_envs.scripted.poses import Vector3

_READINGS = "ee_pos ee_ori_mat ee_pos_vel ee_ori_vel joint_pos joint_vel J_full J_pos J_ori mass_matrix"
"""Names of the readings in robosuite's controller."""

_NONE_SKIPPED = int(mujoco.mjtStage.mjSTAGE_NONE)


class ArmController:
    """The controller, robot and gripper of a robosuite environment, from one reset to the next.

    The controller's state (goal, last readings) is in robosuite's objects, as in robosuite, except for its
    buffers of recent readings.
    """

    def __init__(self, env: Any) -> None:
        """Take control of the arm of an environment that has just been reset."""
        from robosuite.utils import control_utils

        robot = env.robots[0]
        controller = robot.controller
        model: mujoco.MjModel = env.sim.model._model
        data: mujoco.MjData = env.sim.data._data
        self._controller, self._model, self._data, self._law = controller, model, data, control_utils
        self._site = model.site(controller.eef_name).id
        # Views into MuJoCo's memory and scratch space: looking up an array costs as much as using it.
        self._arm = _run(controller.qvel_index)
        self._qvel, self._arm_bias = data.qvel, data.qfrc_bias[self._arm]
        self._arm_qpos, self._arm_qvel = data.qpos[_run(controller.qpos_index)], data.qvel[self._arm]
        self._site_position = data.site_xpos[self._site]
        self._site_rotation = data.site_xmat[self._site].reshape(3, 3)
        self._hand_quaternion = data.body(robot.robot_model.eef_name).xquat
        self._finger_qpos = data.qpos[_run(robot._ref_gripper_joint_pos_indexes)]
        self._motors = data.ctrl[_run(robot._ref_joint_actuator_indexes)]
        self._torque_low, self._torque_high = (np.array(limit) for limit in robot.torque_limits)
        self._fingers = _Fingers(robot, model, data)
        self._jacobian = np.zeros((6, model.nv))
        self._mass = np.zeros((model.nv, model.nv))
        # In the first physics step after a reset, robosuite's controller uses readings of the default pose.
        self._reads = bool(controller.new_update)
        controller.new_update = False
        for name in _READINGS.split():
            setattr(controller, name, np.array(getattr(controller, name)))
        self._kp, self._kd = np.split(controller.kp, 2), np.split(controller.kd, 2)
        self._error, self._brake, self._wrench = np.zeros(3), np.zeros(3), np.zeros(6)
        self._force, self._turn = np.split(self._wrench, 2)

    def physics_step(self, action: Float64[np.ndarray, " 7"], *, new_goal: bool) -> None:
        """Run one physics step under an action, clipped to [-1, 1]; its first one sets a new goal."""
        mujoco.mj_forwardSkip(self._model, self._data, _NONE_SKIPPED, 1)
        if self._reads:
            mujoco.mj_fwdConstraint(self._model, self._data)
            self._read()
        self._reads = True
        if new_goal:
            self._controller.set_goal(action[:6])
            self._fingers.set_goal(action[6])
        np.maximum(self._torques(), self._torque_low, out=self._motors)
        np.minimum(self._motors, self._torque_high, out=self._motors)
        self._fingers.move()
        mujoco.mj_step2(self._model, self._data)

    def policy_state(self) -> Float64[np.ndarray, " 8"]:
        """End-effector position (m) and axis-angle (rad), and finger joints (m), as LIBERO's sensors."""
        return np.concatenate([self._site_position, _axis_angle(self._hand_quaternion), self._finger_qpos])

    def _read(self) -> None:
        """Refresh the controller's readings (robosuite's `Controller.update`)."""
        model, data, controller, arm = self._model, self._data, self._controller, self._arm
        translation, rotation = self._jacobian[:3], self._jacobian[3:]
        mujoco.mj_jacSite(model, data, translation, rotation, self._site)
        mujoco.mj_fullM(model, self._mass, data.qM)
        np.dot(translation, self._qvel, out=controller.ee_pos_vel)
        np.dot(rotation, self._qvel, out=controller.ee_ori_vel)
        controller.ee_pos[:] = self._site_position
        controller.ee_ori_mat[:] = self._site_rotation
        controller.joint_pos[:] = self._arm_qpos
        controller.joint_vel[:] = self._arm_qvel
        controller.J_full[:] = self._jacobian[:, arm]
        controller.J_pos[:] = translation[:, arm]
        controller.J_ori[:] = rotation[:, arm]
        controller.mass_matrix[:] = self._mass[arm, arm]

    def _torques(self) -> Float64[np.ndarray, " joint"]:
        """Torques of operational-space control (Khatib 1987; robosuite's `run_controller`)."""
        controller, law = self._controller, self._law
        _, inertia, turning_inertia, nullspace = law.opspace_matrices(
            controller.mass_matrix, controller.J_full, controller.J_pos, controller.J_ori
        )
        np.subtract(controller.goal_pos, controller.ee_pos, out=self._error)
        wanted = self._damped(self._error, controller.ee_pos_vel, self._kp[0], self._kd[0])
        np.dot(inertia, wanted, out=self._force)
        error = law.orientation_error(controller.goal_ori, controller.ee_ori_mat)
        wanted = self._damped(error, controller.ee_ori_vel, self._kp[1], self._kd[1])
        np.dot(turning_inertia, wanted, out=self._turn)
        torques: Float64[np.ndarray, " joint"] = np.dot(controller.J_full.T, self._wrench)
        torques += self._arm_bias
        joints = controller.initial_joint, controller.joint_pos, controller.joint_vel
        torques += law.nullspace_torques(controller.mass_matrix, nullspace, *joints)
        controller.torques = torques
        return torques

    def _damped(self, error: Vector3, velocity: Vector3, stiffness: Vector3, damping: Vector3) -> Vector3:
        """Acceleration of a spring and a damper; overwrites the error."""
        error *= stiffness
        np.negative(velocity, out=self._brake)
        self._brake *= damping
        error += self._brake
        return error


class _Fingers:
    """The gripper's motors. robosuite moves them by a hundredth of their range per physics step."""

    def __init__(self, robot: Any, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        motors = _run(robot._ref_joint_gripper_actuator_indexes)
        low, high = model.actuator_ctrlrange[motors].T
        self._bias, self._weight = 0.5 * (high + low), 0.5 * (high - low)
        self._motors = data.ctrl[motors]
        self._step = np.zeros(len(self._motors))
        self._directions = np.array([-1.0, 1.0]) * robot.gripper.speed
        gripper = robot.gripper
        self._place = gripper.current_action = np.resize(gripper.current_action, len(self._motors))

    def set_goal(self, action: float) -> None:
        self._step = self._directions * np.sign(action)

    def move(self) -> None:
        """One physics step (robosuite's `PandaGripper.format_action` and `Robot.grip_action`)."""
        place, motors = self._place, self._motors
        place += self._step
        np.maximum(place, -1.0, out=place)
        np.minimum(place, 1.0, out=place)
        np.multiply(self._weight, place, out=motors)
        motors += self._bias


def _run(indexes: Sequence[int]) -> slice:
    """The slice of consecutive indices, which reads an array without a copy."""
    run = slice(indexes[0], indexes[-1] + 1)
    assert list(indexes) == list(range(run.start, run.stop)), indexes
    return run


def _axis_angle(quaternion: Float64[np.ndarray, " 4"]) -> Vector3:
    """Rotation vector of a quaternion (w, x, y, z), as robosuite and openpi compute it (0 to 2π)."""
    w = min(max(float(quaternion[0]), -1.0), 1.0)
    sine = math.sqrt(1.0 - w * w)
    if math.isclose(sine, 0.0):
        return np.zeros(3)
    return quaternion[1:] * 2.0 * math.acos(w) / sine
