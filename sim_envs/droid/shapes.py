"""Shapes of objects, composed of convex pieces and moving parts. Lengths in m.

The origin of a shape's frame is the center of its underside, z is up. Every shape has `pieces()`, the fixed
ones, and `extent`, the size of its bounding box along x, y, z; articulated ones also moving `parts()`."""

import dataclasses
import math
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float64
from pydantic import Field

from configs.schema import Preset
from sim_envs.droid.control import GRIPPER_STROKE

Length = Annotated[float, Field(gt=0, le=1)]
Vector = tuple[float, float, float]  # along x, y, z
Quaternion = tuple[float, float, float, float]  # w, x, y, z
_UNTURNED: Quaternion = (1.0, 0.0, 0.0, 0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Piece:
    """One convex piece, with MuJoCo's parameters of a geom."""

    type: Literal["box", "cylinder", "capsule", "sphere"]
    size: tuple[float, ...]  # half sizes, m
    pos: Vector  # center in the frame of the shape, or of its moving part, m
    quat: Quaternion = _UNTURNED  # rotation in that frame

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


class SizedShape(Preset):
    """Base of shapes given by their size along x, y, z."""

    size: tuple[Length, Length, Length]

    @property
    def extent(self) -> Vector:
        return self.size


class RoundShape(Preset):
    """Base of shapes that are round about z."""

    radius: Length
    height: Length

    @property
    def extent(self) -> Vector:
        return 2 * self.radius, 2 * self.radius, self.height


@dataclasses.dataclass(frozen=True, kw_only=True)
class MovingPart:
    """A part of a shape that slides or turns."""

    name: str
    pos: Vector  # origin of its frame in the shape's frame, m
    pieces: tuple[Piece, ...]  # what it is made of
    joint: str  # its joint in MJCF, without a name
    motor: str = ""  # its motor in MJCF, without name and joint; empty if it has none
    # The motor's target once it has started: m or rad, per second for a velocity. Before: 0.
    target: float = 0.0
    delay: float = 0.0  # time from the beginning of the episode until the motor starts, s


def _box(half: Vector, pos: Vector) -> Piece:
    return Piece(type="box", size=half, pos=pos)


def open_box(size: Vector, wall: float) -> tuple[Piece, ...]:
    """A bottom and four walls, of this size along x, y, z."""
    x, y, z = size
    return (
        _box((x / 2, y / 2, wall / 2), (0.0, 0.0, wall / 2)),
        *(_box((wall / 2, y / 2, z / 2), (side * (x - wall) / 2, 0.0, z / 2)) for side in (-1, 1)),
        *(_box((x / 2, wall / 2, z / 2), (0.0, side * (y - wall) / 2, z / 2)) for side in (-1, 1)),
    )


def about_z(angle: float) -> Quaternion:
    """A rotation about z by an angle (rad)."""
    return math.cos(angle / 2), 0.0, 0.0, math.sin(angle / 2)


def _about_y_then_z(y: float, z: float) -> Quaternion:
    """A rotation about y, then one about z (rad)."""
    cos_y, sin_y, cos_z, sin_z = math.cos(y / 2), math.sin(y / 2), math.cos(z / 2), math.sin(z / 2)
    return cos_z * cos_y, -sin_z * sin_y, cos_z * sin_y, sin_z * cos_y


_AROUND = 16  # number of pieces of a round wall


class RoundVessel(RoundShape):
    """Base of round shapes that can contain objects."""

    wall: Length = 0.004

    def is_over(self, point: Float64[np.ndarray, " 2"]) -> bool:
        """Whether a point (m) in the shape's frame is over the opening."""
        return bool(np.linalg.norm(point) < self.radius - self.wall)

    def _bottom(self, radius: float) -> Piece:
        return Piece(type="cylinder", size=(radius, self.wall / 2), pos=(0.0, 0.0, self.wall / 2))


class BowlShape(RoundVessel):
    """A bowl, a plate, a cup: a round wall that widens from `foot` to `radius` over a bottom."""

    kind: Literal["bowl"]
    foot: Length

    def pieces(self) -> tuple[Piece, ...]:
        return (self._bottom(self.foot), *_round_wall(self.foot, self.radius, self.height, self.wall))


class MugShape(RoundVessel):
    """An upright mug with a handle along x; `radius` is the outer one."""

    kind: Literal["mug"]
    handle: Length = 0.035

    def pieces(self) -> tuple[Piece, ...]:
        thick, low, high = 0.005, 0.25 * self.height, 0.8 * self.height
        half, out = self.handle / 2, self.radius + self.handle
        return (
            self._bottom(self.radius),
            *_round_wall(self.radius, self.radius, self.height, self.wall),
            *(_box((half, thick, thick), (self.radius + half, 0.0, z)) for z in (low, high)),
            _box((thick, thick, (high - low) / 2 + thick), (out, 0.0, (low + high) / 2)),
        )

    @property
    def extent(self) -> Vector:  # the handle counts on both sides
        return 2 * (self.radius + self.handle + 0.005), 2 * self.radius, self.height


class RingShape(RoundShape):
    """A lying ring without a bottom: a roll of tape."""

    kind: Literal["ring"]
    wall: Length

    def pieces(self) -> tuple[Piece, ...]:
        return _round_wall(self.radius, self.radius, self.height, self.wall)


class BinShape(SizedShape):
    """An open box: a bin, a tray."""

    kind: Literal["bin"]
    wall: Length = 0.005

    def pieces(self) -> tuple[Piece, ...]:
        return open_box(self.size, self.wall)

    def is_over(self, point: Float64[np.ndarray, " 2"]) -> bool:
        return bool((np.abs(point) < np.array(self.size[:2]) / 2 - self.wall).all())


def _round_wall(low: float, high: float, height: float, wall: float) -> tuple[Piece, ...]:
    """Boxes around a circle, outer radius `low` at the foot and `high` at the rim."""
    lean = math.atan2(high - low, height)
    width = (high - wall / 2) * math.tan(math.pi / _AROUND) * 1.02
    size = (wall / 2, width, math.hypot(high - low, height) / 2)
    radius = (low + high) / 2 - wall / 2
    pieces = []
    for angle in (2 * math.pi * number / _AROUND for number in range(_AROUND)):
        place = (radius * math.cos(angle), radius * math.sin(angle), height / 2)
        pieces.append(Piece(type="box", size=size, pos=place, quat=_about_y_then_z(lean, angle)))
    return tuple(pieces)


_ROLLER, _PITCH = 0.011, 0.0235  # radius of a conveyor's rollers, and the distance between their axes
_RAIL = 0.012  # width of the rails on both sides of a conveyor
_BOX_LENGTH, _BOX_OPENING = 0.14, 0.11  # length, and height of the opening, of the box at a conveyor's end
_SHEET = 0.006  # thickness of its walls
_INERTIA = 2e-4  # armature of a roller's motor (kg m²): full speed takes a few hundredths of a second
_ACROSS = (math.sqrt(0.5), math.sqrt(0.5), 0.0, 0.0)  # turns the axis of a capsule from z to y
_DISC = 0.015  # thickness of a turntable's disc
_PLATE, _LIP = 0.01, 0.012  # thickness of a ramp's plate, and width and height of its lips
_POST = 0.01  # half the thickness of the post below a ramp's upper end
_SEAT = 0.13  # length of a ramp behind its gate
_GATE_THICK, _GATE_HEIGHT = 0.006, 0.06  # thickness of the gate, and its height above the slope
_GATE_DROP = 0.065  # distance by which it sinks
_SLACK = 0.001  # gap between the gate, the ramp and the ball


class ConveyorShape(SizedShape):
    """Driven rollers that carry objects along x into a covered box, from which they cannot be taken.

    `size`: length along x, with the box; width along y, between the rails; height of the rollers' top.
    """

    kind: Literal["conveyor"]
    speed: float = Field(ge=0, le=0.3)  # speed of the rollers' surface, m/s

    def pieces(self) -> tuple[Piece, ...]:
        length, width, height = self.size
        half_rail = ((self.end + length / 2) / 2, _RAIL / 2, height / 2 - 0.002)
        middle, side = (self.end - length / 2) / 2, (width + _RAIL) / 2
        top, wide, thin = height + _BOX_OPENING, width / 2 + _RAIL, _SHEET / 2
        half, center = _BOX_LENGTH / 2, self.end + _BOX_LENGTH / 2
        return (
            *(_box(half_rail, (middle, sign * side, half_rail[2])) for sign in (-1, 1)),
            _box((thin, wide, top / 2), (length / 2 - thin, 0.0, top / 2)),
            _box((half, wide, thin), (center, 0.0, top - thin)),
            *(_box((half, thin, top / 2), (center, sign * (wide - thin), top / 2)) for sign in (-1, 1)),
        )

    def parts(self) -> tuple[MovingPart, ...]:
        half, start = self.size[1] / 2, -self.size[0] / 2
        roller = Piece(type="capsule", size=(_ROLLER, half), pos=(0.0, 0.0, 0.0), quat=_ACROSS)
        return tuple(
            MovingPart(
                name=f"roller{number}",
                pos=(start + (number + 0.5) * _PITCH, 0.0, self.size[2] - _ROLLER),
                pieces=(roller,),
                joint=f'<joint type="hinge" axis="0 1 0" armature="{_INERTIA}"/>',
                motor='<velocity kv="0.05" forcelimited="true" forcerange="-0.05 0.05"/>',
                target=self.speed / _ROLLER,
            )
            for number in range(int((self.end - start) / _PITCH))
        )

    @property
    def extent(self) -> Vector:  # with the covered box
        length, width, height = self.size
        return length, width + 2 * _RAIL, height + _BOX_OPENING

    @property
    def end(self) -> float:
        """The x coordinate at which the rollers end."""
        return self.size[0] / 2 - _BOX_LENGTH


class TurntableShape(Preset):
    """A disc that turns about z, counterclockwise seen from above."""

    kind: Literal["turntable"]
    radius: Length
    height: float = Field(ge=0.02, le=0.3)  # height of its top
    turn_rate: float = Field(ge=0, le=180)  # angular velocity, degrees/s

    def pieces(self) -> tuple[Piece, ...]:
        foot = (self.height - _DISC) / 2 - _SLACK
        return (Piece(type="cylinder", size=(self.radius / 2, foot), pos=(0.0, 0.0, foot)),)

    def parts(self) -> tuple[MovingPart, ...]:
        disc = Piece(type="cylinder", size=(self.radius, _DISC / 2), pos=(0.0, 0.0, -_DISC / 2))
        return (
            MovingPart(
                name="disc",
                pos=(0.0, 0.0, self.height),
                pieces=(disc,),
                joint='<joint type="hinge" axis="0 0 1"/>',
                motor='<velocity kv="2" forcelimited="true" forcerange="-2 2"/>',
                target=math.radians(self.turn_rate),
            ),
        )

    @property
    def extent(self) -> Vector:
        return 2 * self.radius, 2 * self.radius, self.height


class RampShape(Preset):
    """A slope with lips, down along x to the table. A gate at its top sinks and releases a ball."""

    kind: Literal["ramp"]
    width: Length  # width between the lips
    height: float = Field(ge=0.005, le=0.2)  # height of the slope at the gate
    angle: float = Field(ge=2, le=30)  # angle of the slope, degrees
    delay: float = Field(ge=0, le=10)  # time from the beginning of the episode until the gate sinks, s

    def pieces(self) -> tuple[Piece, ...]:
        slope, half = math.radians(self.angle), self.size[0] / 2
        long, wide = half / math.cos(slope), self.width / 2 + _LIP
        raised = (self._surface(-half) - _PLATE) / 2
        return (
            self._lying((long, wide, _PLATE / 2), y=0.0, above=-_PLATE / 2),
            *(
                self._lying((long, _LIP / 2, _LIP / 2), y=side * (self.width + _LIP) / 2, above=_LIP / 2)
                for side in (-1, 1)
            ),
            _box((_POST, wide, raised), (_POST - half, 0.0, raised)),
        )

    def parts(self) -> tuple[MovingPart, ...]:
        half = (_GATE_THICK / 2, self.width / 2 - _SLACK, _GATE_HEIGHT / 2)
        joint = f'type="slide" axis="0 0 -1" limited="true" range="0 {_GATE_DROP}" damping="4"'
        return (
            MovingPart(
                name="gate",
                pos=(self._gate, 0.0, self._surface(self._gate)),
                pieces=(_box(half, (0.0, 0.0, _GATE_HEIGHT / 2)),),
                joint=f"<joint {joint}/>",
                motor='<position kp="200" forcelimited="true" forcerange="-20 20"/>',
                target=_GATE_DROP,
                delay=self.delay,
            ),
        )

    def seat(self, x: float, y: float, half: float) -> Vector:
        """The initial position of a ball; x from the gate (negative: up the slope), y from the middle."""
        slope = math.radians(self.angle)
        at = self._gate - _GATE_THICK / 2 - _SLACK - half + x
        return at, y, self._surface(at) + half / math.cos(slope) - half

    @property
    def size(self) -> tuple[float, float]:
        """Its length along x, and its width with the lips."""
        return self.height / math.tan(math.radians(self.angle)) + _SEAT, self.width + 2 * _LIP

    @property
    def extent(self) -> Vector:  # without the gate
        return *self.size, self._surface(-self.size[0] / 2) + _LIP

    @property
    def _gate(self) -> float:
        """The gate's x coordinate."""
        return _SEAT - self.size[0] / 2

    def _surface(self, x: float) -> float:
        """Height of the slope."""
        return (self.size[0] / 2 - x) * math.tan(math.radians(self.angle))

    def _lying(self, half: Vector, *, y: float, above: float) -> Piece:
        """A box along the slope, whose center is at a height `above` the slope's surface."""
        slope = math.radians(self.angle)
        place = (above * math.sin(slope), y, self._surface(0.0) + above * math.cos(slope))
        return Piece(type="box", size=half, pos=place, quat=_about_y_then_z(slope, 0.0))


DRAWER = "drawer"  # the moving part of a drawer


class BoxShape(SizedShape):
    """A block."""

    kind: Literal["box"]

    def pieces(self) -> tuple[Piece, ...]:
        x, y, z = (side / 2 for side in self.size)
        return (_box((x, y, z), (0.0, 0.0, z)),)


class CylinderShape(RoundShape):
    """An upright cylinder: a can, a plate, a round board."""

    kind: Literal["cylinder"]

    def pieces(self) -> tuple[Piece, ...]:
        half = self.height / 2
        return (Piece(type="cylinder", size=(self.radius, half), pos=(0.0, 0.0, half)),)


class SphereShape(Preset):
    """A ball."""

    kind: Literal["sphere"]
    radius: Length

    def pieces(self) -> tuple[Piece, ...]:
        return (Piece(type="sphere", size=(self.radius,), pos=(0.0, 0.0, self.radius)),)

    @property
    def extent(self) -> Vector:
        return 2 * self.radius, 2 * self.radius, 2 * self.radius


class BananaShape(Preset):
    """An arc of capsules lying along x, bent in the plane by `bend` degrees from end to end."""

    kind: Literal["banana"]
    length: Length
    radius: Length
    bend: float = Field(default=70, ge=0, le=150)

    def pieces(self) -> tuple[Piece, ...]:
        count, turn = 5, math.radians(self.bend)
        chord = self.length - 2 * self.radius
        arc = chord if turn == 0 else chord * (turn / 2) / math.sin(turn / 2)
        step, place, places, quats = arc / count, np.zeros(2), [], []
        for heading in (np.arange(count) + 0.5) / count * turn - turn / 2:
            forward = np.array([math.cos(heading), math.sin(heading)])
            places.append(place + forward * step / 2)
            quats.append(_about_y_then_z(math.pi / 2, heading))
            place = place + forward * step
        size, middle = (self.radius, step / 2), (np.min(places, axis=0) + np.max(places, axis=0)) / 2
        return tuple(
            Piece(type="capsule", size=size, pos=(float(x), float(y), self.radius), quat=quat)
            for (x, y), quat in zip(np.array(places) - middle, quats, strict=True)
        )

    @property
    def extent(self) -> Vector:
        turn = math.radians(self.bend)
        sag = (self.length - 2 * self.radius) / 2 * math.tan(turn / 4)
        return self.length, sag + 2 * self.radius, 2 * self.radius


_DRAWER_PLAY = 0.006  # by which a drawer is shorter and narrower than its opening
_DRAWER_BELOW = 0.01  # by which it is lower
_HANDLE = (0.006, 0.06, 0.006)  # half extents of its bar


class DrawerShape(SizedShape):
    """A fixed cabinet with one drawer, which slides out along -x and has a bar."""

    kind: Literal["drawer"]
    travel: Length
    wall: Length = 0.008

    def pieces(self) -> tuple[Piece, ...]:
        x, y, z = self.size
        w = self.wall
        return (
            _box((x / 2, y / 2, w / 2), (0.0, 0.0, z - w / 2)),
            _box((w / 2, y / 2, z / 2), (x / 2 - w / 2, 0.0, z / 2)),
            *(_box((x / 2, w / 2, z / 2), (0.0, side * (y / 2 - w / 2), z / 2)) for side in (-1, 1)),
        )

    def parts(self) -> tuple[MovingPart, ...]:
        x, y, z = self.size
        w, bar = self.wall, 0.045
        inside = (x - 2 * w - _DRAWER_PLAY, y - 2 * w - _DRAWER_PLAY, z - w - _DRAWER_BELOW)
        front = -inside[0] / 2
        pieces = (
            *open_box(inside, w),
            *(_box((bar / 2, 0.005, 0.005), (front - bar / 2, side, z / 2)) for side in (-0.05, 0.05)),
            _box(_HANDLE, (front - bar, 0.0, z / 2)),
        )
        joint = f'type="slide" axis="-1 0 0" limited="true" range="0 {self.travel:.9g}" damping="2"'
        joint = f'<joint {joint} frictionloss="0.5"/>'
        return (MovingPart(name=DRAWER, pos=(0.0, 0.0, 0.004), pieces=pieces, joint=joint),)

    @property
    def extent(self) -> Vector:  # bar and open drawer count on both sides
        return self.size[0] + 2 * (self.travel + 0.05), self.size[1], self.size[2]


class MarkShape(Preset):
    """A disc painted on the table."""

    kind: Literal["mark"]
    radius: Length

    def pieces(self) -> tuple[Piece, ...]:
        return (Piece(type="cylinder", size=(self.radius, 0.0005), pos=(0.0, 0.0, 0.0005)),)

    @property
    def extent(self) -> Vector:
        return 2 * self.radius, 2 * self.radius, 0.001


class LineShape(Preset):
    """A line painted on the table along y; `size` along x, y."""

    kind: Literal["line"]
    size: tuple[Length, Length]

    def pieces(self) -> tuple[Piece, ...]:
        x, y = (side / 2 for side in self.size)
        return (_box((x, y, 0.0005), (0.0, 0.0, 0.0005)),)

    @property
    def extent(self) -> Vector:
        return *self.size, 0.001


Shape = Annotated[
    BoxShape
    | CylinderShape
    | SphereShape
    | BananaShape
    | BowlShape
    | MugShape
    | RingShape
    | BinShape
    | DrawerShape
    | MarkShape
    | LineShape
    | ConveyorShape
    | TurntableShape
    | RampShape,
    Field(discriminator="kind"),
]
Vessel = BowlShape | MugShape | BinShape  # shapes that can contain objects
Painted = MarkShape | LineShape  # shapes without collisions
Machine = ConveyorShape | TurntableShape | RampShape  # shapes that carry objects
Articulated = DrawerShape | Machine  # shapes with moving parts; they cannot be moved as a whole


def depth(vessel: Vessel) -> float:
    """Height (m) of the rim of a vessel above its floor."""
    return vessel.extent[2] - vessel.wall


def is_too_wide(shape: Shape) -> bool:
    """Whether a shape is a solid too wide for the gripper."""
    solid = isinstance(shape, BoxShape | CylinderShape | SphereShape)  # others have a rim to grasp, or an arc
    return solid and min(shape.extent[:2]) > GRIPPER_STROKE


def footprint(shape: Shape) -> float:
    """Radius (m) of a circle about its center that contains a standing shape."""
    x, y, _ = shape.extent
    is_round = isinstance(shape, RoundShape | SphereShape | MarkShape) and not isinstance(shape, MugShape)
    return max(x, y) / 2 if is_round else math.hypot(x, y) / 2


def half_extent(shape: Shape, rotation: Float64[np.ndarray, "3 3"]) -> Float64[np.ndarray, " 3"]:
    """Half the size (m) of the bounding box along the world's axes of a turned shape."""
    if isinstance(shape, SphereShape):
        return np.full(3, shape.radius)
    if isinstance(shape, RoundShape) and not isinstance(shape, MugShape):
        axis = rotation[:, 2]
        return np.abs(axis) * shape.height / 2 + shape.radius * np.sqrt(np.maximum(1 - axis**2, 0))
    return np.abs(rotation) @ np.array(shape.extent) / 2


def corners(shape: Shape) -> Float64[np.ndarray, "8 3"]:
    """The corners of the bounding box in the shape's frame, m."""
    x, y, z = shape.extent
    return np.array(
        [(sx * x / 2, sy * y / 2, sz * z) for sx in (-1, 1) for sy in (-1, 1) for sz in (0, 1)], np.float64
    )
