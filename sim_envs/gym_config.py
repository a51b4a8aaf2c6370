"""Configuration of a Gymnasium suite: the `environment` of its YAML, and the interface it declares."""

from typing import Any, Literal

from pydantic import Field, model_validator

from configs.errors import UsageError, install_command, unknown
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
"""The key of a camera whose images come from `render()`."""


class GymTask(Preset):
    """One task.

    Attributes:
        name: Name in the suite.
        id: The environment's id in Gymnasium's registry.
        kwargs: Further arguments of `gymnasium.make`.
        instruction: The instruction for the policy.
    """

    name: Name
    id: str
    kwargs: dict[str, Any] = Field(default_factory=dict)
    instruction: str = Field(min_length=1)


class GymCamera(Preset):
    """One camera.

    Attributes:
        name: Name in the suite.
        key: Key of the images in an observation (`pixels/top`), or `render` for `env.render()`.
        size: Height and width in pixels, if fixed by the environment; `camera_size`, square, if None.
        rotated_deg: Rotation that the world applies to the images, counterclockwise.
    """

    name: str
    key: str
    size: tuple[int, int] | None = None
    rotated_deg: Literal[0, 90, 180, 270] = 0


class GymState(Preset):
    """A group of state channels.

    Attributes:
        name: Name of the channels.
        key: Key of the array in an observation (`robot/joints`); None if the observation is one array.
        slice: Start and end (exclusive) within that array.
        size: Number of channels, if they are the whole array.
        unit: Unit of each channel.
    """

    name: str
    key: str | None = None
    slice: tuple[int, int] | None = None
    size: int | None = Field(default=None, gt=0)
    unit: str

    @model_validator(mode="after")
    def _has_slice_or_size(self) -> "GymState":
        if (self.slice is None) == (self.size is None):
            raise ValueError(f"state {self.name!r}: give `slice` or `size`, but not both")
        if self.slice is not None and not 0 <= self.slice[0] < self.slice[1]:
            raise ValueError(f"state {self.name!r}: slice {list(self.slice)} is not [first, last + 1]")
        return self

    def channels(self) -> Channels:
        """The channels for the interface."""
        size = self.size if self.slice is None else self.slice[1] - self.slice[0]
        assert size is not None
        return Channels(name=self.name, size=size, unit=self.unit)


class GymAction(Preset):
    """A group of action channels; see `configs.interface.ActionChannels`."""

    name: str
    size: int = Field(gt=0)
    unit: str
    motion: Motion
    hold: Literal["zero", "state", "last_command"]
    state: str | None = None

    def channels(self) -> ActionChannels:
        """The channels for the interface."""
        return ActionChannels(**self.model_dump(exclude={"hold"}), hold=Hold[self.hold.upper()])


class GymGripper(Preset):
    """Range of a gripper; see `configs.interface.Gripper`."""

    name: str
    open: float
    closed: float


class GymSuccess(Preset):
    """The success criterion: exactly one of these.

    Attributes:
        info: `info` has a true value under this key after a step.
        terminated: The environment terminates.
        reward: The reward of a step is at least this.
    """

    info: str | None = None
    terminated: Literal[True] | None = None
    reward: float | None = None

    @model_validator(mode="after")
    def _has_one_criterion(self) -> "GymSuccess":
        if len(self.model_fields_set) != 1:
            raise ValueError("`success` is one of `info: KEY`, `terminated: true`, `reward: MINIMUM`")
        return self

    def holds(self, *, reward: float, terminated: bool, info: dict[str, Any]) -> bool:
        """Whether a step solved the task.

        Raises:
            UsageError: The environment's `info` lacks the key.
        """
        if self.info is not None:
            if self.info not in info:
                raise unknown("info key of `success`", self.info, info)
            return bool(info[self.info])
        return terminated if self.reward is None else reward >= self.reward


class GymEnvironment(Preset):
    """A suite of Gymnasium environments that share cameras, state and actions.

    Attributes:
        module: Module that registers the environments; imported first.
        packages: Distributions whose versions determine an episode. With `mujoco` among them, the renderer
            is chosen as for the other worlds.
        extra: The extra of this project that installs them.
        tasks: The tasks, in order of task id.
        init_ids: Number of initial states per task. Each is what the environment samples for its own seed.
        size_arguments: Keyword arguments of the environments that receive `camera_size`.
        cameras: The cameras, in order.
        state: The state channels, in order.
        state_rotation: Representation of rotations in the state.
        action: The action channels, in order.
        action_rotation: Representation of rotations in the action.
        grippers: Range of every gripper.
        limits: Lowest and highest action value, to which actions are clipped; None: not clipped.
        success: The success criterion.
        physics_error: Exception that means diverged physics, as `package.module:Class`.
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
        """Whether any camera uses `render()`."""
        return any(camera.key == RENDER for camera in self.cameras)

    @property
    def remedy(self) -> str:
        """The command that installs what the environments need."""
        if self.extra:
            return install_command(self.extra)
        return f"uv pip install '{' '.join(self.packages) or self.module}'"

    def interface(self, protocol: SuiteConfig) -> Interface:
        """The interface of the suite.

        Raises:
            UsageError: It is inconsistent.
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
            f"camera_size is {side}, but camera {camera.name!r} of {protocol.name} has images of "
            f"{camera.size[0]} × {camera.size[1]} pixels: give {camera.size[0]}"
        )
    size = camera.size or (side, side)
    return Camera(name=camera.name, size=size, rotated_deg=camera.rotated_deg)
