"""LIBERO's nouns, items, goals and regions for ground truth, by its own predicates. Read only."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np

from contracts.nouns import FIXTURES, LEVELS, LOWER_SHELF, THINGS, UPPER_SHELF, VARIANTS, phrase
from contracts.truth import ELSEWHERE, CompletedAction, Fact, Verb
from sim_envs.libero.experts.scene import Goal
from sim_envs.libero.sequences import GoalSequence, Subgoal
from sim_envs.scripted.poses import Vector3
from sim_envs.truth.scene import (
    HAND,
    LEFT,
    NOTHING,
    RIGHT,
    Articulation,
    GoalTarget,
    Item,
    SceneError,
    TruthScene,
)
from sim_envs.truth.textual_memory import AREAS, GoalSentences, noun_of

GROUNDS = {"table": -2, "floor": -3}  # owners of the geoms of table and floor

_POSITION_WORDS = re.compile(r"\b(left|right|front|back|middle|both)\b")
_ZONE = re.compile(r"(\w+)_(left|right|front|back)_region")
# LIBERO's words for objects of one noun, by increasing y and x: as seen from opposite the robot.
_ACROSS = {2: ("left", "right"), 3: ("left", "middle", "right")}
_ALONG = {2: ("back", "front"), 3: ("back", "middle", "front")}


class Names:
    """The nouns of one task, by LIBERO's names of objects and fixtures."""

    def __init__(
        self, problem: Mapping[str, Any], instruction: str, positions: Mapping[str, Vector3] | None = None
    ) -> None:
        """The nouns of a parsed BDDL problem.

        Similar objects are distinguished by the instruction, or if given, by their positions (m) alone. A
        SceneError if the category of an object or fixture has no noun, or similar objects have no names.
        """
        objects, fixtures = (
            {name: category for category, names in problem[group].items() for name in names}
            for group in ("objects", "fixtures")
        )
        for kind, categories, known in (("objects", objects, THINGS), ("fixtures", fixtures, FIXTURES)):
            if unknown := [each for each in categories.values() if each not in known]:
                raise SceneError(f"there is no noun for {kind} of category {unknown[0]}")
        alike: defaultdict[str, list[str]] = defaultdict(list)
        for name, category in objects.items():
            alike[THINGS[category]].append(name)
        things: dict[str, str] = {}
        for noun, names in alike.items():
            things |= _distinguished(noun, names, problem, instruction, positions)
        self.things = {name: things[name] for name in objects}  # each noun is unique
        self.fixtures = {name: FIXTURES[category] for name, category in fixtures.items()}
        for noun, number in Counter(self.fixtures.values()).items():
            if number > 1:
                raise SceneError(f"no words tell {number} fixtures apart that are each a {noun}")
        self.categories = objects | fixtures

    @property
    def ground(self) -> str:
        """The noun of the ground: `table` or `floor`."""
        return next(noun for noun in self.fixtures.values() if noun in GROUNDS)

    def place(self, name: str) -> str:
        """The noun of an object, a fixture, or a region of an object, a fixture or the table."""
        nouns = {**self.things, **self.fixtures}
        if name in nouns:
            return nouns[name]
        owner = next(owner for owner in nouns if name.startswith(f"{owner}_"))
        region = name.removeprefix(f"{owner}_")
        if nouns[owner] == "shelf" and region != "top_side":
            return UPPER_SHELF if region.startswith("top_") else LOWER_SHELF
        if nouns[owner] not in GROUNDS:
            return _part_of(nouns[owner], region, has_drawers=nouns[owner] == "cabinet")
        if region == "center_region":
            return f"center of the {self.ground}"
        if (match := _ZONE.fullmatch(region)) is None:
            return self.ground
        landmark = next(
            noun for name, noun in nouns.items() if f"_{self.categories[name]}".endswith(f"_{match[1]}")
        )
        return f"{match[2]} of the {landmark}"  # `stove_front_region` → `front of the stove`

    def part(self, fixture: str, joint: str) -> str:
        """The noun of the part that a fixture's joint moves: a drawer, or the whole fixture."""
        level = next((level for level in LEVELS if joint.endswith(f"{level}_level")), None)
        noun = self.fixtures[fixture]
        return noun if level is None else f"{level} drawer of the {noun}"


def _part_of(noun: str, region: str, *, has_drawers: bool) -> str:
    """A region of an object or fixture: its top, a compartment, a drawer, else the whole."""
    side, _, kind = region.partition("_")
    if region == "top_side":
        return f"top of the {noun}"
    if kind == "contain_region":
        return f"{side} compartment of the {noun}"
    return f"{side} drawer of the {noun}" if has_drawers and side in LEVELS else noun


def _distinguished(
    noun: str,
    names: Sequence[str],
    problem: Mapping[str, Any],
    instruction: str,
    positions: Mapping[str, Vector3] | None,
) -> dict[str, str]:
    """Distinguish objects of one noun: the one in the goal and the other, or by their relative positions."""
    if len(names) == 1:
        return {names[0]: noun}
    if positions is not None:
        supports = {state[2] for state in problem["initial_state"] if state[0] == "on"}
        apart = [name for name in names if len(names) > 3 and name not in supports]  # the empty plate
        order = sorted((name for name in names if name not in apart), key=lambda name: positions[name][1])
        words = dict(zip(order, _ACROSS[len(order)], strict=True)) | dict.fromkeys(apart, "other")
        return {name: f"{words[name]} {noun}" for name in names}
    meant = {argument for goal in problem["goal_state"] for argument in goal[1:]} & set(names)
    if len(names) == 2 and len(meant) == 1 and not _POSITION_WORDS.search(instruction):
        return {name: noun if name in meant else f"other {noun}" for name in names}
    initial = {state[1]: state[2] for state in problem["initial_state"][::-1] if state[0] == "on"}
    ranges = [problem["regions"].get(initial.get(name), {}).get("ranges") for name in names]
    boxes = np.array([of_one[0] for of_one in ranges if of_one], np.float64).reshape(-1, 4)
    centers = (boxes[:, :2] + boxes[:, 2:]) / 2
    if len(names) not in _ACROSS or len(centers) < len(names) or not np.ptp(centers, axis=0).any():
        raise SceneError(
            f"no words tell {len(names)} objects apart that are each a {noun}: {', '.join(names)}; two or "
            "three need different regions of table or floor to start in"
        )
    axis = int(np.argmax(np.ptp(centers, axis=0)))
    words = (_ALONG, _ACROSS)[axis][len(names)]
    order = np.argsort(centers[:, axis])
    return {names[which]: f"{word} {noun}" for which, word in zip(order, words, strict=True)}


_STATES = {"open": "open", "close": "closed", "turnon": "on", "turnoff": "off"}
_OBJECT = re.compile(r"(?P<category>.+?)_(?P<number>\d+)(?:_(?P<region>.+))?")
_AREA = re.compile(rf".*(?:table|floor)_(?P<landmark>.+)_(?P<side>{'|'.join(AREAS)})_region")


def goal_sentences(goals: Sequence[Goal], instruction: str) -> GoalSentences:
    """The clauses of LIBERO's goals, in BDDL's order; the task's own instruction decides some names."""
    instruction = instruction.lower()
    kinds: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for goal in goals:
        for name in goal.arguments if goal.predicate in ("in", "on") else ():
            if (match := _OBJECT.fullmatch(name)) and match["region"] is None:
                kinds[_noun(name, instruction)][name] = None
    alike = [tuple(names) for names in kinds.values() if len(names) > 1]
    counted = {name for names in alike for name in names}

    def named(name: str) -> str:
        noun = _noun(name, instruction)
        return f"{{{name}}}{noun}" if name in counted else noun

    def preposition(goal: Goal) -> str:
        obj, place = goal.arguments
        in_bowl = "cream_cheese" in obj and "in the bowl" in instruction
        return "in" if in_bowl or _OBJECT.fullmatch(place) is None else goal.predicate

    def state(goal: Goal) -> str:
        place = [f"{preposition(goal)} the {named(name)}" for name in goal.arguments[1:]]
        return place[0] if place else _STATES[goal.predicate]

    clauses = tuple(Fact(subject=named(goal.arguments[0]), state=state(goal)) for goal in goals)
    return GoalSentences(clauses=clauses, alike=tuple(alike))


def _noun(name: str, instruction: str) -> str:
    """The noun of an object, a fixture, or a region of one or of the table."""
    if (match := _OBJECT.fullmatch(name)) is None:
        area = _AREA.fullmatch(name)
        return AREAS[area["side"]].format(noun_of(area["landmark"])) if area else name.replace("_", " ")
    category = VARIANTS.get(match["category"], match["category"])
    if category == "plate" and "left plate" in instruction and "right plate" in instruction:
        return f"{'left' if match['number'] == '1' else 'right'} plate"
    if category == "cream_cheese" and "cream cheese box" in instruction:
        return "cream cheese box"
    return _part_of(noun_of(category), match["region"] or "", has_drawers=category.endswith("cabinet"))


def find_items(env: Any, model: mujoco.MjModel, names: Names) -> list[Item]:
    """The movable objects of an environment, then the parts that open or switch."""
    found: list[Item] = []
    for name, noun in names.things.items():
        root = int(model.body_rootid[env.obj_body_id[name]])
        found.append(Item(index=len(found), name=name, noun=noun, body=root))
    for name in names.fixtures:
        properties = getattr(env.get_object(name), "object_properties", {})
        ranges: dict[str, Sequence[float]] = properties.get("articulation", {})
        for joint in env.get_object(name).joints if any(ranges.values()) else ():
            switches, number = "default_turnon_ranges" in ranges, model.joint(joint).id
            off, on = ("turnoff", "turnon") if switches else ("close", "open")
            start, end = ranges[f"default_{off}_ranges"], ranges[f"default_{on}_ranges"]
            articulation = Articulation(
                address=int(model.jnt_qposadr[number]),
                start=0.0 if 0.0 in start else min(start, key=abs),
                end=min(end, key=abs),
                switches=switches,
            )
            noun, body = names.part(name, joint), int(model.jnt_bodyid[number])
            found.append(Item(index=len(found), name=name, noun=noun, body=body, articulation=articulation))
    return found


def owners(model: mujoco.MjModel, items: Sequence[Item]) -> np.ndarray:
    """Maps a geom to the index of its item, or to a negative number: `NOTHING`, or one of `GROUNDS`."""
    owner = np.full(model.nbody, GROUNDS["floor"])
    of_body = {item.body: item.index for item in items}
    for body in range(1, model.nbody):
        parent = model.body_parentid[body]
        name = model.body(body).name
        ground = next((owner for noun, owner in GROUNDS.items() if noun in name), NOTHING)
        owner[body] = of_body.get(body, owner[parent] if parent else ground)
    collides = (model.geom_contype | model.geom_conaffinity) != 0
    return np.where(collides, owner[model.geom_bodyid], NOTHING)


def sides(env: Any, model: mujoco.MjModel) -> np.ndarray:
    """Maps a geom to its part of the gripper: `LEFT`, `RIGHT` or `HAND`; 0 elsewhere."""
    gripper = env.robots[0].gripper
    side = np.zeros(model.ngeom, np.int64)
    side[[model.geom(name).id for name in gripper.contact_geoms]] = HAND
    for bit, finger in ((LEFT, "left_finger"), (RIGHT, "right_finger")):
        side[[model.geom(name).id for name in gripper.important_geoms[finger]]] = bit
    return side


_LIFTED = 0.025  # height (m) above its initial one from which a grasped object is lifted, in OxyGen's labels
_FINGER_CLOSED = 0.03  # finger position (m) below which one that touches grasps, in OxyGen's labels
_FLAT = 0.01  # objects stand on regions up to this half height (m), and in higher ones


class LiberoScene(TruthScene):
    """One episode of a LIBERO environment."""

    def __init__(
        self, env: Any, instruction: str, sequence: GoalSequence | None = None, *, hidden: str | None = None
    ) -> None:
        """Describe an episode after its reset, with the subgoals of a task that is a sequence.

        Memory tells the place of a `hidden` object, besides those of the goals.
        """
        self._env, self._sequence, self._hidden = env, sequence, hidden
        self._model: mujoco.MjModel = env.sim.model._model
        positions = {name: env.sim.data.body_xpos[body].copy() for name, body in env.obj_body_id.items()}
        self._names = Names(env.parsed_problem, instruction, None if sequence is None else positions)
        items = find_items(env, self._model, self._names)
        super().__init__(
            env.sim.data._data,
            items,
            grip_site=self._model.site(env.robots[0].controller.eef_name).id,
            owner=owners(self._model, items),
            side=sides(env, self._model),
        )
        self._by_name = {item.name: item for item in self.things}
        goals = env.parsed_problem["goal_state"] if sequence is None else sequence.subgoals
        self._goals = Goal.all_of(goals)
        if other := [goal for goal in self._goals if goal.predicate not in ("in", "on", *_STATES)]:
            raise SceneError(f"no words say what {other[0]} requires")
        self.targets = [self._target(number, goal) for number, goal in enumerate(self._goals)]
        self.sentences = goal_sentences(self._goals, instruction) if sequence is None else None
        self._before_lift = {  # of objects that look alike: height, and what they stand on
            name: (float(self._xpos[self._by_name[name].body][2]), self._neighbours(self._by_name[name]))
            for names in (() if self.sentences is None else self.sentences.alike)
            for name in names
        }
        self._geoms = {item.index: np.flatnonzero(self._owner == item.index) for item in self.named}
        self._regions = [
            (name, site) for name, site in env.object_sites_dict.items() if hasattr(site, "parent_name")
        ]

    @property
    def named(self) -> list[Item]:
        """As in the base class, and what is hidden."""
        hidden = [item for item in self.things if item.name == self._hidden]
        return [*super().named, *hidden]

    def nearest(self, items: Sequence[Item], point: Vector3) -> Item:
        """The item whose bounding boxes are nearest to a point."""

        def distance(item: Item) -> float:
            geoms, data = self._geoms[item.index], self._data
            local = (point - data.geom_xpos[geoms])[:, None] @ data.geom_xmat[geoms].reshape(-1, 3, 3)
            center, half = np.split(self._model.geom_aabb[geoms], 2, axis=1)
            beyond = np.maximum(np.abs(local[:, 0] - center) - half, 0.0)
            return float((beyond * beyond).sum(axis=1).min(initial=np.inf))  # squared

        return min(items, key=distance)

    def completed(self) -> Sequence[CompletedAction] | None:
        """As in the base class: the subgoals of a sequence that have counted, and the last lift."""
        if self._sequence is None:
            return None
        times: dict[Subgoal, int] = {}
        known = self._sequence.reached()
        for subgoal in known.counted:  # ordered by when each was last completed
            times[subgoal] = times.pop(subgoal, 0) + 1
        done = []
        for (_, obj, place), number in times.items():
            noun, there = self._by_name[obj].noun, self._names.place(place)
            done.append(CompletedAction(verb=Verb.PUT, subject=noun, place=there, times=number))
        if known.next is not None and self._sequence.next_is_undone:
            done.append(CompletedAction(verb=Verb.LIFTED, subject=self._by_name[known.next[1]].noun))
        return done

    def missing(self) -> list[GoalTarget]:
        """As in the base class; in a sequence, the next subgoal, even if it has to be undone first."""
        if self._sequence is None:
            return super().missing()
        coming = self._sequence.reached().next
        return [target for target in self.targets if self._sequence.subgoals[target.number] == coming]

    def satisfied(self, target: GoalTarget) -> bool:
        """As in the base class, by LIBERO's predicates."""
        goal = self._goals[target.number]
        if goal.predicate not in ("turnon", "turnoff"):
            return bool(self._env._eval_predicate([goal.predicate, *goal.arguments]))
        # LIBERO's own predicates of a stove also light its burner.
        ranges = self._env.get_object(goal.arguments[0]).object_properties["articulation"]
        if goal.predicate == "turnon":
            return self.joint(target.item) >= min(ranges["default_turnon_ranges"])
        return self.joint(target.item) < max(ranges["default_turnoff_ranges"])

    def lifted(self) -> list[str]:
        """As in the base class: grasped, and 25 mm higher or off everything that it stood on."""
        fingers = self._qpos[self._env.robots[0]._ref_gripper_joint_pos_indexes]
        narrow = bool((np.abs(fingers) < _FINGER_CLOSED).any())
        found = []
        for name, (height, supports) in self._before_lift.items():
            item = self._by_name[name]
            sides = int(np.bitwise_or.reduce(self._side[self._touching(item)] & (LEFT | RIGHT), initial=0))
            if sides == LEFT | RIGHT or (sides and narrow):
                higher = self._xpos[item.body][2] - height > _LIFTED
                if higher or (supports and not supports & self._neighbours(item)):
                    found.append(name)
        return found

    def _touching(self, item: Item) -> np.ndarray:
        """The geoms that touch an object."""
        pairs = self._data.contact.geom
        return pairs[:, ::-1][self._owner[pairs] == item.index]

    def _neighbours(self, item: Item) -> frozenset[int]:
        """The bodies that touch an object, without the gripper's."""
        others = self._touching(item)
        bodies = self._model.geom_bodyid[others[self._side[others] == 0]]
        return frozenset(bodies.tolist()) - {item.body}

    def is_near(self, target: GoalTarget, position: Vector3, margin: float) -> bool:
        """As in the base class; where a subgoal has to be undone first, as in lifting, nothing is near."""
        if self._sequence is not None and not self._sequence.reached().next_is_reset:
            return False
        name = self._goals[target.number].arguments[1]
        if name in self._by_name:
            center, half = self._xpos[self._by_name[name].body], np.full(2, 0.03)
        else:
            site, size = self._data.site(name), np.asarray(self._env.object_sites_dict[name].size)
            center, half = site.xpos, np.abs(site.xmat.reshape(3, 3) @ size)[:2]
        return bool(np.all(np.abs(position - center)[:2] <= half + margin))

    def location(self, item: Item) -> str:
        """As in the base class, by LIBERO's predicates."""
        for target in self.targets:
            if target.item is item and target.place is not None and self.satisfied(target):
                return phrase(target.place)
        for name, site in self._regions:
            predicate = "on" if np.asarray(site.size)[2] < _FLAT else "in"
            if site.parent_name != item.name and self._holds(predicate, item.name, name):
                return phrase(self._names.place(name))
        for other in self.things:
            if other is not item and self._holds("on", item.name, other.name):
                return phrase(self._names.place(other.name))
        touched = self._owner[self._touching(item)]
        return next((phrase(noun) for noun, owner in GROUNDS.items() if (touched == owner).any()), ELSEWHERE)

    def _target(self, number: int, goal: Goal) -> GoalTarget:
        noun = self._names.place(goal.arguments[-1])
        part = next((item for item in self.parts if item.noun == noun), None)
        if goal.predicate in ("in", "on"):
            gate = part if goal.predicate == "in" else None
            return GoalTarget(number=number, item=self._by_name[goal.arguments[0]], place=noun, gate=gate)
        assert part is not None, f"{goal}: no part opens or turns on"
        return GoalTarget(number=number, item=part, wanted=goal.phase)

    def _holds(self, predicate: str, obj: str, place: str) -> bool:
        if predicate == "in":
            parent = self._env.get_object(self._env.object_sites_dict[place].parent_name)
            covered = parent.category_name == "cover"  # what is below it need not touch it
            if not covered and not self._env.check_contact(parent, self._env.get_object(obj)):
                return False  # it may be passing through
        return bool(self._env._eval_predicate([predicate, obj, place]))
