"""OxyGen's textual memory: which goals of the task are reached, told in one sentence.

"The stove is on; the moka pot is on the stove." The rules and the nouns are those of the labels that OxyGen's
authors trained on (arXiv 2603.14371): a goal counts once it has become true and stayed so for three control
steps, and no longer when it turns false.
"""

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence

from contracts.nouns import FIXTURES, LEVELS, THINGS, VARIANTS
from contracts.truth import Fact

STABLE_STEPS = 3  # control steps for which a goal must have been true, and an object lifted
NOTHING = "No relevant task progress is visible yet."

ORDINALS = ("first", "second", "third", "fourth")
AREAS: Mapping[str, str] = {
    "front": "area in front of the {}",
    "back": "area behind the {}",
    "left": "area to the left of the {}",
    "right": "area to the right of the {}",
}
_ALIASES: Mapping[str, str] = {
    "akita_black_bowl": "black bowl",
    "bbq_sauce": "BBQ sauce",
    "desk_caddy": "caddy",
    "flat_stove": "stove",
    "porcelain_mug": "white mug",
    "white_yellow_mug": "yellow and white mug",
}
_BY_INSTRUCTION = ("cream cheese box", "left plate", "right plate")
_STATES_OF_PARTS = ("open", "closed", "on", "off")


def noun_of(category: str) -> str:
    """OxyGen's noun of an object, by its category."""
    category = VARIANTS.get(category, category)
    return _ALIASES.get(category, category.replace("_", " "))


@dataclasses.dataclass(frozen=True, kw_only=True)
class GoalSentences:
    """The goals of a task as clauses."""

    # One per goal, in the task's order. `{moka_pot_1}` stands for the ordinal of that object.
    clauses: tuple[Fact, ...]
    alike: tuple[tuple[str, ...], ...] = ()  # groups of objects with the same noun, which ordinals tell apart

    def facts(self, reached: Collection[int], lifted: Sequence[str]) -> tuple[Fact, ...]:
        """The clauses of the goals with some indices, in the task's order.

        `lifted` are the objects in the order in which they were first lifted; others get no ordinal.
        """
        ordinals = {name: "" for group in self.alike for name in group}
        for group in self.alike:
            ranked = [name for name in lifted if name in group]
            ordinals |= {name: f"{word} " for name, word in zip(ranked, ORDINALS, strict=False)}
        return tuple(
            Fact(subject=clause.subject.format_map(ordinals), state=clause.state.format_map(ordinals))
            for number, clause in enumerate(self.clauses)
            if number in reached
        )


class GoalTracker:
    """Tracks the goals of one episode. Only the past counts, also for ordinals."""

    def __init__(self, sentences: GoalSentences, *, stable_steps: int = STABLE_STEPS) -> None:
        self._sentences = sentences
        self._stable_steps = stable_steps
        self._goals = [_Signal() for _ in sentences.clauses]
        self._lifts = {name: _Signal() for group in sentences.alike for name in group}
        self.lifted: list[str] = []  # objects that look alike, in the order in which they were first lifted

    def step(self, satisfied: Sequence[bool], lifted: Collection[str]) -> None:
        """Add a control step: which goals hold, and which objects that look alike are lifted."""
        for goal, value in zip(self._goals, satisfied, strict=True):
            goal.update(value=value)
        for name, lift in self._lifts.items():
            lift.update(value=name in lifted)
            if name not in self.lifted and lift.true >= self._stable_steps <= lift.false:
                self.lifted.append(name)

    def facts(self) -> tuple[Fact, ...]:
        """The goals reached, as clauses."""
        reached = [i for i, goal in enumerate(self._goals) if goal.true >= self._stable_steps and goal.false]
        return self._sentences.facts(reached, self.lifted)


@dataclasses.dataclass
class _Signal:
    """Control steps for which a predicate has been true, and for which it was false before that."""

    true: int = 0
    false: int = 0

    def update(self, *, value: bool) -> None:
        if value:
            self.true += 1
        else:
            self.false = 1 if self.true else self.false + 1
            self.true = 0


def write_textual_memory(facts: Sequence[Fact]) -> str:
    """The sentence of the goals reached."""
    clauses = "; ".join(f"the {fact.subject} is {fact.state}" for fact in facts)
    return f"{clauses[0].upper()}{clauses[1:]}." if clauses else NOTHING


def parse_textual_memory(text: str) -> tuple[Fact, ...] | None:
    """Parse a sentence; None if it is none of these rules. Ignores case and the full stop."""
    plain = normalize(text)
    if plain == normalize(NOTHING):
        return ()
    facts = [_read_clause(clause.strip()) for clause in plain.split(";")]
    return None if None in facts else tuple(fact for fact in facts if fact is not None)


def normalize(text: str) -> str:
    """Lower case, single spaces, no full stop at the end: how OxyGen compares texts."""
    return " ".join(text.lower().split()).rstrip(".")


def _read_clause(clause: str) -> Fact | None:
    match = _CLAUSE.fullmatch(clause)
    if match is None:
        return None
    subject, state = match["subject"], match["state"]
    if state in _STATES_OF_PARTS:
        part = _PARTS.get(subject)
        return None if part is None else Fact(subject=part, state=state)
    obj, place = _THINGS.get(subject), _PLACES.get(match["place"])
    if obj is None or place is None:
        return None
    return Fact(subject=obj, state=f"{match['preposition']} the {place}")


_CLAUSE = re.compile(
    "the (?P<subject>.+?) is "
    f"(?P<state>{'|'.join(_STATES_OF_PARTS)}|(?P<preposition>in|on) the (?P<place>.+))"
)


def _by_lower(nouns: Collection[str]) -> dict[str, str]:
    return {noun.lower(): noun for noun in nouns}


_KINDS = [noun_of(category) for category in THINGS]
_FIXTURES = [noun_of(category) for category in FIXTURES]
_NAMED = [*_KINDS, *_BY_INSTRUCTION, *(f"{ordinal} {noun}" for ordinal in ORDINALS for noun in _KINDS)]
_DRAWERS = [f"{level} drawer of the {noun}" for level in LEVELS for noun in _FIXTURES if "cabinet" in noun]
_THINGS = _by_lower(_NAMED)
_PARTS = _by_lower([*_FIXTURES, *_DRAWERS])
_PLACES = _by_lower(
    [
        *_NAMED,
        *_FIXTURES,
        *_DRAWERS,
        *(f"top of the {noun}" for noun in _FIXTURES),
        *(f"{side} compartment of the caddy" for side in AREAS),
        *(area.format(noun) for area in AREAS.values() for noun in (*_KINDS, *_FIXTURES)),
    ]
)
