"""The physics of one task: initial states, control steps, and moving objects."""

import copy
import math
from collections.abc import Mapping

import mujoco
import numpy as np
from jaxtyping import Float64

from configs.hashing import seed_of
from configs.motion import Drift, Shuttle
from sim_envs.droid.control import (
    ARM_JOINTS,
    ASPECT,
    EXTERIOR_CAMERA,
    FINGER_JOINT,
    GRIP_SITE,
    GRIPPER_CLOSED,
    Control,
    arm_target,
    gripper_target,
)
from sim_envs.droid.placement import Placement, draw
from sim_envs.droid.scene import PHYSICS_STEPS, build_model, part_name
from sim_envs.droid.shapes import Articulated, Drive, about_z, is_too_wide
from sim_envs.droid.task_file import (
    FARTHEST,
    NEAREST,
    InsideCriterion,
    LiftCriterion,
    ObjectConfig,
    OnCriterion,
    TaskConfig,
    UprightCriterion,
)
from sim_envs.droid.variation import VariedScene
from sim_envs.moving import Bounds, Mover, sample_movers
from sim_envs.world import PhysicsError


def movable(task: TaskConfig) -> list[str]:
    """The objects that the rubric requires to be grasped and that initially stand on the table."""
    grasping = LiftCriterion | OnCriterion | InsideCriterion | UprightCriterion
    wanted = dict.fromkeys(each.object for each in task.rubric if isinstance(each, grasping))
    things = {name: task.objects[name] for name in wanted}
    return [
        name
        for name, obj in things.items()
        if obj.carrier is None and not obj.is_fixed and not is_too_wide(obj.shape)
    ]


def movers(
    task: TaskConfig, data: mujoco.MjData, motion: Shuttle | Drift, *, init_id: int, seed: int
) -> dict[str, Mover]:
    """The movers of an episode, equal in both control modes; see `sample_movers`."""
    model = data.model
    bounds = Bounds(
        robot=model.body("link0").id,
        reach=(NEAREST, FARTHEST),
        camera=model.camera(EXTERIOR_CAMERA).id,
        aspect=ASPECT,
    )
    bodies = {name: model.body(name).id for name in movable(task)}
    digest = seed_of(f"{task.name}.{init_id}.{seed}")
    return sample_movers(data, bodies, motion, bounds, digest=digest)


RESET_JOINTS = np.array([0, -np.pi / 5, 0, -4 * np.pi / 5, 0, 3 * np.pi / 5, 0])
"""DROID's initial joint positions, rad."""

_DIVERGED = (
    mujoco.mjtWarning.mjWARN_BADQPOS,
    mujoco.mjtWarning.mjWARN_BADQVEL,
    mujoco.mjtWarning.mjWARN_BADQACC,
)


class Station:
    """The compiled scene of a task and its state.

    Attributes:
        task: The task.
        control: The control mode.
        model: The scene; fixed objects and variation are those of the last reset.
        data: Its state.
        qpos: Indices of the arm's joints in `qpos`.
        dof: Indices of the arm's joints in `qvel`.
        movers: Movers of the episode by name of the object.
    """

    def __init__(
        self,
        task: TaskConfig,
        control: Control,
        *,
        variation: float = 0.0,
        motion: Shuttle | Drift | None = None,
    ) -> None:
        """Build and compile the scene.

        Args:
            task: The task.
            control: The control mode.
            variation: Variation of the scene between episodes, 0 to 1; at 0 nothing is added to it.
            motion: Motion of objects to be grasped, until they are touched; None for no motion.
        """
        self.task, self.control = task, control
        self.model = build_model(task, varies=variation > 0)
        self._varied = VariedScene(task, self.model, strength=variation) if variation > 0 else None
        self.data = mujoco.MjData(self.model)
        self.qpos = np.array([self.model.joint(name).qposadr[0] for name in ARM_JOINTS])
        self.dof = np.array([self.model.joint(name).dofadr[0] for name in ARM_JOINTS])
        self._finger = int(self.model.joint(FINGER_JOINT).qposadr[0])
        self._drives = _drives(task, self.model)
        self._gripper_target = 0.0
        self._begun: float | None = None
        self._motion = motion
        self.movers: Mapping[str, Mover] = {}

    @property
    def joints(self) -> Float64[np.ndarray, " 7"]:
        """The arm's joint positions, rad."""
        return self.data.qpos[self.qpos]

    @property
    def joint_velocities(self) -> Float64[np.ndarray, " 7"]:
        """The arm's joint velocities, rad/s."""
        return self.data.qvel[self.dof]

    @property
    def gripper(self) -> float:
        """0 open, 1 closed."""
        return float(np.clip(self.data.qpos[self._finger] / GRIPPER_CLOSED, 0.0, 1.0))

    @property
    def end_effector(self) -> Float64[np.ndarray, " 3"]:
        """Position between the fingertips, m."""
        return self.data.site(GRIP_SITE).xpos.copy()

    def copy(self) -> "Station":
        """An independent copy of the current state."""
        twin = copy.copy(self)
        twin.data = copy.copy(self.data)
        twin.movers = {name: mover.copy(twin.data) for name, mover in self.movers.items()}
        return twin

    def reset(self, *, init_id: int, seed: int, settle_steps: int) -> None:
        """Load an initial state and hold still for `settle_steps`.

        The drives of machines start only then, or after their delay; so does motion.
        """
        self.movers = {}
        mujoco.mj_resetData(self.model, self.data)
        if self._varied is not None:
            self._varied.apply(self.data, init_id=init_id, seed=seed)
        for name, place in draw(self.task, init_id=init_id, seed=seed).items():
            self._put(name, self.task.objects[name], place)
        self.data.qpos[self.qpos] = RESET_JOINTS
        self._gripper_target, self._begun = 0.0, None
        mujoco.mj_forward(self.model, self.data)
        for _ in range(settle_steps):
            self._drive(RESET_JOINTS, 0.0)
        self._begun = self.data.time
        if self._motion is not None:
            self.movers = movers(self.task, self.data, self._motion, init_id=init_id, seed=seed)

    def step(self, action: Float64[np.ndarray, " 8"]) -> None:
        """Run one control step.

        Raises:
            PhysicsError: The physics diverged.
        """
        self._drive(arm_target(self.control, action[:7], self.joints), float(action[7]))

    def _drive(self, arm: Float64[np.ndarray, " 7"], gripper: float) -> None:
        """Run one control step towards joint positions (rad)."""
        self._gripper_target = gripper_target(gripper, self._gripper_target, self.gripper)
        self.data.ctrl[:7] = arm
        self.data.ctrl[7] = self._gripper_target * GRIPPER_CLOSED
        for motor, drive in self._drives.items():
            runs = self._begun is not None and self.data.time - self._begun >= drive.delay
            self.data.ctrl[motor] = drive.target if runs else 0.0
        at_once = 1 if self.movers else PHYSICS_STEPS
        for _ in range(PHYSICS_STEPS // at_once):
            mujoco.mj_step(self.model, self.data, at_once)
            for mover in self.movers.values():
                mover.lead()
        if any(self.data.warning[kind].number for kind in _DIVERGED):
            raise PhysicsError(f"MuJoCo's state diverged in task {self.task.name}")
        # After mj_step, poses are those before the last integration.
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)

    def _put(self, name: str, obj: ObjectConfig, place: Placement) -> None:
        turned, at = about_z(place.yaw), np.array([place.x, place.y, place.z])
        if obj.lying:  # a quarter turn about y first: the underside is at the rear end
            cos, _, _, sin = (math.sqrt(0.5) * part for part in turned)
            turned = cos, -sin, cos, sin
            length, radius = obj.shape.extent[2], obj.shape.extent[0] / 2
            at += np.array([-np.cos(place.yaw) * length / 2, -np.sin(place.yaw) * length / 2, radius])
        if obj.is_fixed:
            body = self.model.body(name).id
            self.model.body_pos[body], self.model.body_quat[body] = at, turned
        else:
            self.data.joint(name).qpos[:] = [*at, *turned]


def _drives(task: TaskConfig, model: mujoco.MjModel) -> Mapping[int, Drive]:
    """The drives of a task's objects, by actuator id."""
    return {
        int(model.actuator(part_name(name, part)).id): part.drive
        for name, obj in task.objects.items()
        if isinstance(obj.shape, Articulated)
        for part in obj.shape.parts()
        if part.drive is not None
    }
