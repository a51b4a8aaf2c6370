"""Strategies for everything that language truth can say of LIBERO's tasks."""

import functools
import itertools
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from contracts.nouns import DRAWERS, HOUSEHOLD, MOVABLE, PARTS, PLACES, phrase
from contracts.truth import ELSEWHERE, HELD, CompletedAction, Fact, Memory, Narration, Phase, Verb
from oxygen.robots import tokenizer
from sim_envs.libero.sim import read_problem
from sim_envs.libero.tasks import SUITES, LiberoTask, list_tasks
from sim_envs.libero.truth import Names

ALL_TASKS = [task for suite in SUITES for task in list_tasks(suite)]


problem, tiny = functools.cache(read_problem), functools.cache(tokenizer.tiny)


def names(task: LiberoTask) -> Names:
    return Names(problem(task), task.language)


def goals(task: LiberoTask) -> list[tuple[str, ...]]:
    """The task's goals in nouns: `("on", "black bowl", "plate")`."""
    nouns = names(task)
    return [(goal[0], *map(nouns.place, goal[1:])) for goal in problem(task)["goal_state"]]


_THINGS, _PLACES = st.sampled_from(sorted(MOVABLE)), st.sampled_from(sorted(PLACES))


@st.composite
def narrations(draw: st.DrawFn) -> Narration:
    phase = draw(st.sampled_from(Phase))
    if phase is Phase.DONE:
        return Narration(phase=phase)
    if phase in (Phase.OPEN, Phase.CLOSE, Phase.TURN_ON, Phase.TURN_OFF):
        return Narration(phase=phase, object=draw(st.sampled_from(PARTS)))
    if phase in (Phase.CARRY, Phase.PUSH):
        return Narration(phase=phase, object=draw(_THINGS), target=draw(st.none() | _PLACES))
    if phase is Phase.PLACE:
        return Narration(phase=phase, object=draw(_THINGS), target=draw(_PLACES))
    return Narration(phase=phase, object=draw(st.sampled_from(sorted(HOUSEHOLD.subjects))))


def completed_actions() -> st.SearchStrategy[CompletedAction]:
    def action(*verbs: Verb, **parts: st.SearchStrategy[Any]) -> st.SearchStrategy[CompletedAction]:
        return st.builds(CompletedAction, verb=st.sampled_from(verbs), **parts)

    moving = action(Verb.PUT, Verb.PUSHED, subject=_THINGS, place=_PLACES, times=st.integers(1, 9))
    opening = action(Verb.OPENED, Verb.CLOSED, subject=st.sampled_from([*DRAWERS, "microwave"]))
    turning = action(Verb.TURNED_ON, Verb.TURNED_OFF, subject=st.just("stove"))
    return moving | opening | turning | action(Verb.LIFTED, subject=_THINGS)


def states(subject: str) -> st.SearchStrategy[str]:
    if subject == "stove":
        return st.sampled_from(["on", "off"])
    if subject in PARTS:
        return st.sampled_from(["open", "closed", "half open"])
    return st.sampled_from([HELD, ELSEWHERE]) | _PLACES.map(phrase)


@st.composite
def memories(draw: st.DrawFn) -> dict[str, Any]:
    """What a memory is made of: its run-time check draws at random, which strategies must not."""
    own = st.lists(
        completed_actions(), max_size=4, unique_by=lambda each: (each.verb, each.subject, each.place)
    )
    done = tuple(draw(own))
    others = draw(st.lists(st.sampled_from(sorted(HOUSEHOLD.subjects)), max_size=3))
    subjects = dict.fromkeys([*(action.subject for action in done), *others])
    facts = (Fact(subject=subject, state=draw(states(subject))) for subject in subjects)
    return {"done": done, "facts": frozenset(facts)}


def fullest_memories(task: LiberoTask) -> list[Memory]:
    """The longest that a task's memory can be: everything done, or nothing and all far from where it was."""
    done: list[CompletedAction] = []
    for predicate, subject, *place in goals(task):
        gates = [noun for noun in place if predicate == "in" and noun in PARTS]
        done += [CompletedAction(verb=Verb.PUT, subject=subject, place=noun) for noun in place]
        for part in gates or ([] if place else [subject]):
            verbs = (Verb.TURNED_ON, Verb.TURNED_OFF) if part == "stove" else (Verb.OPENED, Verb.CLOSED)
            done += [CompletedAction(verb=verb, subject=part) for verb in verbs]
    outcomes = {action.subject: action.resulting_fact() for action in done}
    things, places = things_and_places(task)
    longest = phrase(max(places, key=len))
    others = [Fact(subject=noun, state=longest) for noun in things if noun not in outcomes]
    extra = frozenset(sorted(others, key=lambda fact: len(fact.subject))[-1:])
    moves = {noun: "half open" if noun in PARTS else longest for noun in outcomes if noun != "stove"}
    moved = frozenset(Fact(subject=noun, state=state) for noun, state in moves.items())
    outcome = frozenset(outcomes.values())
    return [Memory(done=tuple(dict.fromkeys(done)), facts=outcome | extra), Memory(facts=moved | extra)]


def things_and_places(task: LiberoTask) -> tuple[list[str], list[str]]:
    """The nouns of a task's things, and of everywhere they can be."""
    nouns = names(task)
    owners = tuple(f"{owner}_" for owner in nouns.categories)
    fixtures = [name for name in problem(task)["regions"] if name.startswith(owners)]
    places = {nouns.place(name) for name in (*nouns.things, *fixtures)} & PLACES
    return list(nouns.things.values()), sorted(places | {nouns.ground})


def carried(things: Iterable[str], places: Iterable[str]) -> list[Narration]:
    """Every thing on its way to every place."""
    every = itertools.product((Phase.CARRY, Phase.PLACE, Phase.PUSH), things, places)
    return [Narration(phase=phase, object=obj, target=place) for phase, obj, place in every]


def tokens(text: str) -> int:
    """Tokens of a text, the one that ends it included."""
    return len(tiny().encode(text)) + 1
