"""robosuite's OSC_POSE arm controller and gripper, bit for bit, without what a trajectory does not depend on.

robosuite 1.4.0 calls `mj_forward` three times per physics step: before the controller, inside it, and in
`mj_step`. Positions and velocities are the same in all three, so their stages (collision detection above all)
need computing once. The constraint solver has to run three times all the same: each run starts from the
result of the one before, and the last bits of a trajectory depend on it.
"""

from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float64


class Arm:
    """The controller, robot and gripper of one reset robosuite environment.

    The controller's own state (goal, last readings) stays in robosuite's object, so that code which reads it
    there (a privileged controller, say) finds what it would find in robosuite.
    """

    def __init__(self, env: Any) -> None:
        from robosuite.utils import control_utils

        self._law = control_utils
        self._robot = env.robots[0]
        self._controller = self._robot.controller
        self._model: mujoco.MjModel = env.sim.model._model
        self._data: mujoco.MjData = env.sim.data._data
        controller, robot = self._controller, self._robot
        self._site = self._model.site(controller.eef_name).id
        self._qpos = np.array(controller.qpos_index)
        self._qvel = np.array(controller.qvel_index)
        self._motors = np.array(robot._ref_joint_actuator_indexes)
        self._torque_low, self._torque_high = (np.array(limit) for limit in robot.torque_limits)
        self._fingers = np.array(robot._ref_joint_gripper_actuator_indexes)
        low, high = self._model.actuator_ctrlrange[self._fingers].T
        self._finger_bias, self._finger_weight = 0.5 * (high + low), 0.5 * (high - low)
        self._jacobian_rows = np.zeros((3, self._model.nv)), np.zeros((3, self._model.nv))
        self._mass = np.zeros((self._model.nv, self._model.nv))

    def physics_step(self, action: Float64[np.ndarray, " 7"], *, new_goal: bool) -> None:
        """One step of `model.opt.timestep` seconds under the action.

        Args:
            action: Arm deltas and gripper, within [-1, 1] (the controller clips).
            new_goal: Whether this is the first physics step of the action, which sets the arm's goal.
        """
        model, data, controller = self._model, self._data, self._controller
        mujoco.mj_forwardSkip(model, data, mujoco.mjtStage.mjSTAGE_NONE, 1)
        if controller.new_update:
            self._read()
        if new_goal:
            controller.set_goal(action[:6])
        data.ctrl[self._motors] = np.clip(self._torques(), self._torque_low, self._torque_high)
        fingers = self._robot.gripper.format_action(action[6:])
        data.ctrl[self._fingers] = self._finger_bias + self._finger_weight * fingers
        mujoco.mj_step2(model, data)

    def _read(self) -> None:
        """Refresh the controller's readings (robosuite's `Controller.update`)."""
        model, data, controller = self._model, self._data, self._controller
        mujoco.mj_forwardSkip(model, data, mujoco.mjtStage.mjSTAGE_VEL, 1)
        translation, rotation = self._jacobian_rows
        mujoco.mj_jacSite(model, data, translation, rotation, self._site)
        mujoco.mj_fullM(model, self._mass, data.qM)
        controller.ee_pos = data.site_xpos[self._site].copy()
        controller.ee_ori_mat = data.site_xmat[self._site].reshape(3, 3).copy()
        controller.ee_pos_vel = np.dot(translation, data.qvel)
        controller.ee_ori_vel = np.dot(rotation, data.qvel)
        controller.joint_pos = data.qpos[self._qpos]
        controller.joint_vel = data.qvel[self._qvel]
        # The copies keep robosuite's memory order, on which the last bit of a matrix product may depend.
        controller.J_pos = np.array(translation[:, self._qvel])
        controller.J_ori = np.array(rotation[:, self._qvel])
        controller.J_full = np.vstack([controller.J_pos, controller.J_ori])
        controller.mass_matrix = self._mass[self._qvel, :][:, self._qvel]
        controller.new_update = False

    def _torques(self) -> Float64[np.ndarray, " joint"]:
        """Torques of operational-space control (Khatib 1987; robosuite's `run_controller`)."""
        controller, law = self._controller, self._law
        _, lambda_position, lambda_orientation, nullspace = law.opspace_matrices(
            controller.mass_matrix, controller.J_full, controller.J_pos, controller.J_ori
        )
        orientation_error = law.orientation_error(np.array(controller.goal_ori), controller.ee_ori_mat)
        force = (controller.goal_pos - controller.ee_pos) * controller.kp[:3] + -controller.ee_pos_vel * (
            controller.kd[:3]
        )
        torque = orientation_error * controller.kp[3:] + -controller.ee_ori_vel * controller.kd[3:]
        wrench = np.concatenate([np.dot(lambda_position, force), np.dot(lambda_orientation, torque)])
        torques = np.dot(controller.J_full.T, wrench) + self._data.qfrc_bias[self._qvel]
        torques += law.nullspace_torques(
            controller.mass_matrix,
            nullspace,
            controller.initial_joint,
            controller.joint_pos,
            controller.joint_vel,
        )
        controller.torques = torques
        controller.new_update = True
        return torques
