"""Shapes of objects. The origin of a shape's frame is the center of its underside, z is up. Lengths in m."""

import dataclasses
import math
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float64
from pydantic import Field

from configs.schema import Preset
from sim_envs.droid.machines import ConveyorShape, RampShape, TurntableShape
from sim_envs.droid.pieces import Length, MovingPart, Piece, RoundShape, about_y, about_z, open_box, times
from sim_envs.droid.robot import GRIPPER_STROKE
from sim_envs.droid.vessels import BinShape, BowlShape, MugShape, RingShape

_DRAWER = "drawer"


class BoxShape(Preset):
    """A block; `size` along x, y, z."""

    kind: Literal["box"]
    size: tuple[Length, Length, Length]

    def pieces(self) -> tuple[Piece, ...]:
        """One box."""
        x, y, z = (side / 2 for side in self.size)
        return (Piece(type="box", size=(x, y, z), pos=(0.0, 0.0, z)),)

    @property
    def extent(self) -> tuple[float, float, float]:
        """Size of the bounding box along x, y, z."""
        return self.size


class CylinderShape(RoundShape):
    """An upright cylinder: a can, a plate, a round board."""

    kind: Literal["cylinder"]

    def pieces(self) -> tuple[Piece, ...]:
        """One cylinder."""
        half = self.height / 2
        return (Piece(type="cylinder", size=(self.radius, half), pos=(0.0, 0.0, half)),)


class SphereShape(Preset):
    """A ball."""

    kind: Literal["sphere"]
    radius: Length

    def pieces(self) -> tuple[Piece, ...]:
        """One sphere."""
        return (Piece(type="sphere", size=(self.radius,), pos=(0.0, 0.0, self.radius)),)

    @property
    def extent(self) -> tuple[float, float, float]:
        """Size of the bounding box along x, y, z."""
        return 2 * self.radius, 2 * self.radius, 2 * self.radius


class BananaShape(Preset):
    """An arc of capsules lying along x, bent in the plane by `bend` degrees from end to end."""

    kind: Literal["banana"]
    length: Length
    radius: Length
    bend: float = Field(default=70, ge=0, le=150)

    def pieces(self) -> tuple[Piece, ...]:
        """Five capsules, end to end."""
        count, turn = 5, math.radians(self.bend)
        chord = self.length - 2 * self.radius
        arc = chord if turn == 0 else chord * (turn / 2) / math.sin(turn / 2)
        step, place, made = arc / count, np.zeros(2), []
        headings = (np.arange(count) + 0.5) / count * turn - turn / 2
        for heading in headings:
            forward = np.array([math.cos(heading), math.sin(heading)])
            made.append((place + forward * step / 2, heading))
            place = place + forward * step
        middle = (np.min([at for at, _ in made], axis=0) + np.max([at for at, _ in made], axis=0)) / 2
        return tuple(
            Piece(
                type="capsule",
                size=(self.radius, step / 2),
                pos=(float(at[0] - middle[0]), float(at[1] - middle[1]), self.radius),
                quat=times(about_z(heading), about_y(math.pi / 2)),
            )
            for at, heading in made
        )

    @property
    def extent(self) -> tuple[float, float, float]:
        """Size of the bounding box along x, y, z."""
        turn = math.radians(self.bend)
        sag = (self.length - 2 * self.radius) / 2 * math.tan(turn / 4)
        return self.length, sag + 2 * self.radius, 2 * self.radius


class DrawerShape(Preset):
    """A fixed cabinet with one drawer, which slides out along -x and has a bar; `size` along x, y, z."""

    kind: Literal["drawer"]
    size: tuple[Length, Length, Length]
    travel: Length
    wall: Length = 0.008

    def pieces(self) -> tuple[Piece, ...]:
        """The cabinet, and the drawer with its bar."""
        x, y, z = self.size
        w, bar = self.wall, 0.045
        cabinet = [
            Piece(type="box", size=(x / 2, y / 2, w / 2), pos=(0.0, 0.0, z - w / 2)),
            Piece(type="box", size=(w / 2, y / 2, z / 2), pos=(x / 2 - w / 2, 0.0, z / 2)),
            *(
                Piece(type="box", size=(x / 2, w / 2, z / 2), pos=(0.0, side * (y / 2 - w / 2), z / 2))
                for side in (-1, 1)
            ),
        ]
        inside = (x - 2 * w - 0.006, y - 2 * w - 0.006, z - w - 0.01)
        drawer = [dataclasses.replace(each, part=_DRAWER) for each in open_box(inside, w)]
        front = -inside[0] / 2
        stubs = [
            Piece(type="box", size=(bar / 2, 0.005, 0.005), pos=(front - bar / 2, side, z / 2), part=_DRAWER)
            for side in (-0.05, 0.05)
        ]
        rod = Piece(type="box", size=(0.006, 0.06, 0.006), pos=(front - bar, 0.0, z / 2), part=_DRAWER)
        return (*cabinet, *drawer, *stubs, rod)

    def parts(self) -> tuple[MovingPart, ...]:
        """The drawer."""
        return (
            MovingPart(
                name=_DRAWER,
                joint="slide",
                axis=(-1.0, 0.0, 0.0),
                pos=(0.0, 0.0, 0.004),
                span=(0.0, self.travel),
                damping=2.0,
                dry_friction=0.5,
            ),
        )

    @property
    def extent(self) -> tuple[float, float, float]:
        """Size of the bounding box along x, y, z; bar and open drawer count on both sides."""
        return self.size[0] + 2 * (self.travel + 0.05), self.size[1], self.size[2]


class MarkShape(Preset):
    """A disc painted on the table."""

    kind: Literal["mark"]
    radius: Length

    def pieces(self) -> tuple[Piece, ...]:
        """One thin cylinder."""
        return (Piece(type="cylinder", size=(self.radius, 0.0005), pos=(0.0, 0.0, 0.0005)),)

    @property
    def extent(self) -> tuple[float, float, float]:
        """Size of the bounding box along x, y, z."""
        return 2 * self.radius, 2 * self.radius, 0.001


class LineShape(Preset):
    """A line painted on the table along y; `size` along x, y."""

    kind: Literal["line"]
    size: tuple[Length, Length]

    def pieces(self) -> tuple[Piece, ...]:
        """One thin box."""
        x, y = (side / 2 for side in self.size)
        return (Piece(type="box", size=(x, y, 0.0005), pos=(0.0, 0.0, 0.0005)),)

    @property
    def extent(self) -> tuple[float, float, float]:
        """Size of the bounding box along x, y, z."""
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
Vessel = BowlShape | MugShape | BinShape
"""Shapes that can contain objects."""

Painted = MarkShape | LineShape
"""Shapes without collisions."""

Machine = ConveyorShape | TurntableShape | RampShape
"""Shapes that carry objects."""

Articulated = DrawerShape | Machine
"""Shapes with moving parts; they cannot be moved as a whole."""


def is_too_wide(shape: Shape) -> bool:
    """Whether a shape is a solid too wide for the gripper."""
    solid = isinstance(shape, BoxShape | CylinderShape | SphereShape)  # others have a rim to grasp, or an arc
    return solid and min(shape.extent[:2]) > GRIPPER_STROKE


def footprint(shape: Shape) -> float:
    """Radius (m) of a circle about its center that contains a standing shape."""
    x, y, _ = shape.extent
    is_round = isinstance(shape, RoundShape | SphereShape | MarkShape)
    return max(x, y) / 2 if is_round else math.hypot(x, y) / 2


def corners(shape: Shape) -> Float64[np.ndarray, "8 3"]:
    """The corners of the bounding box in the shape's frame, m."""
    x, y, z = shape.extent
    return np.array(
        [(sx * x / 2, sy * y / 2, sz * z) for sx in (-1, 1) for sy in (-1, 1) for sz in (0, 1)], np.float64
    )
