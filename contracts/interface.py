"""The interface of a policy or an environment, which both declare: cameras, state, actions, rate."""

import dataclasses
import enum
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from contracts.errors import UsageError, nearest_first, unknown


class Rotation(enum.StrEnum):
    """Representation of a rotation."""

    NONE = "none"
    AXIS_ANGLE = "axis-angle"
    EULER_XYZ = "Euler angles xyz"
    QUATERNION_WXYZ = "quaternion wxyz"
    QUATERNION_XYZW = "quaternion xyzw"
    SIX_D = "first two columns of the matrix"


class Motion(enum.StrEnum):
    """Kind of command of an action channel."""

    RELATIVE = "relative"
    """A change from where the robot is."""
    ABSOLUTE = "absolute"
    """A target."""
    VELOCITY = "velocity"
    EFFORT = "effort"
    """A force or torque."""


class Hold(enum.StrEnum):
    """The value of a channel that keeps the robot still."""

    ZERO = "zero"
    STATE = "the current state"
    LAST_COMMAND = "the last command"
    """For position control, where a target set anew at the measured state sags with every step, and for
    grippers. Before the first command: the current state if the channels name one, else an open gripper."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Channels:
    """A named group of consecutive state values.

    Attributes:
        name: Name of the group.
        size: Number of values.
        unit: Unit of each; 1 for a fraction of a range.
    """

    name: str
    size: int
    unit: str

    def __str__(self) -> str:
        return f"{self.name}[{self.size}] in {self.unit}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActionChannels(Channels):
    """A named group of consecutive action values.

    Attributes:
        motion: What they command.
        hold: Their value in a hold action.
        state: State channels to hold at; for `LAST_COMMAND`, until the first command.
    """

    motion: Motion
    hold: Hold
    state: str | None = None

    def __post_init__(self) -> None:
        if (self.hold is Hold.STATE and self.state is None) or (self.hold is Hold.ZERO and self.state):
            raise UsageError(
                f"action channels {self.name!r} hold {self.hold.value}, with state {self.state!r}: name "
                "state channels if, and only if, these are held"
            )

    def __str__(self) -> str:
        start = f" from {self.state}" if self.state else ""
        return f"{super().__str__()} ({self.motion.value}, holds {self.hold.value}{start})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gripper:
    """The range of one gripper in an action.

    Attributes:
        name: The action channels that command it.
        open: The value that opens it fully.
        closed: The value that closes it fully.
    """

    name: str
    open: float
    closed: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.open) and math.isfinite(self.closed)) or self.open == self.closed:
            raise UsageError(f"gripper {self.name!r} with {self} has no range")

    def __str__(self) -> str:
        return f"{self.name}: open {self.open:g}, closed {self.closed:g}"


def as_image_size(size: Any, what: str) -> tuple[int, int]:
    """A height and a width as a tuple; a UsageError about `what` if it is something else."""
    if isinstance(size, tuple | list) and len(size) == 2 and all(type(side) is int for side in size):
        height, width = size
        if min(height, width) > 0:
            return height, width
    raise UsageError(f"{what} is {size!r}; give its height and width in pixels, such as (128, 128)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Camera:
    """One camera of an observation.

    Attributes:
        name: Its key among the images.
        size: Height and width, pixels; None for any. A policy's images are resized to it.
        rotated_deg: Rotation of the image after capture, degrees.
    """

    name: str
    size: tuple[int, int] | None = None
    rotated_deg: int = 0

    def __post_init__(self) -> None:
        if self.size is not None:
            object.__setattr__(self, "size", as_image_size(self.size, f"size of camera {self.name!r}"))

    def __str__(self) -> str:
        pixels = "any size" if self.size is None else f"{self.size[0]} × {self.size[1]} pixels"
        return f"{pixels}, rotated by {self.rotated_deg}°"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObservationSpec:
    """Conventions of observations.

    Attributes:
        cameras: The cameras, in the policy's order.
        state: The channels of proprioception, in order.
        rotation: Representation of rotations in the state.
    """

    cameras: tuple[Camera, ...]
    state: tuple[Channels, ...]
    rotation: Rotation

    def __post_init__(self) -> None:
        _each_named_once("camera", [camera.name for camera in self.cameras])
        _each_named_once("state channels", [part.name for part in self.state])

    @property
    def state_size(self) -> int:
        """Size of the state."""
        return sum(part.size for part in self.state)

    def channels(self, name: str) -> Channels:
        """The state channels with a name."""
        return _find("state channels", self.state, name)[0]

    def read(self, state: np.ndarray, name: str) -> np.ndarray:
        """The values of the state channels with a name, in one state or several [*batch, state]."""
        part, start = _find("state channels", self.state, name)
        return state[..., start : start + part.size]

    @property
    def camera_names(self) -> tuple[str, ...]:
        """The cameras' keys, in order."""
        return tuple(camera.name for camera in self.cameras)

    @property
    def camera_sizes(self) -> dict[str, tuple[int, int]]:
        """Height and width by camera, of those that have a size."""
        return {camera.name: camera.size for camera in self.cameras if camera.size is not None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActionSpec:
    """Conventions of actions.

    Attributes:
        channels: The channels of an action, in order.
        rotation: Representation of rotations in an action.
        grippers: The range of every gripper.
        limits: Minimum and maximum of all channels; None if actions are not clipped.
        control_hz: Actions per second.
    """

    channels: tuple[ActionChannels, ...]
    rotation: Rotation
    grippers: tuple[Gripper, ...]
    limits: tuple[float, float] | None
    control_hz: float

    def __post_init__(self) -> None:
        names = [part.name for part in self.channels]
        _each_named_once("action channels", names)
        for gripper in self.grippers:
            if gripper.name not in names:
                raise unknown("action channels of a gripper", gripper.name, names)
        grippers = {gripper.name for gripper in self.grippers}
        for part in self.channels:
            if part.hold is Hold.LAST_COMMAND and part.state is None and part.name not in grippers:
                raise UsageError(
                    f"action channels {part.name!r} hold the last command, and nothing says what to hold "
                    "before the first one: give them `state`, the channels of the state to hold at; or, if "
                    "they are a gripper, name it in section `grippers`, with its values `open` and `closed`"
                )
        if self.limits is not None and (
            not all(map(math.isfinite, self.limits)) or self.limits[0] >= self.limits[1]
        ):
            raise UsageError(f"action limits {self.limits} are not a range")
        if not 0 < self.control_hz < math.inf:
            raise UsageError(f"control_hz is {self.control_hz}; give actions per second, above 0")

    @property
    def size(self) -> int:
        """Size of an action."""
        return sum(part.size for part in self.channels)

    @property
    def arm(self) -> np.ndarray:
        """Mask [action] of the channels that are not a gripper's."""
        grippers = {gripper.name for gripper in self.grippers}
        return np.concatenate([np.full(part.size, part.name not in grippers) for part in self.channels])

    def channel(self, name: str) -> int:
        """Index of the first of the channels called `name`."""
        return _find("action channels", self.channels, name)[1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interface:
    """The conventions of a policy or an environment.

    Attributes:
        name: Name of the policy or environment, for messages.
        observation: Conventions of observations.
        action: Conventions of actions.
        horizon: Actions per query of a policy; None for an environment.
    """

    name: str
    observation: ObservationSpec
    action: ActionSpec
    horizon: int | None = None

    def __post_init__(self) -> None:
        for part in self.action.channels:
            if part.state is not None and self.observation.channels(part.state).size != part.size:
                raise UsageError(f"action channels {part} are held at a state of another size")

    def hold_action(self, state: np.ndarray, last: np.ndarray | None) -> np.ndarray:
        """The action [action] that keeps the robot still in a state [state], after action `last`, if any."""
        action, start = np.zeros(self.action.size), 0
        openings = {gripper.name: gripper.open for gripper in self.action.grippers}
        for part in self.action.channels:
            places = slice(start, start + part.size)
            if part.hold is Hold.LAST_COMMAND and last is not None:
                action[places] = last[places]
            elif part.state is not None:
                action[places] = self.observation.read(state, part.state)
            elif part.hold is Hold.LAST_COMMAND:
                action[places] = openings[part.name]
            start += part.size
        return action


def compare(policy: Interface, env: Interface) -> None:
    """Check that a policy and an environment have the same conventions; a difference is a UsageError.

    The environment may have cameras that the policy does not use.
    """
    there = {camera.name: camera for camera in env.observation.cameras}
    pairs: list[tuple[str, object, object]] = []
    for camera in policy.observation.cameras:
        if camera.name not in there:
            raise UsageError(
                f"policy {policy.name!r} needs camera {camera.name!r}, environment {env.name!r} has "
                f"{', '.join(nearest_first(camera.name, there))}. Choose a policy that was trained for this "
                "environment"
            )
        given = there[camera.name]
        wanted = dataclasses.replace(camera, size=camera.size or given.size)
        pairs.append((f"camera {camera.name!r}", wanted, given))
    ours, theirs = policy.observation, env.observation
    gives, takes = policy.action, env.action
    pairs += [
        ("state", ours.state, theirs.state),
        ("rotation in the state", ours.rotation, theirs.rotation),
        ("action", gives.channels, takes.channels),
        ("rotation in an action", gives.rotation, takes.rotation),
        ("grippers of an action", gives.grippers, takes.grippers),
        ("limits of an action", gives.limits, takes.limits),
        ("control rate, Hz", gives.control_hz, takes.control_hz),
    ]
    for label, wanted, given in pairs:
        if wanted != given:
            raise UsageError(
                f"{label}: policy {policy.name!r} has {_told(wanted)}, environment {env.name!r} has "
                f"{_told(given)}. Choose a policy that was trained for this environment"
            )


def _told(value: object) -> str:
    return f"({', '.join(map(str, value))})" if isinstance(value, tuple) else str(value)


def _find(what: str, parts: Sequence[Channels], name: str) -> tuple[Channels, int]:
    """The channels with a name, and the index of their first value."""
    start = 0
    for part in parts:
        if part.name == name:
            return part, start
        start += part.size
    raise unknown(what, name, [part.name for part in parts])


def channel_names(channels: Sequence[Channels]) -> list[str]:
    """The name of each value of some channels, such as `joint_position_0`."""
    return [
        part.name if part.size == 1 else f"{part.name}_{number}"
        for part in channels
        for number in range(part.size)
    ]


def _each_named_once(what: str, names: Sequence[str]) -> None:
    if not names or len(set(names)) != len(names):
        raise UsageError(f"{what} {list(names)}: name at least one, and each once")
