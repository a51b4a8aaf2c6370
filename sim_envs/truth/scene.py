"""The simulation as items, contacts and goals, from which ground truth is derived. Read only.

A world's scene names its objects and goals; `PhaseTracker` and `TruthTracker` interpret them.
"""

import abc
import dataclasses
from collections.abc import Collection, Sequence

import mujoco
import numpy as np
from jaxtyping import Float64, Int32, Int64

from contracts.nouns import Nouns
from contracts.truth import CompletedAction, Phase
from sim_envs.scripted.poses import Vector3
from sim_envs.truth.textual_memory import GoalSentences

LEFT, RIGHT, HAND = 1, 2, 4  # parts of the gripper, as bits: the fingers, and the rest of the hand
NOTHING = -1  # the owner of geoms that belong to no item
_AJAR = 0.05  # a drawer or door counts as closed up to this fraction of its range; LIBERO's own limit is 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Articulation:
    """A fixture's joint that opens or switches something."""

    address: int  # index of its position in MuJoCo's `qpos`
    start: float  # position (m or rad) when closed or off
    end: float  # position from which it counts as open or on
    switches: bool  # whether it is a switch rather than a drawer or door

    def state(self, position: float) -> str:
        """`open`, `closed` or `half open`; `on` or `off`."""
        way = (position - self.start) / (self.end - self.start)
        if self.switches:
            return "on" if way >= 1 else "off"
        return "open" if way > 1 else "closed" if way < _AJAR else "half open"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Item:
    """A movable object, or a part of a fixture that can be opened or turned on."""

    index: int  # index among the scene's items
    name: str  # the world's name of the object or fixture
    noun: str  # its noun in texts
    body: int  # id of the MuJoCo body that moves
    articulation: Articulation | None = None  # how it opens or switches; None for an object
    too_wide: bool = False  # whether it is too wide for the gripper and can only be pushed


@dataclasses.dataclass(frozen=True, kw_only=True)
class GoalTarget:
    """The item, place and action that a goal requires."""

    number: int  # index of the goal in the task
    item: Item  # the item to be moved, opened or turned on
    place: str | None = None  # noun of the place where it has to be; None if the goal requires none
    gate: Item | None = None  # the part that must be open for the item to get there, if any
    wanted: Phase | None = None  # the phase that acts on a part; None for an object
    stays: bool = False  # whether the object is to be turned in place rather than moved


@dataclasses.dataclass(frozen=True, kw_only=True)
class RawState:
    """Copied simulator state of one control step."""

    gripper: Vector3  # position of the grip site (m)
    positions: Float64[np.ndarray, "item 3"]  # positions of the items' bodies (m)
    joints: Float64[np.ndarray, " part"]  # joint positions of the parts (m or rad)
    contacts: Int32[np.ndarray, "contact 2"]  # pairs of geoms in contact


class SceneError(ValueError):
    """A scene has no ground truth, such as one with two objects that no words tell apart."""


class TruthScene(abc.ABC):
    """One episode as items, places and goals. Created anew after each reset."""

    targets: Sequence[GoalTarget]  # of the goals, in the task's order
    nouns: Nouns | None = None  # vocabulary of texts; None for `nouns.HOUSEHOLD`
    sentences: GoalSentences | None = None  # the goals in OxyGen's words, in the order of `targets`

    def __init__(
        self,
        data: mujoco.MjData,
        items: Sequence[Item],
        *,
        grip_site: int,
        owner: Int64[np.ndarray, " geom"],
        side: Int64[np.ndarray, " geom"],
    ) -> None:
        """Describe a simulation.

        Args:
            data: The simulation state, which keeps changing.
            items: The objects, then the parts.
            grip_site: Id of the site between the fingertips.
            owner: Maps a geom to the index of its item; negative for none.
            side: Maps a geom to its part of the gripper: `LEFT`, `RIGHT` or `HAND`; 0 elsewhere.
        """
        self.items = items
        self.things = [item for item in items if item.articulation is None]
        self.parts = [item for item in items if item.articulation is not None]
        self._xpos, self._qpos, self._data = data.xpos, data.qpos, data
        self._bodies = np.array([item.body for item in items])
        joints = [item.articulation.address for item in items if item.articulation is not None]
        self._joints = np.array(joints, np.int64)
        self._grip = data.site_xpos[grip_site]
        self._owner, self._side = owner, side

    @property
    def named(self) -> list[Item]:
        """The items of the goals, and the parts that must be open for them, without duplicates."""
        found = [item for target in self.targets for item in (target.item, target.gate) if item is not None]
        return list({item.index: item for item in found}.values())

    def capture(self) -> RawState:
        """Copy the current state, which takes microseconds, to be interpreted later."""
        return RawState(
            gripper=self._grip.copy(),
            positions=self._xpos[self._bodies],
            joints=self._qpos[self._joints],
            contacts=self._data.contact.geom.copy(),
        )

    def state(self, item: Item) -> str:
        """The state of a part: open, closed, half open, on or off."""
        assert item.articulation is not None
        return item.articulation.state(self.joint(item))

    def joint(self, item: Item) -> float:
        """Joint position of a part (m or rad)."""
        assert item.articulation is not None
        return float(self._qpos[item.articulation.address])

    def touch(self, moment: RawState) -> tuple[frozenset[int], frozenset[int]]:
        """Indices of the items touched by a finger or the hand, and by both fingers, in a captured state."""
        by = self._side[moment.contacts]
        touched: dict[int, int] = {}
        for row in np.flatnonzero(by[:, 0] | by[:, 1]):
            mine = 0 if by[row, 0] else 1
            other = int(self._owner[moment.contacts[row, 1 - mine]])
            if other >= 0:
                touched[other] = touched.get(other, 0) | int(by[row, mine])
        both = frozenset(item for item, fingers in touched.items() if fingers & LEFT and fingers & RIGHT)
        return frozenset(touched), both

    def missing(self) -> list[GoalTarget]:
        """The targets of unsatisfied goals."""
        return [target for target in self.targets if not self.satisfied(target)]

    def completed(self) -> Sequence[CompletedAction] | None:
        """The completed actions of a task that counts them itself; None leaves them to the tracker."""
        return None

    def lifted(self) -> Collection[str]:
        """The objects in `sentences.alike` that the gripper has lifted."""
        return ()

    @abc.abstractmethod
    def satisfied(self, target: GoalTarget) -> bool:
        """Whether a goal holds now. Must not change the simulation."""

    @abc.abstractmethod
    def nearest(self, items: Sequence[Item], point: Vector3) -> Item:
        """The item, of those given, that a gripper at a point (m) is approaching."""

    @abc.abstractmethod
    def is_near(self, target: GoalTarget, position: Vector3, margin: float) -> bool:
        """Whether a position is above the place of a goal, within a margin (m)."""

    @abc.abstractmethod
    def location(self, item: Item) -> str:
        """An object's location as in facts. Goals are checked first, so that facts agree with success."""
