"""What a policy and an environment mean by their numbers; each declares it, and the two are compared."""

import dataclasses
import enum
import math
from collections.abc import Sequence

from configs.errors import UsageError, unknown


class Rotation(enum.StrEnum):
    """How three to six numbers stand for a rotation."""

    NONE = "none"
    AXIS_ANGLE = "axis-angle"
    EULER_XYZ = "Euler angles xyz"
    QUATERNION_WXYZ = "quaternion wxyz"
    QUATERNION_XYZW = "quaternion xyzw"
    SIX_D = "first two columns of the matrix"


class Motion(enum.StrEnum):
    """What an action asks for: a change, a target, or a speed."""

    DELTA = "delta"
    ABSOLUTE = "absolute"
    VELOCITY = "velocity"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Channels:
    """Neighbouring numbers that belong together.

    Attributes:
        name: What they are.
        size: How many.
        unit: What each is measured in; 1 where it is a share of some range.
    """

    name: str
    size: int
    unit: str

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UsageError(f"channels {self.name!r} have size {self.size}; at least 1")

    def __str__(self) -> str:
        return f"{self.name}[{self.size}] in {self.unit}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gripper:
    """The ends of the gripper's range in an action.

    Attributes:
        open: The value that opens it fully.
        closed: The value that closes it fully.
    """

    open: float
    closed: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.open) and math.isfinite(self.closed)) or self.open == self.closed:
            raise UsageError(f"a gripper with {self} has no range")

    def __str__(self) -> str:
        return f"open {self.open:g}, closed {self.closed:g}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Camera:
    """One camera of an observation.

    Attributes:
        name: Its key among the images.
        size: Height and width in pixels; None where any will do.
        rotated_deg: By how much the image was turned after it was taken.
    """

    name: str
    size: tuple[int, int] | None = None
    rotated_deg: int = 0

    def __str__(self) -> str:
        pixels = "any size" if self.size is None else f"{self.size[0]} × {self.size[1]} pixels"
        return f"{pixels}, rotated by {self.rotated_deg}°"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObservationSpec:
    """What is observed.

    Attributes:
        cameras: The cameras, in the policy's order.
        state: The channels of proprioception, in order.
        rotation: What stands for a rotation in the state.
    """

    cameras: tuple[Camera, ...]
    state: tuple[Channels, ...]
    rotation: Rotation

    def __post_init__(self) -> None:
        _each_named_once("camera", [camera.name for camera in self.cameras])
        _each_named_once("state channels", [part.name for part in self.state])

    @property
    def state_size(self) -> int:
        """Numbers in the state."""
        return sum(part.size for part in self.state)

    @property
    def camera_names(self) -> tuple[str, ...]:
        """The cameras' keys, in order."""
        return tuple(camera.name for camera in self.cameras)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActionSpec:
    """What an action says.

    Attributes:
        channels: The numbers of an action, in order.
        motion: What the arm's channels ask for.
        rotation: What stands for a rotation among them.
        gripper: The range of the channel called `gripper`; None if there is none.
        limits: The least and the most that any channel may be.
        control_hz: Actions per second.
    """

    channels: tuple[Channels, ...]
    motion: Motion
    rotation: Rotation
    gripper: Gripper | None
    limits: tuple[float, float]
    control_hz: float

    def __post_init__(self) -> None:
        names = [part.name for part in self.channels]
        _each_named_once("action channels", names)
        if (self.gripper is None) == ("gripper" in names):
            raise UsageError(f"actions of {names} with gripper {self.gripper}: it needs both or neither")
        if not all(map(math.isfinite, self.limits)) or self.limits[0] >= self.limits[1]:
            raise UsageError(f"action limits {self.limits} are not a range")
        if not 0 < self.control_hz < math.inf:
            raise UsageError(f"control_hz is {self.control_hz}; give actions per second, above 0")

    @property
    def size(self) -> int:
        """Numbers in an action."""
        return sum(part.size for part in self.channels)

    def channel(self, name: str) -> int:
        """Where the channels called `name` begin."""
        start = 0
        for part in self.channels:
            if part.name == name:
                return start
            start += part.size
        raise unknown("action channels", name, [part.name for part in self.channels])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interface:
    """One side's conventions: what it observes or is shown, what actions it gives or takes.

    Attributes:
        name: Whose they are, for messages.
        observation: What is observed.
        action: What an action says.
    """

    name: str
    observation: ObservationSpec
    action: ActionSpec


def compare(policy: Interface, env: Interface) -> None:
    """Let a policy act in an environment only if both mean the same by their numbers.

    The environment may have more cameras than the policy looks through.

    Raises:
        UsageError: Names the first convention that differs, and what each side means by it.
    """
    for label, wanted, given in [*_cameras(policy, env), *_conventions(policy, env)]:
        if wanted != given:
            raise UsageError(
                f"{label}: policy {policy.name!r} has {_told(wanted)}, environment {env.name!r} has "
                f"{_told(given)}. Choose a policy that was trained for this environment"
            )


def _cameras(policy: Interface, env: Interface) -> list[tuple[str, object, object]]:
    there = {camera.name: camera for camera in env.observation.cameras}
    pairs: list[tuple[str, object, object]] = []
    for camera in policy.observation.cameras:
        if camera.name not in there:
            lacks = f"policy {policy.name!r} looks through what environment {env.name!r} lacks"
            raise UsageError(f"{lacks}: {unknown('camera', camera.name, there)}")
        given = there[camera.name]
        wanted = dataclasses.replace(camera, size=camera.size or given.size)
        pairs.append((f"camera {camera.name!r}", wanted, given))
    return pairs


def _conventions(policy: Interface, env: Interface) -> list[tuple[str, object, object]]:
    ours, theirs = policy.observation, env.observation
    gives, takes = policy.action, env.action
    return [
        ("state", ours.state, theirs.state),
        ("rotation in the state", ours.rotation, theirs.rotation),
        ("action", gives.channels, takes.channels),
        ("motion of an action", gives.motion, takes.motion),
        ("rotation in an action", gives.rotation, takes.rotation),
        ("gripper of an action", gives.gripper, takes.gripper),
        ("limits of an action", gives.limits, takes.limits),
        ("control rate, Hz", gives.control_hz, takes.control_hz),
    ]


def _told(value: object) -> str:
    return f"({', '.join(map(str, value))})" if isinstance(value, tuple) else str(value)


def _each_named_once(what: str, names: Sequence[str]) -> None:
    if not names or len(set(names)) != len(names):
        raise UsageError(f"{what} {list(names)}: name at least one, and each once")
