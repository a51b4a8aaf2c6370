"""DROID's station as a world: `advance` runs physics only, `observe` renders."""

import mujoco
import numpy as np
from jaxtyping import Float64, UInt8
from typing_extensions import override

from configs.droid import CONTROL_HZ
from contracts.motion import Drift, Shuttle
from contracts.observation import Observation
from contracts.truth import Truth
from sim_envs.droid.control import CAMERAS, Control, image_size
from sim_envs.droid.station import Station
from sim_envs.droid.task_file import TaskConfig
from sim_envs.droid.truth import DroidScene, Rubric
from sim_envs.rendering import Cameras
from sim_envs.truth.tracker import EpisodeTruth
from sim_envs.world import AdvanceResult, TaskError, World, checked_actions

ACTION_SIZE = 8  # seven joint velocities or positions, see `Control`, and the gripper (above 0.5 closes)
_VISUAL_GROUP = 1


class DroidSim(World):
    """A simulator with one task.

    A trajectory is a function of (task, control, variation, motion, init_id, seed, actions). Initial states
    below `task_file.STORED` are the same for every seed; those from `task_file.FIRST_SAMPLED` on are sampled
    from id and seed. A process with an instance must not fork.
    """

    def __init__(
        self,
        task: TaskConfig,
        *,
        control: Control,
        image_height: int = 180,
        variation: float = 0.0,
        motion: Shuttle | Drift | None = None,
    ) -> None:
        """Build and compile the task's scene. No renderer is opened before the first `observe`.

        The variation of camera, lights, table and distractors between episodes is 0, with nothing added to
        the scene, to 1. Objects to be grasped have the motion until they are touched.
        """
        self.task = task
        self.station = Station(  # for privileged controllers to read and copy, but not to step
            task,
            control,
            is_arranged=lambda station: Rubric(station).is_arranged(),
            variation=variation,
            motion=motion,
        )
        self.rubric, self.perturber = Rubric(self.station), self.station.perturber
        option = mujoco.MjvOption()
        option.geomgroup[:] = [group == _VISUAL_GROUP for group in range(len(option.geomgroup))]
        option.sitegroup[:] = 0
        self._cameras = Cameras(self.station.model, CAMERAS, size=image_size(image_height), option=option)
        self._tracker: EpisodeTruth  # of the episode, from its reset on

    @override
    def reset(self, *, init_id: int, seed: int, settle_steps: int) -> None:
        self.station.reset(init_id=init_id, seed=seed, settle_steps=settle_steps)
        self.rubric = Rubric(self.station)
        self._tracker = EpisodeTruth(lambda: DroidScene(self.rubric), control_hz=CONTROL_HZ)
        if all(map(self.rubric.holds, self.task.rubric)):
            raise TaskError.solved_at_start(f"task {self.task.name}", init_id)

    @override
    def advance(self, actions: Float64[np.ndarray, "steps action"]) -> AdvanceResult:
        actions = checked_actions(actions, size=ACTION_SIZE)
        success, path = False, [self.station.end_effector]
        for action in actions:
            self.station.step(action)
            self.perturber.step()
            path.append(self.station.end_effector)
            success = self.rubric.judge()
            self._tracker.step(solved=success)
            if success:
                break
        return AdvanceResult(steps=len(path) - 1, success=success, end_effector=np.array(path))

    @override
    def observe(self) -> Observation:
        state = self.policy_state()
        images = {camera: self.render(camera) for camera in CAMERAS}
        return Observation(images=images, state=state, language=self.task.instruction)

    @override
    def render(self, camera: str) -> UInt8[np.ndarray, "height width 3"]:
        self._cameras.capture(self.station.data)
        return self.perturber.picture(np.ascontiguousarray(self._cameras.draw(camera)[::-1]))

    @override
    def truth(self) -> Truth:
        return self._tracker.truth()

    @override
    def progress(self) -> float:
        return sum(self.rubric.reached) / len(self.rubric.reached)

    def policy_state(self) -> Float64[np.ndarray, " 8"]:
        """The state as in `observe`, without rendering: seven joints (rad), gripper (1 closed)."""
        return np.append(self.station.joints, self.station.gripper)

    @override
    def close(self) -> None:
        self._cameras.close()
