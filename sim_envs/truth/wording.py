"""Writes ground truth as text, in several wordings, and parses all of them.

Parsing inverts writing: `parse_narration(narrate(n, w)) == n` for every narration and wording, likewise for
memories. A text that matches no wording, or has nouns that the world does not have, is not parsed and cannot
be graded. `nouns` is the world's vocabulary; None stands for `nouns.HOUSEHOLD`.
"""

import re
from collections.abc import Mapping, Sequence

from contracts.nouns import HOUSEHOLD, Nouns
from contracts.truth import STATES, CompletedAction, Fact, Memory, Narration, Phase, Verb, resulting_facts

WORDINGS = 3  # number of wordings of each sentence

_NARRATIONS: Mapping[Phase, Sequence[str]] = {
    Phase.APPROACH: ("Reaching for the {object}.", "Moving to the {object}.", "Approaching the {object}."),
    Phase.GRASP: ("Grasping the {object}.", "Gripping the {object}.", "Taking hold of the {object}."),
    Phase.CARRY: ("Carrying the {object}.", "Lifting the {object}.", "Holding the {object}."),
    Phase.PUSH: ("Pushing the {object}.", "Sliding the {object}.", "Shoving the {object}."),
    Phase.OPEN: ("Opening the {object}.", "Pulling the {object} open.", "Pulling open the {object}."),
    Phase.CLOSE: ("Closing the {object}.", "Pushing the {object} shut.", "Shutting the {object}."),
    Phase.TURN_ON: ("Turning on the {object}.", "Switching on the {object}.", "Turning the {object} on."),
    Phase.TURN_OFF: ("Turning off the {object}.", "Switching off the {object}.", "Turning the {object} off."),
    Phase.RETREAT: ("Moving away from the {object}.", "Backing off the {object}.", "Leaving the {object}."),
    Phase.DONE: ("The task is done.", "All done.", "Finished."),
}
_NARRATIONS_WITH_TARGET: Mapping[Phase, Sequence[str]] = {
    Phase.CARRY: (
        "Carrying the {object} to the {target}.",
        "Moving the {object} to the {target}.",
        "Bringing the {object} to the {target}.",
    ),
    Phase.PLACE: (
        "Placing the {object} {where}.",
        "Putting the {object} {where}.",
        "Setting the {object} down {where}.",
    ),
    Phase.PUSH: (
        "Pushing the {object} {where}.",
        "Sliding the {object} {where}.",
        "Shoving the {object} {where}.",
    ),
}
_ACTIONS: Mapping[Verb, Sequence[str]] = {
    Verb.PUT: ("put the {subject} {where}", "placed the {subject} {where}", "put {subject} {where}"),
    Verb.PUSHED: ("pushed the {subject} {where}", "slid the {subject} {where}", "pushed {subject} {where}"),
    Verb.OPENED: ("opened the {subject}", "pulled open the {subject}", "opened {subject}"),
    Verb.CLOSED: ("closed the {subject}", "shut the {subject}", "closed {subject}"),
    Verb.TURNED_ON: ("turned on the {subject}", "switched on the {subject}", "turned on {subject}"),
    Verb.TURNED_OFF: ("turned off the {subject}", "switched off the {subject}", "turned off {subject}"),
    Verb.LIFTED: ("lifted the {subject}", "raised the {subject}", "lifted {subject}"),
}
_TIMES = ("twice", *(f"{n} times" for n in ("three", "four", "five", "six", "seven", "eight", "nine")))
_FACTS = ("the {subject} is {state}", "{subject} is {state}", "{subject} {state}")
_NOTHING_DONE = ("nothing done yet", "no step done yet", "nothing done")
_SEPARATOR = "; "
_OF_PARTS = frozenset({Phase.OPEN, Phase.CLOSE, Phase.TURN_ON, Phase.TURN_OFF})


def narrate(narration: Narration, wording: int = 0, nouns: Nouns | None = None) -> str:
    """Write a narration as a sentence, in a wording modulo `WORDINGS`."""
    templates = _NARRATIONS if narration.target is None else _NARRATIONS_WITH_TARGET
    return templates[narration.phase][wording % WORDINGS].format(
        object=narration.object,
        target=narration.target,
        where=narration.target and (nouns or HOUSEHOLD).phrase(narration.target),
    )


def parse_narration(text: str, nouns: Nouns | None = None) -> Narration | None:
    """Parse a sentence; None if it matches no wording. Ignores case and a full stop."""
    plain, nouns = _plain(text), nouns or HOUSEHOLD
    for phase, pattern in _NARRATION_PATTERNS:
        if (match := pattern.fullmatch(plain)) is None:
            continue
        words = match.groupdict()
        obj, target = words.get("object"), words.get("target")
        if "where" in words:
            target = nouns.phrases.get(words["where"], words["where"])  # unknown places are refused below
        moves = phase in (Phase.CARRY, Phase.PLACE, Phase.PUSH)
        known = nouns.parts if phase in _OF_PARTS else nouns.movable if moves else nouns.subjects
        if (obj is None or obj in known) and (target is None or target in nouns.prepositions):
            return Narration(phase=phase, object=obj, target=target)
    return None


def remember(memory: Memory, wording: int = 0, nouns: Nouns | None = None) -> str:
    """Write a memory, separated by `; `: completed actions in order, then facts that they do not imply."""
    which, nouns = wording % WORDINGS, nouns or HOUSEHOLD
    actions = [
        _ACTIONS[action.verb][which].format(
            subject=action.subject, where=action.place and nouns.phrase(action.place)
        )
        + (f" {_TIMES[action.times - 2]}" if action.times > 1 else "")
        for action in memory.done
    ]
    news = memory.facts - frozenset(resulting_facts(memory.done, nouns).values())
    facts = [_FACTS[which].format(subject=fact.subject, state=fact.state) for fact in sorted(news)]
    return _SEPARATOR.join([*(actions or [_NOTHING_DONE[which]]), *facts])


def parse_memory(text: str, nouns: Nouns | None = None) -> Memory | None:
    """Parse a memory; None if a part matches no wording, or two parts contradict each other."""
    nouns = nouns or HOUSEHOLD
    pieces = [piece.strip() for piece in _plain(text).split(_SEPARATOR.strip())]
    parsed = [_read_piece(piece, nouns) for piece in pieces if piece not in _NOTHING_DONE]
    done = [item for item in parsed if isinstance(item, CompletedAction)]
    facts = {item.subject: item for item in parsed if isinstance(item, Fact)}
    if len(done) + len(facts) < len(parsed):
        return None
    try:
        return Memory(done=tuple(done), facts=frozenset({**resulting_facts(done, nouns), **facts}.values()))
    except ValueError:
        return None


def _read_piece(piece: str, nouns: Nouns) -> CompletedAction | Fact | None:
    """Parse one part of a memory; None if it matches no wording."""
    number = next((index for index, times in enumerate(_TIMES) if piece.endswith(f" {times}")), None)
    action = piece if number is None else piece.removesuffix(f" {_TIMES[number]}")
    for verb, pattern in _ACTION_PATTERNS:
        if match := pattern.fullmatch(action):
            subject, place = match["subject"], nouns.phrases.get(match.groupdict().get("where", ""))
            subjects = nouns.movable if verb.moves or verb is Verb.LIFTED else nouns.parts
            if subject in subjects and (place is not None) == verb.moves:
                times = 1 if number is None else number + 2
                return CompletedAction(verb=verb, subject=subject, place=place, times=times)
    for pattern in _FACT_PATTERNS:
        if match := pattern.fullmatch(piece):
            subject, state = match["subject"], match["state"]
            of_part, of_object = state in STATES[2:], state in STATES[:2] or state in nouns.phrases
            if (of_part and subject in nouns.parts) or (of_object and subject in nouns.movable):
                return Fact(subject=subject, state=state)
    return None


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).removesuffix(".").strip()


_WHERE = "(?:in|on|to|under) the .+"
_FIELDS = {
    "object": ".+?",
    "subject": ".+?",
    "target": ".+",
    "where": _WHERE,
    "state": "|".join([*map(re.escape, STATES), _WHERE]),
}


def _pattern(template: str) -> re.Pattern[str]:
    """Compile a template to a pattern with a group per field."""
    plain = re.escape(_plain(template))
    return re.compile(re.sub(r"\\{(\w+)\\}", lambda field: f"(?P<{field[1]}>{_FIELDS[field[1]]})", plain))


_NARRATION_PATTERNS = [
    (phase, _pattern(template))
    for templates in (_NARRATIONS_WITH_TARGET, _NARRATIONS)
    for phase, ways in templates.items()
    for template in ways
]
_ACTION_PATTERNS = [(verb, _pattern(template)) for verb, ways in _ACTIONS.items() for template in ways]
_FACT_PATTERNS = [_pattern(template) for template in _FACTS]
