"""What can be said of a moment: the phase the robot is in, where things are, what has been done so far."""

import dataclasses
import enum
from collections.abc import Iterable

from sim_envs.truth.nouns import Nouns
from sim_envs.truth.places import HOUSEHOLD


class Phase(enum.StrEnum):
    """What the robot is busy with, in words that a person would use."""

    APPROACH = "approach"
    GRASP = "grasp"
    CARRY = "carry"
    PLACE = "place"
    PUSH = "push"
    OPEN = "open"
    CLOSE = "close"
    TURN_ON = "turn on"
    TURN_OFF = "turn off"
    RETREAT = "retreat"
    DONE = "done"


_WITH_TARGET = frozenset({Phase.CARRY, Phase.PLACE, Phase.PUSH})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Narration:
    """What the robot is doing now.

    Attributes:
        phase: Kind of thing it does.
        object: Noun of what it does it to; None exactly if all is done.
        target: Noun of where that is to go; only while it is carried, pushed or placed, and never lacking
            while it is placed.
    """

    phase: Phase
    object: str | None = None
    target: str | None = None

    def __post_init__(self) -> None:
        if (self.object is None) != (self.phase is Phase.DONE):
            raise ValueError(f"phase {self.phase.value!r} with object {self.object!r}: only `done` has none")
        if self.target is not None and self.phase not in _WITH_TARGET:
            raise ValueError(f"phase {self.phase.value!r} has no target, but was given {self.target!r}")
        if self.phase is Phase.PLACE and self.target is None:
            raise ValueError("nothing is placed without a target")


class Verb(enum.StrEnum):
    """What can have been done."""

    PUT = "put"
    PUSHED = "pushed"
    OPENED = "opened"
    CLOSED = "closed"
    TURNED_ON = "turned on"
    TURNED_OFF = "turned off"

    @property
    def moves(self) -> bool:
        """Whether it brings a thing to a place, rather than changing a fixture."""
        return self in (Verb.PUT, Verb.PUSHED)


HELD = "in the gripper"
ELSEWHERE = "elsewhere"
_STATE_AFTER = {
    Verb.OPENED: "open",
    Verb.CLOSED: "closed",
    Verb.TURNED_ON: "on",
    Verb.TURNED_OFF: "off",
}
STATES = (HELD, ELSEWHERE, "half open", *_STATE_AFTER.values())
"""Every state but that of being at a place, which reads as `Nouns.phrase` has it."""


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Fact:
    """How one thing is now.

    Attributes:
        subject: Noun of a thing, or of a part of a fixture.
        state: One of `STATES`, or where it is ("on the plate").
    """

    subject: str
    state: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deed:
    """One thing that has been done.

    Attributes:
        verb: What was done.
        subject: To what.
        place: Noun of the place it was brought to; exactly with verbs that move.
    """

    verb: Verb
    subject: str
    place: str | None = None

    def __post_init__(self) -> None:
        if (self.place is not None) != self.verb.moves:
            raise ValueError(f"{self.verb.value!r} with place {self.place!r}: verbs that move have one")

    def outcome(self, nouns: Nouns = HOUSEHOLD) -> Fact:
        """What is the case right after it."""
        state = _STATE_AFTER[self.verb] if self.place is None else nouns.phrase(self.place)
        return Fact(subject=self.subject, state=state)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """What is to be remembered.

    Attributes:
        done: What has been done so far, in the order in which it was last done.
        facts: How things are now, one fact per thing; every thing that something was done to has one.
    """

    done: tuple[Deed, ...] = ()
    facts: frozenset[Fact] = frozenset()

    def __post_init__(self) -> None:
        subjects = [fact.subject for fact in self.facts]
        if len(set(subjects)) < len(subjects):
            raise ValueError(f"two facts about one thing: {sorted(self.facts)}")
        untold = {deed.subject for deed in self.done} - set(subjects)
        if untold:
            raise ValueError(f"something was done to {sorted(untold)}, and no fact says how they are now")
        if len(set(self.done)) < len(self.done):
            raise ValueError(f"something was done twice: {self.done}; the last time counts")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Truth:
    """The account of a moment. Never shown to a policy that is graded.

    Attributes:
        narration: What the robot is doing.
        memory: What has been done, and how things are.
        nouns: What texts about this world may name; None for `places.HOUSEHOLD`.
    """

    narration: Narration
    memory: Memory
    nouns: Nouns | None = None


def outcomes(done: Iterable[Deed], nouns: Nouns = HOUSEHOLD) -> dict[str, Fact]:
    """Subject to how it would be now, had nothing happened since it was last touched."""
    return {deed.subject: deed.outcome(nouns) for deed in done}
