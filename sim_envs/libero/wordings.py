"""Wordings of LIBERO's instructions, for training and held out.

An instruction has one or two clauses, each with a verb, an object and perhaps a place. Templates change the
verb and the order, never the nouns. Held-out templates recombine verbs of the training templates: their
wording is new, their vocabulary is not.
"""

import functools
import re
from collections.abc import Mapping, Sequence

from configs.schema import Wordings
from contracts.errors import UsageError

_Templates = Mapping[str, Sequence[str]]  # of a clause: of its training and of its held-out wordings


def _templates(training: str, *, held_out: str) -> _Templates:
    return {"training": training.split(" | "), "held_out": held_out.split(" | ")}


_MOVE = _templates(
    "pick up {thing} and place {it} {place} | put {thing} {place} | place {thing} {place} | "
    "take {thing} and put {it} {place} | grab {thing} and set {it} {place} | {thing} {goes} {place} | "
    "{place} put {thing}",
    held_out="set {thing} {place} | grab {thing} and put {it} {place} | {place} {goes} {thing}",
)
# For `the black bowl on the stove`, whose place must not be mistaken for the target.
_MOVE_WHAT_IS_SOMEWHERE = _templates(
    "pick up {thing} and place {it} {place} | take {thing} and put {it} {place} | "
    "grab {thing} and set {it} {place} | pick up {thing} and set {it} {place} | put {place} {thing} | "
    "{thing} {goes} {place} | {place} put {thing}",
    held_out="take {thing} and place {it} {place} | grab {thing} and put {it} {place} | "
    "{place} {goes} {thing}",
)
# For `the book on the left`, which after a verb of placing would be the target.
_MOVE_WHAT_IS_AT_A_SIDE = _templates(
    "pick up {thing} and place {it} {place} | take {thing} and put {it} {place} | "
    "grab {thing} and set {it} {place} | pick up {thing} and set {it} {place} | {thing} {goes} {place}",
    held_out="take {thing} and place {it} {place} | grab {thing} and put {it} {place} | "
    "take {thing} and set {it} {place}",
)
# For the target `on it`, next to which another `it` would be ambiguous.
_MOVE_TO_IT = _templates(
    "put {thing} {place} | place {thing} {place} | {thing} {goes} {place} | {place} set {thing}",
    held_out="set {thing} {place} | {place} place {thing} | {place} {goes} {thing}",
)
_MOVE_THEM = _templates(
    "place them {place} | put them {place} | they go {place} | {place} set them",
    held_out="set them {place} | {place} place them | {place} they go",
)
_PUSH = _templates(
    "push {thing} {place} | slide {thing} {place} | shove {thing} {place} | please slide {thing} {place} | "
    "{place} push {thing}",
    held_out="please shove {thing} {place} | please push {thing} {place} | {place} slide {thing}",
)
_OPEN = _templates(
    "open {thing} | pull open {thing} | get {thing} open | open up {thing} | please open {thing}",
    held_out="pull {thing} open | open {thing} up | please pull open {thing}",
)
_CLOSE = _templates(
    "close {thing} | shut {thing} | get {thing} closed | push {thing} shut | please close {thing}",
    held_out="push {thing} closed | get {thing} shut | please shut {thing}",
)
_TURN = _templates(
    "turn {way} {thing} | turn {thing} {way} | switch {way} {thing} | power {way} {thing} | "
    "please turn {way} {thing}",
    held_out="switch {thing} {way} | power {thing} {way} | please turn {thing} {way}",
)

_NEXT_CLAUSE = re.compile(r" and (?=(?:put|place|close|open|turn|push|stack)\b(?! it (?:in|on|under|to)\b))")
_TO = r"(?P<place>(?:on top of|on|in|under|to the \w+ of) .+|inside)"
_RULES = (
    (re.compile(rf"pick up (?P<thing>.+) and (?:place|put) it {_TO}"), _MOVE),
    (re.compile(r"place (?P<thing>them) (?P<place>.+)"), _MOVE_THEM),
    (re.compile(rf"(?:put|stack) (?P<thing>.+?) {_TO}"), _MOVE),
    (re.compile(rf"push (?P<thing>.+?) {_TO}"), _PUSH),
    (re.compile(r"open (?P<thing>.+)"), _OPEN),
    (re.compile(r"close (?P<thing>.+)"), _CLOSE),
    (re.compile(r"turn (?P<way>on|off) (?P<thing>.+)"), _TURN),
)
_IS_AT_A_SIDE = re.compile(r" (?:at|in|on) the (?:back|front|left|right|middle)$")
_IS_SOMEWHERE = re.compile(r" (?:at|between|from|in|next to|on) ")
# Clauses with `goes` or with an `and` of their own, which are joined by `then`.
_IS_NO_SHORT_COMMAND = re.compile(r"\b(?:go|goes|and (?:place|put|set) (?:it|them))\b")


def wordings(instruction: str, name: Wordings) -> tuple[str, ...]:
    """The wordings of a benchmark's instruction in one of the sets, without duplicates.

    `training` begins with the instruction; `held_out` shares none with it. A UsageError if the instruction
    does not have the form of LIBERO's.
    """
    if name == "benchmark":
        return (instruction,)
    ways = [_clause_wordings(text, instruction, name) for text in _NEXT_CLAUSE.split(instruction)]

    # The i-th wordings of all clauses are joined; those of clauses with fewer wordings repeat.
    def then(before: str, after: str) -> str:
        unlike = _IS_NO_SHORT_COMMAND.search(before) or _IS_NO_SHORT_COMMAND.search(after)
        return f"{before} {'then' if unlike else 'and'} {after}"

    joined = tuple(
        functools.reduce(then, (wordings[index % len(wordings)] for wordings in ways))
        for index in range(max(map(len, ways)))
    )
    return joined if name == "held_out" else (instruction, *joined[1:])


def _clause_wordings(text: str, instruction: str, name: Wordings) -> Sequence[str]:
    """The wordings of a clause; for `training`, the clause itself comes first."""
    matches = ((rule.fullmatch(text), frames) for rule, frames in _RULES)
    parts, frames = next(((match.groupdict(), frames) for match, frames in matches if match), (None, None))
    if parts is None or frames is None:
        raise UsageError(
            f"there are no other wordings of {text!r} in {instruction!r}, which is none of LIBERO's "
            "instructions"
        )
    several = parts["thing"].startswith(("both ", "them"))
    grammar = {"it": "them", "goes": "go"} if several else {"it": "it", "goes": "goes"}
    words = {**parts, **grammar}
    if frames is _MOVE and parts["place"].endswith(" it"):
        frames = _MOVE_TO_IT
    elif frames is _MOVE and _IS_AT_A_SIDE.search(parts["thing"]):
        frames = _MOVE_WHAT_IS_AT_A_SIDE
    elif frames is _MOVE and _IS_SOMEWHERE.search(parts["thing"]):
        frames = _MOVE_WHAT_IS_SOMEWHERE
    ways = [frame.format_map(words) for frame in frames[name]]
    return ways if name == "held_out" else list(dict.fromkeys([text, *ways]))
