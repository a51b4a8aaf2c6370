"""The shapes that objects are made of: primitives, and vessels composed of thin convex pieces.

A shape stands on its bottom: the origin of its frame is the middle of its underside, z is up. Lengths in m.
"""

import dataclasses
import math
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float64
from pydantic import Field

from configs.schema import Preset
from sim_envs.droid.machines import ConveyorShape, RampShape, TurntableShape
from sim_envs.droid.pieces import Length, MovingPart, Piece, about_y, about_z, open_box, times

_AROUND = 16
"""Pieces of a round wall."""

_DRAWER = "drawer"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opening:
    """The room inside a vessel.

    Attributes:
        half: Half its sides along x and y, m; of a round one, its radius twice.
        round: Whether it is round.
        floor: Height of its floor, m.
        rim: Height of its rim, m.
    """

    half: tuple[float, float]
    round: bool
    floor: float
    rim: float


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
        """Its sides along x, y, z."""
        return self.size


class CylinderShape(Preset):
    """An upright cylinder: a can, a plate, a board that is round."""

    kind: Literal["cylinder"]
    radius: Length
    height: Length

    def pieces(self) -> tuple[Piece, ...]:
        """One cylinder."""
        half = self.height / 2
        return (Piece(type="cylinder", size=(self.radius, half), pos=(0.0, 0.0, half)),)

    @property
    def extent(self) -> tuple[float, float, float]:
        """Its sides along x, y, z."""
        return 2 * self.radius, 2 * self.radius, self.height


class SphereShape(Preset):
    """A ball."""

    kind: Literal["sphere"]
    radius: Length

    def pieces(self) -> tuple[Piece, ...]:
        """One sphere."""
        return (Piece(type="sphere", size=(self.radius,), pos=(0.0, 0.0, self.radius)),)

    @property
    def extent(self) -> tuple[float, float, float]:
        """Its sides along x, y, z."""
        return 2 * self.radius, 2 * self.radius, 2 * self.radius


class BananaShape(Preset):
    """A lying arc of capsules; `length` along x, bent in the plane by `bend` degrees from end to end."""

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
        """Its sides along x, y, z."""
        turn = math.radians(self.bend)
        sag = (self.length - 2 * self.radius) / 2 * math.tan(turn / 4)
        return self.length, sag + 2 * self.radius, 2 * self.radius


class BowlShape(Preset):
    """A bowl, a plate, a cup: a round wall that widens from `foot` to `radius` over a bottom."""

    kind: Literal["bowl"]
    radius: Length
    height: Length
    foot: Length
    wall: Length = 0.004

    def pieces(self) -> tuple[Piece, ...]:
        """The bottom and a ring of boxes that lean outwards."""
        bottom = Piece(type="cylinder", size=(self.foot, self.wall / 2), pos=(0.0, 0.0, self.wall / 2))
        return (bottom, *_round_wall(self.foot, self.radius, self.height, self.wall))

    @property
    def opening(self) -> Opening:
        """Its inside."""
        inner = self.radius - self.wall
        return Opening(half=(inner, inner), round=True, floor=self.wall, rim=self.height)

    @property
    def extent(self) -> tuple[float, float, float]:
        """Its sides along x, y, z."""
        return 2 * self.radius, 2 * self.radius, self.height


class MugShape(Preset):
    """An upright mug with a handle along x; `radius` is that of its outer wall."""

    kind: Literal["mug"]
    radius: Length
    height: Length
    wall: Length = 0.004
    handle: Length = 0.035

    def pieces(self) -> tuple[Piece, ...]:
        """Bottom, wall and three boxes of a handle."""
        bottom = Piece(type="cylinder", size=(self.radius, self.wall / 2), pos=(0.0, 0.0, self.wall / 2))
        thick, low, high = 0.005, 0.25 * self.height, 0.8 * self.height
        out = self.radius + self.handle
        arms = tuple(
            Piece(
                type="box", size=(self.handle / 2, thick, thick), pos=(self.radius + self.handle / 2, 0.0, z)
            )
            for z in (low, high)
        )
        grip = Piece(
            type="box", size=(thick, thick, (high - low) / 2 + thick), pos=(out, 0.0, (low + high) / 2)
        )
        return (bottom, *_round_wall(self.radius, self.radius, self.height, self.wall), *arms, grip)

    @property
    def opening(self) -> Opening:
        """Its inside."""
        inner = self.radius - self.wall
        return Opening(half=(inner, inner), round=True, floor=self.wall, rim=self.height)

    @property
    def extent(self) -> tuple[float, float, float]:
        """Its sides along x, y, z; the handle counts on both sides."""
        return 2 * (self.radius + self.handle + 0.005), 2 * self.radius, self.height


class RingShape(Preset):
    """A lying ring without a bottom: a roll of tape."""

    kind: Literal["ring"]
    radius: Length
    height: Length
    wall: Length

    def pieces(self) -> tuple[Piece, ...]:
        """A ring of boxes."""
        return _round_wall(self.radius, self.radius, self.height, self.wall)

    @property
    def extent(self) -> tuple[float, float, float]:
        """Its sides along x, y, z."""
        return 2 * self.radius, 2 * self.radius, self.height


class BinShape(Preset):
    """An open box: a bin, a tray; `size` along x, y, z."""

    kind: Literal["bin"]
    size: tuple[Length, Length, Length]
    wall: Length = 0.005

    def pieces(self) -> tuple[Piece, ...]:
        """The bottom and four walls."""
        return open_box(self.size, self.wall)

    @property
    def opening(self) -> Opening:
        """Its inside."""
        x, y = (side / 2 - self.wall for side in self.size[:2])
        return Opening(half=(x, y), round=False, floor=self.wall, rim=self.size[2])

    @property
    def extent(self) -> tuple[float, float, float]:
        """Its sides along x, y, z."""
        return self.size


class DrawerShape(Preset):
    """A cabinet with one drawer that slides out along -x by a bar; `size` along x, y, z. It stands fast."""

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
        """Its sides along x, y, z, the bar and the open drawer counted on both sides."""
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
        """Its sides along x, y, z."""
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
        """Its sides along x, y, z."""
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
"""Shapes that something can be in."""

Painted = MarkShape | LineShape
"""Shapes that nothing touches."""

Machine = ConveyorShape | TurntableShape | RampShape
"""Shapes that move by themselves, and carry other objects."""

Articulated = DrawerShape | Machine
"""Shapes with parts that move; all else of them stands fast."""


def footprint(shape: Shape) -> float:
    """Radius (m) of a circle about its middle that a standing shape does not leave."""
    x, y, _ = shape.extent
    is_round = isinstance(shape, CylinderShape | SphereShape | BowlShape | RingShape | MarkShape)
    return max(x, y) / 2 if is_round else math.hypot(x, y) / 2


def corners(shape: Shape) -> Float64[np.ndarray, "8 3"]:
    """The corners of its extent in its own frame, m."""
    x, y, z = shape.extent
    return np.array(
        [(sx * x / 2, sy * y / 2, sz * z) for sx in (-1, 1) for sy in (-1, 1) for sz in (0, 1)], np.float64
    )


def _round_wall(low: float, high: float, height: float, wall: float) -> tuple[Piece, ...]:
    """Boxes around a circle, outer radius `low` at the foot and `high` at the rim."""
    lean = math.atan2(high - low, height)
    width = (high - wall / 2) * math.tan(math.pi / _AROUND) * 1.02
    size = (wall / 2, width, math.hypot(high - low, height) / 2)
    radius = (low + high) / 2 - wall / 2
    angles = [2 * math.pi * number / _AROUND for number in range(_AROUND)]
    return tuple(
        Piece(
            type="box",
            size=size,
            pos=(radius * math.cos(angle), radius * math.sin(angle), height / 2),
            quat=times(about_z(angle), about_y(lean)),
        )
        for angle in angles
    )
