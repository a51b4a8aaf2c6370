"""A suite and a world without physics, for tests and policy development."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float64, UInt8
from pydantic import Field

from configs.schema import Preset, SuiteConfig, Wordings
from contracts.episode import EpisodeKey
from contracts.observation import Observation
from contracts.truth import HELD, CompletedAction, Fact, Memory, Narration, Phase, Truth, Verb
from sim_envs.eef_interface import delta_eef_interface
from sim_envs.suite import ConfiguredSuite, InitIds, Task
from sim_envs.world import AdvanceResult

_CLOSE, _LIFT, _LOWER, _DONE = 3, 6, 9, 12  # control steps at which the phase of the ground truth changes


@dataclasses.dataclass
class FakeWorld:
    """Counts steps. Images and state are functions of (init_id, seed, steps taken, actions)."""

    success_at: int | None = None  # control steps after which the task is solved; never if None
    lost_at: int | None = None  # control steps after which the task can no longer be solved; never if None
    fails_at: int | None = None  # control steps after which the simulator raises; never if None
    image_size: int = 8  # height and width of images, pixels
    language: str = "put the black bowl on the plate"
    steps: int = 0
    closed: bool = False
    _state: Float64[np.ndarray, "8"] = dataclasses.field(default_factory=lambda: np.zeros(8))
    _tint: int = 0

    def reset(self, *, init_id: int, seed: int, settle_steps: int) -> None:
        """Start an episode. `settle_steps` only sets the initial state vector."""
        self.steps = 0
        self._tint = (init_id * 16 + seed) % 256
        self._state = np.full(8, settle_steps / 100.0)

    def advance(self, actions: Float64[np.ndarray, "steps action"]) -> AdvanceResult:
        """Add the actions to the state, whose first three numbers are a position, until success."""
        path = [self._state[:3].copy()]
        for action in actions:
            self.steps += 1
            if self.steps == self.fails_at:
                raise RuntimeError(f"the fake simulator fails at step {self.steps}, as configured")
            self._state[:7] += action
            path.append(self._state[:3].copy())
            if self.steps in (self.success_at, self.lost_at):
                break
        success, failed = (len(path) > 1 and self.steps == at for at in (self.success_at, self.lost_at))
        return AdvanceResult(steps=len(path) - 1, success=success, failed=failed, end_effector=np.array(path))

    def observe(self) -> Observation:
        """Two uniform images whose grey level changes with time."""
        level = np.uint8((self._tint + self.steps) % 256)
        image = np.full((self.image_size, self.image_size, 3), level, dtype=np.uint8)
        return Observation(
            images={"image": image, "wrist_image": image}, state=self._state.copy(), language=self.language
        )

    def render(self, camera: str) -> UInt8[np.ndarray, "height width 3"]:
        """The camera's image in `observe`."""
        return self.observe().images[camera]

    def truth(self) -> Truth:
        """A bowl is put on a plate, as a function of the step count."""
        put = CompletedAction(verb=Verb.PUT, subject="black bowl", place="plate")
        if self.steps >= _DONE or self.steps == self.success_at:
            memory = Memory(done=(put,), facts=frozenset([put.resulting_fact()]))
            reached = (put.resulting_fact(),)
            return Truth(narration=Narration(phase=Phase.DONE), memory=memory, textual_memory=reached)
        state = "on the table" if self.steps < _LIFT else HELD
        memory = Memory(facts=frozenset([Fact(subject=put.subject, state=state)]))
        phases = {_CLOSE: Phase.APPROACH, _LIFT: Phase.GRASP, _LOWER: Phase.CARRY, _DONE: Phase.PLACE}
        phase = next(phase for end, phase in phases.items() if self.steps < end)
        target = put.place if phase in (Phase.CARRY, Phase.PLACE) else None
        narration = Narration(phase=phase, object=put.subject, target=target)
        return Truth(narration=narration, memory=memory, textual_memory=())

    def progress(self) -> float:
        """Steps taken as a fraction of those to success; 0 if there is no success."""
        return 0.0 if self.success_at is None else min(1.0, self.steps / self.success_at)

    def close(self) -> None:
        """Record that the world was closed."""
        self.closed = True


class FakeEnvironment(Preset):
    """The `environment` of a fake suite's YAML."""

    instructions: tuple[str, ...] = ("put the black bowl on the plate",)  # one per task, in order of task id
    init_ids: int = Field(default=10, gt=0)  # number of initial states per task
    success_at: int | None = None  # control steps after which a task is solved; never if None
    fails_at: int | None = None  # control steps after which the simulator raises; never if None


class FakeSuite(ConfiguredSuite[FakeEnvironment]):
    """Tasks of `FakeWorld`. Implements `sim_envs.suite.Suite`.

    Its interface is that of relative end-effector control, so that the bundled policy fits.
    """

    # The default protocol.
    published: ClassVar[SuiteConfig] = SuiteConfig(
        name="fake",
        world="sim_envs.fake:FakeSuite",
        max_steps=20,
        settle_steps=2,
        trials_per_task=2,
        control_hz=20,
        camera_size=8,
        replan_steps=5,
    )

    environment_type = FakeEnvironment

    def __init__(self, protocol: SuiteConfig = published, *, assets: str = "auto") -> None:
        super().__init__(protocol, assets=assets)
        self.interface = delta_eef_interface(
            protocol.name, camera_size=protocol.camera_size, control_hz=protocol.control_hz
        )

    def tasks(self) -> tuple[Task, ...]:
        """One task per instruction."""
        return self._enumerated(
            (f"task_{number}", text) for number, text in enumerate(self.environment.instructions)
        )

    def init_ids(self, task: Task) -> InitIds:
        """Stored states, as many as configured."""
        return InitIds(stored=self.environment.init_ids)

    def instruction(self, key: EpisodeKey, wordings: Wordings) -> str:
        """The task's instruction, for any wordings."""
        return self.environment.instructions[key.task_id]

    def check(self, tasks: Iterable[Task]) -> None:
        """Do nothing: there are no requirements."""

    def open(self, task: Task) -> FakeWorld:
        """Open a new world."""
        return FakeWorld(
            success_at=self.environment.success_at,
            fails_at=self.environment.fails_at,
            image_size=self.protocol.camera_size,
            language=task.language,
        )

    def describe(self, wordings: Wordings) -> Mapping[str, Any]:
        """The `environment`."""
        return self.environment.model_dump(mode="json")
