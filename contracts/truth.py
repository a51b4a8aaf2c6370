"""Ground truth of a control step: the robot's phase, completed actions, and the state of objects."""

import dataclasses
import enum
from collections.abc import Iterable

from contracts.nouns import HOUSEHOLD, Nouns


class Phase(enum.StrEnum):
    """The robot's current activity."""

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
    """What the robot is doing.

    Attributes:
        phase: Its activity.
        object: Noun of the object it acts on; None if and only if the task is done.
        target: Noun of the place where the object goes: required while placing, optional while carrying or
            pushing, None otherwise.
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
            raise ValueError("phase 'place' needs a target")


class Verb(enum.StrEnum):
    """The verb of a completed action."""

    PUT = "put"
    PUSHED = "pushed"
    OPENED = "opened"
    CLOSED = "closed"
    TURNED_ON = "turned on"
    TURNED_OFF = "turned off"
    LIFTED = "lifted"
    """Only in tasks that count: the object has been in the air for long enough to count when it is back."""

    @property
    def moves(self) -> bool:
        """Whether it moves an object to a place, rather than changing a fixture."""
        return self in (Verb.PUT, Verb.PUSHED)


HELD = "in the gripper"
ELSEWHERE = "elsewhere"
_STATE_AFTER = {
    Verb.OPENED: "open",
    Verb.CLOSED: "closed",
    Verb.TURNED_ON: "on",
    Verb.TURNED_OFF: "off",
    Verb.LIFTED: HELD,
}
STATES = (HELD, ELSEWHERE, "half open", "open", "closed", "on", "off")
"""Every state except being at a place, which is written as by `Nouns.phrase`."""


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Fact:
    """The current state of one object."""

    subject: str  # noun of an object, or of a part of a fixture
    state: str  # one of `STATES`, or its place ("on the plate")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompletedAction:
    """One completed action."""

    verb: Verb  # the action
    subject: str  # noun of the object
    place: str | None = None  # noun of the place it was moved to; None for verbs that do not move
    times: int = 1  # how often, 1 to 9; more than once only in tasks that count

    def __post_init__(self) -> None:
        if not 1 <= self.times <= 9:
            raise ValueError(f"completed {self.times} times: 1 to 9 have words")
        if (self.place is not None) != self.verb.moves:
            raise ValueError(f"{self.verb.value!r} with place {self.place!r}: verbs that move have one")

    def resulting_fact(self, nouns: Nouns = HOUSEHOLD) -> Fact:
        """The state of the subject right after the action."""
        state = _STATE_AFTER[self.verb] if self.place is None else nouns.phrase(self.place)
        return Fact(subject=self.subject, state=state)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """Completed actions and current facts.

    Attributes:
        done: Completed actions, ordered by when each was last completed.
        facts: One fact per object; every subject of a completed action has one.
    """

    done: tuple[CompletedAction, ...] = ()
    facts: frozenset[Fact] = frozenset()

    def __post_init__(self) -> None:
        subjects = [fact.subject for fact in self.facts]
        if len(set(subjects)) < len(subjects):
            raise ValueError(f"two facts about one object: {sorted(self.facts)}")
        untold = {action.subject for action in self.done} - set(subjects)
        if untold:
            raise ValueError(f"no facts about {sorted(untold)}, which completed actions have changed")
        if len({(action.verb, action.subject, action.place) for action in self.done}) < len(self.done):
            raise ValueError(f"an action is completed twice: {self.done}; keep the last, with its times")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Truth:
    """Ground truth for language at a control step. Never given to a policy that is graded."""

    narration: Narration  # what the robot is doing
    memory: Memory  # completed actions and current facts
    nouns: Nouns | None = None  # vocabulary of the world; None for `nouns.HOUSEHOLD`
    # The goals reached, in OxyGen's words (`sim_envs.truth.textual_memory`); None if the world has none.
    textual_memory: tuple[Fact, ...] | None = None


def resulting_facts(done: Iterable[CompletedAction], nouns: Nouns = HOUSEHOLD) -> dict[str, Fact]:
    """Maps each subject to the fact that results from its last action."""
    return {action.subject: action.resulting_fact(nouns) for action in done}
