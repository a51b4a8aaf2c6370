"""What shapes are composed of: convex pieces, some of which belong to parts that move. Lengths in m."""

import dataclasses
import math
from typing import Annotated, Literal

from pydantic import Field

from configs.schema import Preset

Length = Annotated[float, Field(gt=0, le=1)]
Quaternion = tuple[float, float, float, float]
"""w, x, y, z."""

_UNTURNED: Quaternion = (1.0, 0.0, 0.0, 0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Piece:
    """One convex piece, as MuJoCo takes it.

    Attributes:
        type: MuJoCo's name of the primitive.
        size: Its half sizes, m, in MuJoCo's order.
        pos: Its centre in the shape's frame (or its part's), m.
        quat: Its rotation there.
        part: The moving part that it belongs to, in whose frame it is; none if it is empty.
    """

    type: Literal["box", "cylinder", "capsule", "sphere"]
    size: tuple[float, ...]
    pos: tuple[float, float, float]
    quat: Quaternion = _UNTURNED
    part: str = ""

    @property
    def volume(self) -> float:
        """Cubic metres."""
        match self.type:
            case "box":
                return 8 * self.size[0] * self.size[1] * self.size[2]
            case "cylinder":
                return 2 * math.pi * self.size[0] ** 2 * self.size[1]
            case "capsule":
                return math.pi * self.size[0] ** 2 * (2 * self.size[1] + 4 / 3 * self.size[0])
            case _:
                return 4 / 3 * math.pi * self.size[0] ** 3


class RoundShape(Preset):
    """What all shapes that are round about z have."""

    radius: Length
    height: Length

    @property
    def extent(self) -> tuple[float, float, float]:
        """Its sides along x, y, z."""
        return 2 * self.radius, 2 * self.radius, self.height


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drive:
    """A motor of a moving part. Its target is 0 until it starts.

    Attributes:
        keeps: What it keeps at its target: the joint's velocity, or its position.
        target: m or rad, per second for a velocity.
        gain: Force (N) or torque (Nm) per unit of what is missing.
        limit: The greatest force (N) or torque (Nm).
        delay: When it starts, s after the beginning of the episode.
    """

    keeps: Literal["velocity", "position"]
    target: float
    gain: float
    limit: float
    delay: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class MovingPart:
    """A part of a shape that slides or turns.

    Attributes:
        name: What its pieces name as their part.
        joint: How it moves.
        axis: Along or about which axis of the shape.
        pos: Where its frame is in the shape's, m.
        span: How far (m or rad) it moves at most, from 0; None without end.
        damping: N s/m or Nm s/rad.
        dry_friction: N or Nm.
        armature: What its motor adds to its inertia, kg or kg m².
        drive: What moves it; None if it moves when pushed.
    """

    name: str
    joint: Literal["slide", "hinge"]
    axis: tuple[float, float, float]
    pos: tuple[float, float, float] = (0.0, 0.0, 0.0)
    span: tuple[float, float] | None = None
    damping: float = 0.0
    dry_friction: float = 0.0
    armature: float = 0.0
    drive: Drive | None = None


def open_box(size: tuple[float, float, float], wall: float) -> tuple[Piece, ...]:
    """A bottom and four walls; `size` along x, y, z."""
    x, y, z = size
    bottom = Piece(type="box", size=(x / 2, y / 2, wall / 2), pos=(0.0, 0.0, wall / 2))
    sides = [
        Piece(type="box", size=(wall / 2, y / 2, z / 2), pos=(side * (x - wall) / 2, 0.0, z / 2))
        for side in (-1, 1)
    ] + [
        Piece(type="box", size=(x / 2, wall / 2, z / 2), pos=(0.0, side * (y - wall) / 2, z / 2))
        for side in (-1, 1)
    ]
    return (bottom, *sides)


def about_z(angle: float) -> Quaternion:
    """A turn by an angle (rad)."""
    return math.cos(angle / 2), 0.0, 0.0, math.sin(angle / 2)


def about_y(angle: float) -> Quaternion:
    """A turn by an angle (rad)."""
    return math.cos(angle / 2), 0.0, math.sin(angle / 2), 0.0


def times(a: Quaternion, b: Quaternion) -> Quaternion:
    """One turn after another, `b` first."""
    (aw, ax, ay, az), (bw, bx, by, bz) = a, b
    return (
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    )
