"""DROID's station with two verbs: `advance` runs physics and renders nothing, `observe` looks once."""

import mujoco
import numpy as np
from jaxtyping import Float64

from sim_envs.droid.cameras import DroidCameras
from sim_envs.droid.control import Control, arm_target, gripper_target
from sim_envs.droid.placement import Placement, draw
from sim_envs.droid.robot import ARM_JOINTS, FINGER_JOINT, GRIPPER_CLOSED
from sim_envs.droid.rubric import Rubric
from sim_envs.droid.scene import PHYSICS_STEPS, build_model, upright_quaternion
from sim_envs.droid.task_file import ObjectConfig, TaskConfig
from sim_envs.world import Advance, Observation, PhysicsError, checked_actions

ACTION_SIZE = 8

RESET_JOINTS = np.array([0, -np.pi / 5, 0, -4 * np.pi / 5, 0, 3 * np.pi / 5, 0])
"""Where DROID begins an episode, rad."""

_DIVERGED = (mujoco.mjtWarning.mjWARN_BADQPOS, mujoco.mjtWarning.mjWARN_BADQVEL, mujoco.mjtWarning.mjWARN_BADQACC)


class DroidSim:
    """One task, loaded. Implements `sim_envs.world.World`.

    A trajectory is a function of (task, control, init_id, seed, actions); from a stored initial state the
    seed does not matter. An instance belongs to the thread that made it. Processes must not be forked from
    one that holds an instance.

    Attributes:
        task: The task.
        control: What the first seven numbers of an action ask for.
        model: The scene, for controllers with privileged access.
        data: Its state, likewise. To be read, not stepped.
        rubric: Judges the episode.
    """

    def __init__(self, task: TaskConfig, *, control: Control, image_height: int = 180) -> None:
        """Build and compile the task's scene. No renderer is opened before the first `observe`.

        Args:
            task: From `task_file.load_task`.
            control: What the first seven numbers of an action ask for.
            image_height: Rows of an image.
        """
        self.task, self.control = task, control
        self.model = build_model(task)
        self.data = mujoco.MjData(self.model)
        self.rubric = Rubric(task, self.model, self.data)
        self._cameras = DroidCameras(self.model, height=image_height)
        self._qpos = np.array([self.model.joint(name).qposadr[0] for name in ARM_JOINTS])
        self._finger = int(self.model.joint(FINGER_JOINT).qposadr[0])
        self._gripper_target = 0.0
        self._ready = self._closed = False

    def reset(self, *, init_id: int, seed: int, settle_steps: int) -> None:
        """Put arm and objects where the initial state has them, and let them settle. Renders nothing.

        Args:
            init_id: Below `placement.STORED` a state that is the same for every seed; from
                `placement.FIRST_DRAWN` on, one that is drawn anew for every number and seed.
            seed: See `init_id`.
            settle_steps: Control steps of holding still with an open gripper.
        """
        self._require_open()
        mujoco.mj_resetData(self.model, self.data)
        for name, place in draw(self.task, init_id=init_id, seed=seed).items():
            self._put(name, self.task.objects[name], place)
        self.data.qpos[self._qpos] = RESET_JOINTS
        self._gripper_target = 0.0
        self._ready = True
        mujoco.mj_forward(self.model, self.data)
        for _ in range(settle_steps):
            self._move(RESET_JOINTS, 0.0)
        self.rubric.begin()

    def advance(self, actions: Float64[np.ndarray, "steps action"]) -> Advance:
        """Run the actions, one control step each, without rendering, and stop at success.

        Args:
            actions: Seven joint velocities or positions, and the gripper (> 0.5 closes), each row one action.

        Raises:
            ValueError: The shape is not [n, 8] or a value is not finite; nothing was run.
            PhysicsError: The physics diverged.
            RuntimeError: Not reset yet.
        """
        actions = checked_actions(actions, size=ACTION_SIZE)
        self._require_reset()
        for taken, action in enumerate(actions, start=1):
            self._move(arm_target(self.control, action[:7], self._joints()), float(action[7]))
            if self.rubric.judge(self._gripper()):
                return Advance(steps=taken, success=True)
        return Advance(steps=len(actions), success=False)

    def observe(self) -> Observation:
        """Render both cameras once and read the proprioception.

        Raises:
            UsageError: Nothing can render on this machine.
            RuntimeError: Not reset yet.
        """
        state = self.policy_state()
        return Observation(
            images=self._cameras.take(self.data), state=state, language=self.task.instruction
        )

    def truth(self) -> None:
        """None: this world does not say in words what is going on in it."""

    def progress(self) -> float:
        """The share of the rubric's criteria that have been reached.

        Raises:
            RuntimeError: Not reset yet.
        """
        self._require_reset()
        return self.rubric.progress

    def policy_state(self) -> Float64[np.ndarray, " 8"]:
        """What `observe` returns as state, without rendering: seven joints (rad), gripper (1 closed).

        Raises:
            RuntimeError: Not reset yet.
        """
        self._require_reset()
        return np.append(self._joints(), self._gripper())

    def close(self) -> None:
        """Release the renderer. A second call does nothing."""
        if not self._closed:
            self._closed = True
            self._cameras.close()

    def __enter__(self) -> "DroidSim":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _put(self, name: str, thing: ObjectConfig, place: Placement) -> None:
        turned = upright_quaternion(place.yaw, lying=thing.lying)
        at = np.array([place.x, place.y, 0.0])
        if thing.lying:  # its axis is half its width above the table, its underside at its rear end
            length, radius = thing.shape.extent[2], thing.shape.extent[0] / 2
            at += np.array([-np.cos(place.yaw), -np.sin(place.yaw), 0]) * length / 2 + [0, 0, radius]
        if thing.stands_fast:
            body = self.model.body(name).id
            self.model.body_pos[body], self.model.body_quat[body] = at, turned
        else:
            self.data.joint(name).qpos[:] = [*at, *turned]

    def _move(self, arm: Float64[np.ndarray, " 7"], gripper: float) -> None:
        """One control step towards a target."""
        self._gripper_target = gripper_target(gripper, self._gripper_target, self._gripper())
        self.data.ctrl[:7] = arm
        self.data.ctrl[7] = self._gripper_target * GRIPPER_CLOSED
        mujoco.mj_step(self.model, self.data, PHYSICS_STEPS)
        if any(self.data.warning[kind].number for kind in _DIVERGED):
            raise PhysicsError(f"MuJoCo's state diverged in task {self.task.name}")
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)

    def _joints(self) -> Float64[np.ndarray, " 7"]:
        return self.data.qpos[self._qpos]

    def _gripper(self) -> float:
        return float(np.clip(self.data.qpos[self._finger] / GRIPPER_CLOSED, 0.0, 1.0))

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("the world is closed")

    def _require_reset(self) -> None:
        self._require_open()
        if not self._ready:
            raise RuntimeError("the world has no episode yet: reset it first")
