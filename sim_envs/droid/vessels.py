"""Shapes with an opening, composed of thin convex pieces. Lengths in m, as in `shapes`."""

import dataclasses
import math
from typing import Literal

from configs.schema import Preset
from sim_envs.droid.pieces import Length, Piece, RoundShape, about_y, about_z, open_box, times

_AROUND = 16
"""Number of pieces of a round wall."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opening:
    """The space inside a vessel.

    Attributes:
        half: Half its sides along x and y, m; the radius, twice, if it is round.
        round: Whether it is round.
        floor: Height of its floor, m.
        rim: Height of its rim, m.
    """

    half: tuple[float, float]
    round: bool
    floor: float
    rim: float


class BowlShape(RoundShape):
    """A bowl, a plate, a cup: a round wall that widens from `foot` to `radius` over a bottom."""

    kind: Literal["bowl"]
    foot: Length
    wall: Length = 0.004

    def pieces(self) -> tuple[Piece, ...]:
        """The bottom and a ring of boxes that lean outwards."""
        bottom = Piece(type="cylinder", size=(self.foot, self.wall / 2), pos=(0.0, 0.0, self.wall / 2))
        return (bottom, *_round_wall(self.foot, self.radius, self.height, self.wall))

    @property
    def opening(self) -> Opening:
        """The space inside."""
        inner = self.radius - self.wall
        return Opening(half=(inner, inner), round=True, floor=self.wall, rim=self.height)


class MugShape(Preset):
    """An upright mug with a handle along x; `radius` is the outer one."""

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
        """The space inside."""
        inner = self.radius - self.wall
        return Opening(half=(inner, inner), round=True, floor=self.wall, rim=self.height)

    @property
    def extent(self) -> tuple[float, float, float]:
        """Size of the bounding box along x, y, z; the handle counts on both sides."""
        return 2 * (self.radius + self.handle + 0.005), 2 * self.radius, self.height


class RingShape(RoundShape):
    """A lying ring without a bottom: a roll of tape."""

    kind: Literal["ring"]
    wall: Length

    def pieces(self) -> tuple[Piece, ...]:
        """A ring of boxes."""
        return _round_wall(self.radius, self.radius, self.height, self.wall)


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
        """The space inside."""
        x, y = (side / 2 - self.wall for side in self.size[:2])
        return Opening(half=(x, y), round=False, floor=self.wall, rim=self.size[2])

    @property
    def extent(self) -> tuple[float, float, float]:
        """Size of the bounding box along x, y, z."""
        return self.size


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
