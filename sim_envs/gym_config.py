"""What a suite's YAML says of a Gymnasium environment under `environment`, and the interface it declares."""

from typing import Any, Literal

from pydantic import Field, model_validator

from configs.errors import UsageError, unknown
from configs.interface import (
    ActionChannels,
    ActionSpec,
    Camera,
    Channels,
    Gripper,
    Hold,
    Interface,
    Motion,
    ObservationSpec,
    Rotation,
)
from configs.schema import Name, Preset, SuiteConfig

RENDER = "render"
"""The key of a camera whose pictures `render()` returns."""


class GymTask(Preset):
    """One task.

    Attributes:
        name: Its name in the suite.
        id: The environment's id in Gymnasium's registry.
        kwargs: What else `gymnasium.make` is given.
        instruction: What a policy is told.
    """

    name: Name
    id: str
    kwargs: dict[str, Any] = Field(default_factory=dict)
    instruction: str = Field(min_length=1)


class GymCamera(Preset):
    """One camera.

    Attributes:
        name: Its name in the suite.
        key: Where its pictures are in an observation (`pixels/top`), or `render` for `env.render()`.
        size: Height and width in pixels, where the environment decides; `camera_size`, square, if None.
        rotated_deg: By how much the world turns its pictures, counterclockwise.
    """

    name: str
    key: str
    size: tuple[int, int] | None = None
    rotated_deg: Literal[0, 90, 180, 270] = 0


class GymState(Preset):
    """Neighbouring numbers of the state that belong together.

    Attributes:
        name: What they are.
        key: Where they are in an observation (`robot/joints`); None if the observation is one array.
        slice: The first and the one after the last of them in that array.
        size: How many they are, if they are the whole array.
        unit: What each is measured in.
    """

    name: str
    key: str | None = None
    slice: tuple[int, int] | None = None
    size: int | None = Field(default=None, gt=0)
    unit: str

    @model_validator(mode="after")
    def _is_measured_once(self) -> "GymState":
        if (self.slice is None) == (self.size is None):
            raise ValueError(f"state {self.name!r}: give `slice` or `size`, one of them")
        if self.slice is not None and not 0 <= self.slice[0] < self.slice[1]:
            raise ValueError(f"state {self.name!r}: slice {list(self.slice)} is not [first, last + 1]")
        return self

    def channels(self) -> Channels:
        """As the interface declares them."""
        size = self.size if self.slice is None else self.slice[1] - self.slice[0]
        assert size is not None
        return Channels(name=self.name, size=size, unit=self.unit)


class GymAction(Preset):
    """Neighbouring numbers of an action that belong together; see `configs.interface.ActionChannels`."""

    name: str
    size: int = Field(gt=0)
    unit: str
    motion: Motion
    hold: Literal["zero", "state", "last_command"]
    state: str | None = None

    def channels(self) -> ActionChannels:
        """As the interface declares them."""
        return ActionChannels(
            name=self.name,
            size=self.size,
            unit=self.unit,
            motion=self.motion,
            hold=Hold[self.hold.upper()],
            state=self.state,
        )


class GymGripper(Preset):
    """The range of one gripper; see `configs.interface.Gripper`."""

    name: str
    open: float
    closed: float


class GymSuccess(Preset):
    """When a task is solved: one of three.

    Attributes:
        info: `info` holds a true value under this key after a step.
        terminated: The environment terminates.
        reward: A step's reward is this or more.
    """

    info: str | None = None
    terminated: Literal[True] | None = None
    reward: float | None = None

    @model_validator(mode="after")
    def _is_one_of_three(self) -> "GymSuccess":
        if len(self.model_fields_set) != 1:
            raise ValueError("`success` is one of `info: KEY`, `terminated: true`, `reward: LEAST`")
        return self

    def holds(self, *, reward: float, terminated: bool, info: dict[str, Any]) -> bool:
        """Whether a step solved the task.

        Raises:
            UsageError: The environment's `info` has no such key.
        """
        if self.info is not None:
            if self.info not in info:
                raise unknown("info key of `success`", self.info, info)
            return bool(info[self.info])
        return terminated if self.reward is None else reward >= self.reward


class GymEnvironment(Preset):
    """A suite of Gymnasium environments that share cameras, state and actions.

    Attributes:
        module: Imported first, since it registers the environments.
        packages: The distributions whose versions decide what an episode is. With `mujoco` among them, the
            renderer is chosen as for the other worlds.
        extra: The extra of this project that installs them.
        tasks: The tasks, by task id.
        init_ids: Initial states of a task. Each is what the environment draws for a seed of its own.
        size_arguments: Keyword arguments of the environments that take `camera_size`.
        cameras: The cameras, in order.
        state: The state, in order.
        state_rotation: What stands for a rotation in it.
        action: The action, in order.
        action_rotation: What stands for a rotation in it.
        grippers: The range of every gripper.
        limits: The least and the most that an action may be, to which actions are clipped; None: not clipped.
        success: When a task is solved.
        physics_error: The exception that says that the physics diverged, as `package.module:Class`.
    """

    module: str | None = None
    packages: tuple[str, ...] = ()
    extra: str | None = None
    tasks: tuple[GymTask, ...] = Field(min_length=1)
    init_ids: int = Field(gt=0)
    size_arguments: tuple[str, ...] = ()
    cameras: tuple[GymCamera, ...] = Field(min_length=1)
    state: tuple[GymState, ...] = Field(min_length=1)
    state_rotation: Rotation = Rotation.NONE
    action: tuple[GymAction, ...] = Field(min_length=1)
    action_rotation: Rotation = Rotation.NONE
    grippers: tuple[GymGripper, ...] = ()
    limits: tuple[float, float] | None
    success: GymSuccess
    physics_error: str | None = None

    @property
    def renders(self) -> bool:
        """Whether a camera's pictures are those of `render()`."""
        return any(camera.key == RENDER for camera in self.cameras)

    @property
    def remedy(self) -> str:
        """How to install what the environments need."""
        wanted = f"oxygen-eval[{self.extra}]" if self.extra else " ".join(self.packages) or str(self.module)
        return f"uv pip install '{wanted}'"

    def interface(self, protocol: SuiteConfig) -> Interface:
        """What the suite declares.

        Raises:
            UsageError: It contradicts itself.
        """
        return Interface(
            name=protocol.name,
            observation=ObservationSpec(
                cameras=tuple(_camera(each, protocol) for each in self.cameras),
                state=tuple(each.channels() for each in self.state),
                rotation=self.state_rotation,
            ),
            action=ActionSpec(
                channels=tuple(each.channels() for each in self.action),
                rotation=self.action_rotation,
                grippers=tuple(Gripper(**gripper.model_dump()) for gripper in self.grippers),
                limits=self.limits,
                control_hz=protocol.control_hz,
            ),
        )


def _camera(camera: GymCamera, protocol: SuiteConfig) -> Camera:
    side = protocol.camera_size
    if camera.size is not None and camera.size[0] != side:
        raise UsageError(
            f"camera_size is {side}, but the environment of {protocol.name} takes pictures of "
            f"{camera.size[0]} × {camera.size[1]} pixels with camera {camera.name!r}: give {camera.size[0]}"
        )
    size = camera.size or (side, side)
    return Camera(name=camera.name, size=size, rotated_deg=camera.rotated_deg)
