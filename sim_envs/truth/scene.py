"""What truth is read from: what the gripper touches, where things are, how far drawers are out. Read only.

A world's scene names its things and its goals; `PhaseTracker` and `TruthTracker` make sense of them.
"""

import abc
import dataclasses
from collections.abc import Sequence

import mujoco
import numpy as np
from jaxtyping import Float64, Int32, Int64

from sim_envs.truth.ground_truth import Phase
from sim_envs.truth.nouns import Nouns

LEFT, RIGHT, HAND = 1, 2, 4
"""Sides of the gripper: either finger, and the rest of the hand."""

NOTHING = -1
"""Who a geom belongs to, where that is no item."""

_AJAR = 0.05
"""A drawer or door counts as closed up to this share of its way; LIBERO's own limit is exactly 0."""

Vector3 = Float64[np.ndarray, " 3"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Articulation:
    """A fixture's joint that opens or switches something.

    Attributes:
        address: Of its position in MuJoCo's `qpos`.
        start: Position (m or rad) where it is closed or off.
        end: Position from which on it is open or on.
        switches: Whether it switches something on, rather than opening it.
    """

    address: int
    start: float
    end: float
    switches: bool

    def state(self, position: float) -> str:
        """`open`, `closed` or `half open`; `on` or `off`."""
        way = (position - self.start) / (self.end - self.start)
        if self.switches:
            return "on" if way >= 1 else "off"
        return "open" if way > 1 else "closed" if way < _AJAR else "half open"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Item:
    """A movable thing, or a part of a fixture that can be opened or turned on.

    Attributes:
        index: Its number among the scene's items.
        name: The world's name of the thing or of the fixture.
        noun: What it is called.
        body: MuJoCo's body that moves.
        articulation: How it opens or switches; None for a thing.
        too_wide: Whether it can only be pushed, since it does not fit between the fingers.
    """

    index: int
    name: str
    noun: str
    body: int
    articulation: Articulation | None = None
    too_wide: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class GoalTarget:
    """What a goal is about.

    Attributes:
        number: Of the goal, among the task's.
        item: What it would have moved, opened or turned on.
        place: Noun of where it would have it; None if that is not what it is about.
        gate: What must be open for it to get there, if anything.
        wanted: What it would have done to a part; None for a thing.
        stays: Whether the thing is to be turned where it is rather than brought somewhere.
    """

    number: int
    item: Item
    place: str | None = None
    gate: Item | None = None
    wanted: Phase | None = None
    stays: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class GripperContacts:
    """What the gripper touches, by item number.

    Attributes:
        any: Touched by a finger or the hand.
        both: Touched by both fingers.
    """

    any: frozenset[int]
    both: frozenset[int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RawState:
    """One control step in raw numbers.

    Attributes:
        gripper: Where the grip site was (m).
        positions: Where every item's body was (m).
        joints: How far every part was out (m or rad).
        contacts: The pairs of geoms that touched.
    """

    gripper: Vector3
    positions: Float64[np.ndarray, "item 3"]
    joints: Float64[np.ndarray, " part"]
    contacts: Int32[np.ndarray, "contact 2"]


class TruthScene(abc.ABC):
    """One episode, seen as items, places and goals. Made anew after each reset.

    Attributes:
        items: The things, then the parts.
        targets: What the goals are about, in the task's order.
        named: What the goals name, each once.
        nouns: What texts about it may name; None for `places.HOUSEHOLD`.
    """

    targets: Sequence[GoalTarget]
    nouns: Nouns | None = None

    def __init__(
        self,
        data: mujoco.MjData,
        items: Sequence[Item],
        *,
        grip_site: int,
        owner: Int64[np.ndarray, " geom"],
        side: Int64[np.ndarray, " geom"],
    ) -> None:
        """See a simulation as items.

        Args:
            data: Its state, which changes under the scene.
            items: Its things, then its parts.
            grip_site: The point between the fingertips.
            owner: Geom to the number of the item it belongs to; negative if it is none's.
            side: Geom to its side of the gripper: `LEFT`, `RIGHT` or `HAND`; 0 elsewhere.
        """
        self.items = items
        self.things = [item for item in items if item.articulation is None]
        self.parts = [item for item in items if item.articulation is not None]
        self._xpos, self._xmat, self._qpos, self._data = data.xpos, data.xmat, data.qpos, data
        self._bodies = np.array([item.body for item in items])
        joints = [item.articulation.address for item in items if item.articulation is not None]
        self._joints = np.array(joints, np.int64)
        self._grip = data.site_xpos[grip_site]
        self._owner, self._side = owner, side

    @property
    def named(self) -> list[Item]:
        """What the goals are about, and what must be open for them, each once."""
        found = [item for target in self.targets for item in (target.item, target.gate) if item is not None]
        return list({item.index: item for item in found}.values())

    def capture(self) -> RawState:
        """What is the case now, as raw numbers: it takes microseconds, and can be made sense of later."""
        return RawState(
            gripper=self._grip.copy(),
            positions=self._xpos[self._bodies],
            joints=self._qpos[self._joints],
            contacts=self._data.contact.geom.copy(),
        )

    def state(self, item: Item) -> str:
        """Whether a part is open, closed, half open, on or off now."""
        assert item.articulation is not None
        return item.articulation.state(self.joint(item))

    def joint(self, item: Item) -> float:
        """How far a part is out now (m or rad)."""
        assert item.articulation is not None
        return float(self._qpos[item.articulation.address])

    def touch(self, moment: RawState) -> GripperContacts:
        """What the gripper touched at a moment."""
        by = self._side[moment.contacts]
        touched: dict[int, int] = {}
        for row in np.flatnonzero(by[:, 0] | by[:, 1]):
            mine = 0 if by[row, 0] else 1
            other = int(self._owner[moment.contacts[row, 1 - mine]])
            if other >= 0:
                touched[other] = touched.get(other, 0) | int(by[row, mine])
        both = frozenset(item for item, fingers in touched.items() if fingers & LEFT and fingers & RIGHT)
        return GripperContacts(any=frozenset(touched), both=both)

    def missing(self) -> list[GoalTarget]:
        """The goals that are still to be reached."""
        return [target for target in self.targets if not self.satisfied(target)]

    @abc.abstractmethod
    def satisfied(self, target: GoalTarget) -> bool:
        """Whether a goal holds now; asking changes nothing."""

    @abc.abstractmethod
    def nearest(self, items: Sequence[Item], point: Vector3) -> Item:
        """Which of some items that goals are about a gripper that comes to a point (m) is heading for."""

    @abc.abstractmethod
    def is_near(self, target: GoalTarget, position: Vector3, margin: float) -> bool:
        """Whether a position is over the place of a goal, give or take a margin (m)."""

    @abc.abstractmethod
    def location(self, item: Item) -> str:
        """Where a thing is, as a fact has it; goals come first, so that facts agree with success."""
