"""Convex pieces and moving parts, of which shapes are composed. Lengths in m."""

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
    """One convex piece, with MuJoCo's parameters of a geom.

    Attributes:
        type: The type of the geom.
        size: Half sizes, m.
        pos: Center in the frame of the shape, or of its moving part, m.
        quat: Rotation in that frame.
        part: Name of the moving part that it belongs to; empty if none.
    """

    type: Literal["box", "cylinder", "capsule", "sphere"]
    size: tuple[float, ...]
    pos: tuple[float, float, float]
    quat: Quaternion = _UNTURNED
    part: str = ""

    @property
    def volume(self) -> float:
        """Volume, m³."""
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
    """Base of shapes that are round about z."""

    radius: Length
    height: Length

    @property
    def extent(self) -> tuple[float, float, float]:
        """Size of the bounding box along x, y, z."""
        return 2 * self.radius, 2 * self.radius, self.height


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drive:
    """A motor of a moving part. Its target is 0 until it starts.

    Attributes:
        keeps: Whether it controls the joint's velocity or its position.
        target: m or rad, per second for a velocity.
        gain: Force (N) or torque (Nm) per unit of error.
        limit: Maximal force (N) or torque (Nm).
        delay: Time from the beginning of the episode until it starts, s.
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
        name: Name of the part.
        joint: Type of its joint.
        axis: Axis of the joint in the shape's frame.
        pos: Origin of its frame in the shape's frame, m.
        span: Range of the joint (m or rad); None if unlimited.
        damping: N s/m or Nm s/rad.
        dry_friction: N or Nm.
        armature: Inertia that the motor adds, kg or kg m².
        drive: Its motor; None if it has none.
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
    """A bottom and four walls, of this size along x, y, z."""
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
    """A rotation about z by an angle (rad)."""
    return math.cos(angle / 2), 0.0, 0.0, math.sin(angle / 2)


def about_y(angle: float) -> Quaternion:
    """A rotation about y by an angle (rad)."""
    return math.cos(angle / 2), 0.0, math.sin(angle / 2), 0.0


def times(a: Quaternion, b: Quaternion) -> Quaternion:
    """The product of two quaternions: the rotation `b`, then `a`."""
    (aw, ax, ay, az), (bw, bx, by, bz) = a, b
    return (
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    )
