"""Machines that carry objects: conveyor, turntable, ramp. Lengths in m."""

import math
from typing import Literal

from pydantic import Field

from configs.schema import Preset
from sim_envs.droid.pieces import Drive, Length, MovingPart, Piece, about_y

_ROLLER, _PITCH = 0.011, 0.0235
"""Radius of a conveyor's rollers, and the distance between their axes."""

_RAIL = 0.012
"""Width of the rails on both sides of a conveyor."""

_BOX_LENGTH, _BOX_ROOM, _SHEET = 0.14, 0.11, 0.006
"""The covered box at a conveyor's end: length, height of its opening, wall thickness."""

_INERTIA = 2e-4
"""Armature of a roller's motor (kg m²): full speed takes a few hundredths of a second."""

_ACROSS = (math.sqrt(0.5), math.sqrt(0.5), 0.0, 0.0)
"""Quaternion that turns the axis of a capsule from z to y."""

_DISC = 0.015
"""Thickness of a turntable's disc."""

_PLATE, _LIP = 0.01, 0.012
"""Thickness of a ramp's plate, and width and height of its lips."""

_SEAT = 0.13
"""Length of a ramp behind its gate."""

_GATE_THICK, _GATE_HEIGHT, _GATE_DROP = 0.006, 0.06, 0.065
"""The gate: thickness, height above the slope, and distance by which it sinks."""

_SLACK = 0.001
"""Gap between the gate, the ramp and the ball."""

Spot = tuple[float, float, float]


class ConveyorShape(Preset):
    """Driven rollers that carry objects along x into a covered box, from which they cannot be taken.

    Attributes:
        size: Length along x, with the box; width along y, between the rails; height of the rollers' top.
        speed: Speed of the rollers' surface, m/s.
    """

    kind: Literal["conveyor"]
    size: tuple[Length, Length, Length]
    speed: float = Field(ge=0, le=0.3)

    def pieces(self) -> tuple[Piece, ...]:
        """Rails, the box, and rollers."""
        rollers = tuple(
            Piece(
                type="capsule", size=(_ROLLER, self.size[1] / 2), pos=(0.0, 0.0, 0.0), quat=_ACROSS, part=name
            )
            for name in self._rollers()
        )
        return (*self._rails(), *self._box(), *rollers)

    def parts(self) -> tuple[MovingPart, ...]:
        """The rollers, each with its own motor."""
        drive = Drive(keeps="velocity", target=self.speed / _ROLLER, gain=0.05, limit=0.05)
        return tuple(
            MovingPart(
                name=name,
                joint="hinge",
                axis=(0.0, 1.0, 0.0),
                pos=(place, 0.0, self.size[2] - _ROLLER),
                armature=_INERTIA,
                drive=drive,
            )
            for name, place in self._rollers().items()
        )

    def seat(self, x: float, y: float, half: float) -> Spot:
        """The initial position of an object at (x, y)."""
        del half
        return x, y, self.size[2]

    @property
    def extent(self) -> tuple[float, float, float]:
        """Size of the bounding box along x, y, z, with the covered box."""
        length, width, height = self.size
        return length, width + 2 * _RAIL, height + _BOX_ROOM

    @property
    def end(self) -> float:
        """The x coordinate at which the rollers end."""
        return self.size[0] / 2 - _BOX_LENGTH

    def _rollers(self) -> dict[str, float]:
        """Maps each roller to its x coordinate."""
        start = -self.size[0] / 2
        count = int((self.end - start) / _PITCH)
        return {f"roller{number}": start + (number + 0.5) * _PITCH for number in range(count)}

    def _rails(self) -> tuple[Piece, ...]:
        length, width, height = self.size
        size = ((self.end + length / 2) / 2, _RAIL / 2, height / 2 - 0.002)
        middle, side = (self.end - length / 2) / 2, (width + _RAIL) / 2
        return tuple(Piece(type="box", size=size, pos=(middle, sign * side, size[2])) for sign in (-1, 1))

    def _box(self) -> tuple[Piece, ...]:
        length, width, height = self.size
        top, half, middle = height + _BOX_ROOM, _BOX_LENGTH / 2, self.end + _BOX_LENGTH / 2
        wide, thin = width / 2 + _RAIL, _SHEET / 2
        far = Piece(type="box", size=(thin, wide, top / 2), pos=(length / 2 - thin, 0.0, top / 2))
        roof = Piece(type="box", size=(half, wide, thin), pos=(middle, 0.0, top - thin))
        sides = (
            Piece(type="box", size=(half, thin, top / 2), pos=(middle, sign * (wide - thin), top / 2))
            for sign in (-1, 1)
        )
        return (far, roof, *sides)


class TurntableShape(Preset):
    """A disc that turns about z, counterclockwise seen from above.

    Attributes:
        radius: Radius of the disc.
        height: Height of its top.
        turn_rate: Angular velocity, degrees/s.
    """

    kind: Literal["turntable"]
    radius: Length
    height: float = Field(ge=0.02, le=0.3)
    turn_rate: float = Field(ge=0, le=180)

    def pieces(self) -> tuple[Piece, ...]:
        """A foot and the disc."""
        foot = (self.height - _DISC) / 2 - _SLACK
        return (
            Piece(type="cylinder", size=(self.radius / 2, foot), pos=(0.0, 0.0, foot)),
            Piece(type="cylinder", size=(self.radius, _DISC / 2), pos=(0.0, 0.0, -_DISC / 2), part="disc"),
        )

    def parts(self) -> tuple[MovingPart, ...]:
        """The disc."""
        drive = Drive(keeps="velocity", target=math.radians(self.turn_rate), gain=2.0, limit=2.0)
        return (
            MovingPart(
                name="disc", joint="hinge", axis=(0.0, 0.0, 1.0), pos=(0.0, 0.0, self.height), drive=drive
            ),
        )

    def seat(self, x: float, y: float, half: float) -> Spot:
        """The initial position of an object at (x, y)."""
        del half
        return x, y, self.height

    @property
    def extent(self) -> tuple[float, float, float]:
        """Size of the bounding box along x, y, z."""
        return 2 * self.radius, 2 * self.radius, self.height


class RampShape(Preset):
    """A slope with lips, down along x to the table. A gate at its top sinks and releases a ball.

    Attributes:
        width: Width between the lips.
        height: Height of the slope at the gate.
        angle: Angle of the slope, degrees.
        delay: Time from the beginning of the episode until the gate sinks, s.
    """

    kind: Literal["ramp"]
    width: Length
    height: float = Field(ge=0.005, le=0.2)
    angle: float = Field(ge=2, le=30)
    delay: float = Field(ge=0, le=10)

    def pieces(self) -> tuple[Piece, ...]:
        """Plate, lips, a support, and the gate."""
        slope, half = math.radians(self.angle), self.size[0] / 2
        long, wide = half / math.cos(slope), self.width / 2 + _LIP
        raised = (self._surface(-half) - _PLATE) / 2
        return (
            self._lying((long, wide, _PLATE / 2), y=0.0, above=-_PLATE / 2),
            *(
                self._lying((long, _LIP / 2, _LIP / 2), y=side * (self.width + _LIP) / 2, above=_LIP / 2)
                for side in (-1, 1)
            ),
            Piece(type="box", size=(0.01, wide, raised), pos=(0.01 - half, 0.0, raised)),
            Piece(
                type="box",
                size=(_GATE_THICK / 2, self.width / 2 - _SLACK, _GATE_HEIGHT / 2),
                pos=(0.0, 0.0, _GATE_HEIGHT / 2),
                part="gate",
            ),
        )

    def parts(self) -> tuple[MovingPart, ...]:
        """The gate."""
        drive = Drive(keeps="position", target=_GATE_DROP, gain=200.0, limit=20.0, delay=self.delay)
        return (
            MovingPart(
                name="gate",
                joint="slide",
                axis=(0.0, 0.0, -1.0),
                pos=(self._gate, 0.0, self._surface(self._gate)),
                span=(0.0, _GATE_DROP),
                damping=4.0,
                drive=drive,
            ),
        )

    def seat(self, x: float, y: float, half: float) -> Spot:
        """The initial position of a ball; x from the gate (negative: up the slope), y from the middle."""
        slope = math.radians(self.angle)
        at = self._gate - _GATE_THICK / 2 - _SLACK - half + x
        return at, y, self._surface(at) + half / math.cos(slope) - half

    @property
    def size(self) -> tuple[float, float]:
        """Its length along x, and its width with the lips."""
        return self.height / math.tan(math.radians(self.angle)) + _SEAT, self.width + 2 * _LIP

    @property
    def extent(self) -> tuple[float, float, float]:
        """Size of the bounding box along x, y, z, without the gate."""
        return *self.size, self._surface(-self.size[0] / 2) + _LIP

    @property
    def _gate(self) -> float:
        """The gate's x coordinate."""
        return _SEAT - self.size[0] / 2

    def _surface(self, x: float) -> float:
        """Height of the slope."""
        return (self.size[0] / 2 - x) * math.tan(math.radians(self.angle))

    def _lying(self, half: Spot, *, y: float, above: float) -> Piece:
        """A box along the slope, whose center is at a height `above` the slope's surface."""
        slope = math.radians(self.angle)
        place = (above * math.sin(slope), y, self._surface(0.0) + above * math.cos(slope))
        return Piece(type="box", size=half, pos=place, quat=about_y(slope))
