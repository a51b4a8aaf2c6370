"""robosuite's OSC_POSE arm controller and gripper, bit for bit, without what no trajectory depends on.

robosuite 1.4.0 calls `mj_forward` three times per physics step: before the controller, inside it, and in
`mj_step`. Positions and velocities are the same in all three, so their stages (collision detection above all)
need computing once. The constraint solver has to run three times all the same: each run starts from the
result of the one before, and the last bits of a trajectory depend on it.
"""

import math
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float64


class Arm:
    """The controller, robot and gripper of a robosuite environment, from one reset to the next.

    The controller's own state (goal, last readings) stays in robosuite's objects, so that code which reads it
    there (a privileged controller, say) finds what it would find in robosuite. Its buffers of recent readings
    are not kept.
    """

    def __init__(self, env: Any) -> None:
        """Take over the arm of an environment that has just been reset."""
        from robosuite.utils import control_utils

        self._law = control_utils
        robot = env.robots[0]
        controller = robot.controller
        model: mujoco.MjModel = env.sim.model._model
        data: mujoco.MjData = env.sim.data._data
        self._controller, self._gripper = controller, robot.gripper
        self._model, self._data = model, data
        self._site = model.site(controller.eef_name).id
        self._joint_qpos, self._joint_qvel = np.array(controller.qpos_index), np.array(controller.qvel_index)
        self._motors = np.array(robot._ref_joint_actuator_indexes)
        self._torque_low, self._torque_high = (np.array(limit) for limit in robot.torque_limits)
        self._fingers = np.array(robot._ref_joint_gripper_actuator_indexes)
        low, high = model.actuator_ctrlrange[self._fingers].T
        self._finger_bias, self._finger_weight = 0.5 * (high + low), 0.5 * (high - low)
        self._kp, self._kd = np.split(controller.kp, 2), np.split(controller.kd, 2)
        # Views into MuJoCo's memory and scratch space, since looking an array up costs as much as using it.
        self._site_position, self._site_rotation = data.site_xpos[self._site], data.site_xmat[self._site]
        self._qpos, self._qvel, self._ctrl, self._bias = data.qpos, data.qvel, data.ctrl, data.qfrc_bias
        self._hand_quaternion = data.body(robot.robot_model.eef_name).xquat
        self._finger_qpos = np.array(robot._ref_gripper_joint_pos_indexes)
        self._jacobian = np.zeros((6, model.nv))
        self._mass = np.zeros((model.nv, model.nv))

    def physics_step(self, action: Float64[np.ndarray, " 7"], *, new_goal: bool) -> None:
        """One step of `model.opt.timestep` seconds under the action.

        Args:
            action: Arm deltas and gripper; what exceeds [-1, 1] is clipped.
            new_goal: Whether this is the first physics step of the action, which sets the arm's goal.
        """
        controller = self._controller
        mujoco.mj_forwardSkip(self._model, self._data, mujoco.mjtStage.mjSTAGE_NONE, 1)
        # Not in the first physics step after a reset: robosuite's controller then acts on what it read while
        # the robot stood in its default pose.
        if controller.new_update:
            self._read()
        if new_goal:
            controller.set_goal(action[:6])
        self._ctrl[self._motors] = self._torques().clip(self._torque_low, self._torque_high)
        fingers = self._gripper.format_action(action[6:])
        self._ctrl[self._fingers] = self._finger_bias + self._finger_weight * fingers
        mujoco.mj_step2(self._model, self._data)

    def policy_state(self) -> Float64[np.ndarray, " 8"]:
        """End-effector position (m) and axis-angle (rad), finger joints (m), as LIBERO's sensors read them
        now."""
        orientation = _axis_angle(self._hand_quaternion)
        return np.concatenate([self._site_position, orientation, self._qpos[self._finger_qpos]])

    def _read(self) -> None:
        """Refresh the controller's readings (robosuite's `Controller.update`)."""
        model, data, controller = self._model, self._data, self._controller
        mujoco.mj_forwardSkip(model, data, mujoco.mjtStage.mjSTAGE_VEL, 1)
        translation, rotation = self._jacobian[:3], self._jacobian[3:]
        mujoco.mj_jacSite(model, data, translation, rotation, self._site)
        mujoco.mj_fullM(model, self._mass, data.qM)
        controller.ee_pos = self._site_position.copy()
        controller.ee_ori_mat = self._site_rotation.reshape(3, 3).copy()
        controller.ee_pos_vel = np.dot(translation, self._qvel)
        controller.ee_ori_vel = np.dot(rotation, self._qvel)
        controller.joint_pos = self._qpos[self._joint_qpos]
        controller.joint_vel = self._qvel[self._joint_qvel]
        # Indexed as in robosuite, for the same memory order: the last bit of a matrix product may depend on
        # it.
        controller.J_full = self._jacobian[:, self._joint_qvel]
        controller.J_pos = translation[:, self._joint_qvel]
        controller.J_ori = rotation[:, self._joint_qvel]
        controller.mass_matrix = self._mass[self._joint_qvel, :][:, self._joint_qvel]
        controller.new_update = False

    def _torques(self) -> Float64[np.ndarray, " joint"]:
        """Torques of operational-space control (Khatib 1987; robosuite's `run_controller`)."""
        controller, law = self._controller, self._law
        _, lambda_position, lambda_orientation, nullspace = law.opspace_matrices(
            controller.mass_matrix, controller.J_full, controller.J_pos, controller.J_ori
        )
        position_error = controller.goal_pos - controller.ee_pos
        orientation_error = law.orientation_error(controller.goal_ori, controller.ee_ori_mat)
        force = position_error * self._kp[0] + -controller.ee_pos_vel * self._kd[0]
        torque = orientation_error * self._kp[1] + -controller.ee_ori_vel * self._kd[1]
        wrench = np.concatenate([np.dot(lambda_position, force), np.dot(lambda_orientation, torque)])
        controller.torques = np.dot(controller.J_full.T, wrench) + self._bias[self._joint_qvel]
        controller.torques += law.nullspace_torques(
            controller.mass_matrix,
            nullspace,
            controller.initial_joint,
            controller.joint_pos,
            controller.joint_vel,
        )
        controller.new_update = True
        return controller.torques


def _axis_angle(quaternion: Float64[np.ndarray, " 4"]) -> Float64[np.ndarray, " 3"]:
    """Rotation vector of a quaternion (w, x, y, z), as robosuite and openpi compute it (0 to 2π)."""
    w = min(max(float(quaternion[0]), -1.0), 1.0)
    sine = math.sqrt(1.0 - w * w)
    if math.isclose(sine, 0.0):
        return np.zeros(3)
    return quaternion[1:] * 2.0 * math.acos(w) / sine
