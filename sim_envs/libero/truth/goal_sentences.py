"""OxyGen's names of LIBERO's goals; see `sim_envs.truth.textual_memory`."""

import re
from collections import defaultdict
from collections.abc import Sequence

from sim_envs.libero.experts.scene import Goal
from sim_envs.truth.ground_truth import Fact
from sim_envs.truth.places import LEVELS
from sim_envs.truth.textual_memory import AREAS, GoalSentences, noun_of

_STATES = {"open": "open", "close": "closed", "turnon": "on", "turnoff": "off"}
_OBJECT = re.compile(r"(?P<category>.+?)_(?P<number>\d+)(?:_(?P<region>.+))?")
_AREA = re.compile(rf".*(?:table|floor)_(?P<landmark>.+)_(?P<side>{'|'.join(AREAS)})_region")


def goal_sentences(goals: Sequence[Goal], instruction: str) -> GoalSentences:
    """The clauses of LIBERO's goals, in BDDL's order.

    Args:
        goals: The goals.
        instruction: The task's own instruction, which decides some names.
    """
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

    return GoalSentences(
        clauses=tuple(
            Fact(subject=named(goal.arguments[0]), state=_STATES[goal.predicate])
            if goal.predicate in _STATES
            else Fact(
                subject=named(goal.arguments[0]),
                state=f"{_preposition(goal, instruction)} the {named(goal.arguments[1])}",
            )
            for goal in goals
        ),
        alike=tuple(alike),
    )


def _preposition(goal: Goal, instruction: str) -> str:
    obj, place = goal.arguments
    in_bowl = obj.startswith("cream_cheese") and "in the bowl" in instruction
    return "in" if in_bowl or _OBJECT.fullmatch(place) is None else goal.predicate


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
    part = _part(category, match["region"] or "")
    return f"{part} of the {noun_of(category)}" if part else noun_of(category)


def _part(category: str, region: str) -> str | None:
    """The part of a fixture that a region is; None if it stands for the fixture."""
    side, _, rest = region.partition("_")
    if region == "top_side":
        return "top"
    if rest == "contain_region":
        return f"{side} compartment"
    return f"{side} drawer" if side in LEVELS and category.endswith("cabinet") else None
