"""What truth is read from: what the gripper touches, where things are, how far drawers are out. Read only."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float64, Int32

from sim_envs.libero.experts.scene import Goal
from sim_envs.libero.truth.items import GROUNDS, LEFT, RIGHT, Hulls, Item, Vector3, find_items, owners, sides
from sim_envs.libero.truth.names import Names
from sim_envs.truth.account import ELSEWHERE
from sim_envs.truth.places import phrase

_FLAT = 0.01
"""A region no higher than this (m, half its height) is stood on, a higher one is stood in."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Aim:
    """What a goal is about.

    Attributes:
        goal: The goal.
        item: What it would have moved, opened or turned on.
        place: Noun of where it would have it; None if that is not what it is about.
        gate: What must be open for it to get there, if anything.
    """

    goal: Goal
    item: Item
    place: str | None
    gate: Item | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Touch:
    """What the gripper touches, by item number.

    Attributes:
        any: Touched by a finger or the hand.
        both: Touched by both fingers.
    """

    any: frozenset[int]
    both: frozenset[int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Moment:
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


class TruthScene:
    """One episode of a LIBERO environment, seen as items, places and goals. Made anew after each reset."""

    def __init__(self, env: Any, instruction: str) -> None:
        self._env = env
        self._model: mujoco.MjModel = env.sim.model._model
        self._data: mujoco.MjData = env.sim.data._data
        self._names = Names.of(env.parsed_problem, instruction)
        self.items = find_items(env, self._model, self._names)
        self.things = [item for item in self.items if item.articulation is None]
        self.parts = [item for item in self.items if item.articulation is not None]
        self._by_name = {item.name: item for item in self.things}
        self._bodies = np.array([item.body for item in self.items])
        self._xpos, self._xmat, self._qpos = self._data.xpos, self._data.xmat, self._data.qpos
        joints = [item.articulation.address for item in self.items if item.articulation is not None]
        self._joints = np.array(joints, np.int64)
        self._grip = self._data.site_xpos[self._model.site(env.robots[0].controller.eef_name).id]
        self._owner = owners(self._model, self.items)
        self._side = sides(env, self._model)
        self.aims = [self._aim(goal) for goal in Goal.all_of(env)]
        self.named = self._named()
        self._hulls = Hulls(self._model, self._owner, self.named)
        self._regions = [
            (name, site) for name, site in env.object_sites_dict.items() if hasattr(site, "parent_name")
        ]

    def capture(self) -> Moment:
        """What is the case now, as raw numbers: it takes microseconds, and can be made sense of later."""
        return Moment(
            gripper=self._grip.copy(),
            positions=self._xpos[self._bodies],
            joints=self._qpos[self._joints],
            contacts=self._data.contact.geom.copy(),
        )

    def state(self, item: Item) -> str:
        """Whether a part is open, closed, half open, on or off now."""
        assert item.articulation is not None
        return item.articulation.state(self._joint(item))

    def _joint(self, item: Item) -> float:
        assert item.articulation is not None
        return float(self._qpos[item.articulation.address])

    def touch(self, moment: Moment) -> Touch:
        """What the gripper touched at a moment."""
        by = self._side[moment.contacts]
        touched: dict[int, int] = {}
        for row in np.flatnonzero(by[:, 0] | by[:, 1]):
            mine = 0 if by[row, 0] else 1
            other = int(self._owner[moment.contacts[row, 1 - mine]])
            if other >= 0:
                touched[other] = touched.get(other, 0) | int(by[row, mine])
        both = frozenset(item for item, fingers in touched.items() if fingers & LEFT and fingers & RIGHT)
        return Touch(any=frozenset(touched), both=both)

    def nearest(self, items: Sequence[Item], point: Vector3) -> Item:
        """Which of some items that goals are about has its surface, taken as boxes, nearest to a point."""
        distances = self._hulls.distances(point, self._xpos, self._xmat)
        return min(items, key=lambda item: distances[item.index])

    def missing(self) -> list[Aim]:
        """The goals that do not hold now."""
        return [aim for aim in self.aims if not self.satisfied(aim)]

    def satisfied(self, aim: Aim) -> bool:
        """Whether a goal holds, by LIBERO's own predicate; asking changes nothing."""
        goal = aim.goal
        if goal.predicate not in ("turnon", "turnoff"):
            return bool(self._env._eval_predicate([goal.predicate, *goal.arguments]))
        # LIBERO's own predicates of a stove also light its burner.
        ranges = self._env.get_object(goal.arguments[0]).object_properties["articulation"]
        if goal.predicate == "turnon":
            return self._joint(aim.item) >= min(ranges["default_turnon_ranges"])
        return self._joint(aim.item) < max(ranges["default_turnoff_ranges"])

    def is_near(self, aim: Aim, position: Vector3, margin: float) -> bool:
        """Whether a position is over the place of a goal, give or take a margin (m)."""
        target = aim.goal.arguments[1]
        if target in self._by_name:
            center, half = self._xpos[self._by_name[target].body], np.full(2, 0.03)
        else:
            site = self._env.object_sites_dict[target]
            which = self._model.site(target).id
            center = self._data.site_xpos[which]
            half = np.abs(self._data.site_xmat[which].reshape(3, 3) @ np.asarray(site.size))[:2]
        return bool(np.all(np.abs(position - center)[:2] <= half + margin))

    def whereabouts(self, item: Item) -> str:
        """Where a thing is: in or on a region, on another thing, on the table; else `elsewhere`.

        By LIBERO's predicates; its goals come first, so that facts agree with success.
        """
        for aim in self.aims:
            if aim.item is item and aim.place is not None and self.satisfied(aim):
                return phrase(aim.place)
        for name in (*self._regions_around(item), *self._things_under(item)):
            return phrase(self._names.place(name))
        return next(map(phrase, self._grounds_under(item)), ELSEWHERE)

    def _aim(self, goal: Goal) -> Aim:
        noun = self._names.place(goal.arguments[-1])
        part = next((item for item in self.parts if item.noun == noun), None)
        if goal.predicate in ("in", "on"):
            gate = part if goal.predicate == "in" else None
            return Aim(goal=goal, item=self._by_name[goal.arguments[0]], place=noun, gate=gate)
        assert part is not None, f"{goal} is about nothing that opens or turns on"
        return Aim(goal=goal, item=part, place=None, gate=None)

    def _named(self) -> list[Item]:
        found = [item for aim in self.aims for item in (aim.item, aim.gate) if item is not None]
        return list({item.index: item for item in found}.values())

    def _regions_around(self, item: Item) -> list[str]:
        found = []
        for name, site in self._regions:
            predicate = "on" if np.asarray(site.size)[2] < _FLAT else "in"
            if site.parent_name != item.name and self._holds(predicate, item.name, name):
                found.append(name)
        return found

    def _things_under(self, item: Item) -> list[str]:
        return [
            other.name
            for other in self.things
            if other is not item and self._holds("on", item.name, other.name)
        ]

    def _holds(self, predicate: str, thing: str, place: str) -> bool:
        if predicate == "in" and not self._touches(thing, place):
            return False
        return bool(self._env._eval_predicate([predicate, thing, place]))

    def _touches(self, thing: str, region: str) -> bool:
        """Whether a thing touches what the region is part of; else it may be passing through."""
        parent = self._env.get_object(self._env.object_sites_dict[region].parent_name)
        return bool(self._env.check_contact(parent, self._env.get_object(thing)))

    def _grounds_under(self, item: Item) -> list[str]:
        pairs = self._data.contact.geom
        touched = self._owner[pairs[:, ::-1][self._owner[pairs] == item.index]]
        return [noun for noun, owner in GROUNDS.items() if (touched == owner).any()]
