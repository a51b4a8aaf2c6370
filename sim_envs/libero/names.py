"""Names of LIBERO's objects, regions and goals: the nouns of its instructions, and OxyGen's."""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64

from sim_envs.libero.experts.scene import Goal
from sim_envs.truth.ground_truth import Fact
from sim_envs.truth.nouns import FIXTURES, LEVELS, LOWER_SHELF, THINGS, UPPER_SHELF
from sim_envs.truth.textual_memory import AREAS, GoalSentences, noun_of

_POSITION_WORDS = re.compile(r"\b(left|right|front|back|middle|both)\b")
_ZONE = re.compile(r"(\w+)_(left|right|front|back)_region")
_ACROSS = {2: ("left", "right"), 3: ("left", "middle", "right")}
_ALONG = {2: ("back", "front"), 3: ("back", "middle", "front")}
"""LIBERO's words for objects of one noun, by increasing y and x: as seen from opposite the robot."""

_GROUNDS = ("table", "floor")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Names:
    """The nouns of one task."""

    things: Mapping[str, str]  # maps LIBERO's name of a movable object to its noun, which is unique
    fixtures: Mapping[str, str]  # maps LIBERO's name of a fixture to its noun
    categories: Mapping[str, str]  # maps LIBERO's name of an object or fixture to its category

    @classmethod
    def of(
        cls,
        problem: Mapping[str, Any],
        instruction: str,
        positions: Mapping[str, Float64[np.ndarray, " 3"]] | None = None,
    ) -> "Names":
        """The nouns of a parsed BDDL problem.

        Args:
            problem: As LIBERO's `robosuite_parse_problem` returns it.
            instruction: The instruction; decides how similar objects are distinguished.
            positions: If given, they are distinguished by these positions (m) alone.

        Raises:
            KeyError: The category of an object has no noun.
        """
        objects, fixtures = _by_name(problem["objects"]), _by_name(problem["fixtures"])
        alike: defaultdict[str, list[str]] = defaultdict(list)
        for name, category in objects.items():
            alike[THINGS[category]].append(name)
        things: dict[str, str] = {}
        for noun, names in alike.items():
            things |= _distinguished(noun, names, problem, instruction, positions)
        return cls(
            things={name: things[name] for name in objects},
            fixtures={name: FIXTURES[category] for name, category in fixtures.items()},
            categories=objects | fixtures,
        )

    @property
    def ground(self) -> str:
        """The noun of the ground: `table` or `floor`."""
        return next(noun for noun in self.fixtures.values() if noun in _GROUNDS)

    def place(self, name: str) -> str:
        """The noun of an object, a fixture, or a region of an object, a fixture or the table."""
        nouns = {**self.things, **self.fixtures}
        if name in nouns:
            return nouns[name]
        owner = next(owner for owner in nouns if name.startswith(f"{owner}_"))
        region = name.removeprefix(f"{owner}_")
        if nouns[owner] == "shelf" and region != "top_side":
            return UPPER_SHELF if region.startswith("top_") else LOWER_SHELF
        if nouns[owner] not in _GROUNDS:
            return _part_of(nouns[owner], region, has_drawers=nouns[owner] == "cabinet")
        if region == "center_region":
            return f"center of the {self.ground}"
        match = _ZONE.fullmatch(region)
        if match is None:
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


def _by_name(groups: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {name: category for category, names in groups.items() for name in names}


def _distinguished(
    noun: str,
    names: Sequence[str],
    problem: Mapping[str, Any],
    instruction: str,
    positions: Mapping[str, Float64[np.ndarray, " 3"]] | None,
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
    boxes = np.array([problem["regions"][initial[name]]["ranges"][0] for name in names], np.float64)
    centers = (boxes[:, :2] + boxes[:, 2:]) / 2
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
        in_bowl = obj.startswith("cream_cheese") and "in the bowl" in instruction
        return "in" if in_bowl or _OBJECT.fullmatch(place) is None else goal.predicate

    return GoalSentences(
        clauses=tuple(
            Fact(subject=named(goal.arguments[0]), state=_STATES[goal.predicate])
            if goal.predicate in _STATES
            else Fact(
                subject=named(goal.arguments[0]), state=f"{preposition(goal)} the {named(goal.arguments[1])}"
            )
            for goal in goals
        ),
        alike=tuple(alike),
    )


def _noun(name: str, instruction: str) -> str:
    """The noun of an object, a fixture, or a region of one or of the table."""
    match = _OBJECT.fullmatch(name)
    if match is None:
        area = _AREA.fullmatch(name)
        return (
            name.replace("_", " ") if area is None else AREAS[area["side"]].format(noun_of(area["landmark"]))
        )
    category = match["category"]
    if category == "plate" and "left plate" in instruction and "right plate" in instruction:
        return f"{'left' if match['number'] == '1' else 'right'} plate"
    if category == "cream_cheese" and "cream cheese box" in instruction:
        return "cream cheese box"
    has_drawers = category.endswith("cabinet")
    return _part_of(noun_of(category), match["region"] or "", has_drawers=has_drawers)
