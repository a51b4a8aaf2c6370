"""Cells of tables: numbers, short labels of instructions, and a run's clock and waiting rule in words."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the bench imports this module where neither Cyclopts nor pydantic is installed
    from configs.schema import RunConfig
    from eval.records.reader import RunIdentity

ELLIPSIS = "…"
NO_VALUE = "–"


def number(value: float | None, form: str, unit: str = "", *, scale: float = 1) -> str:
    """A number in a table, scaled, with its unit; a dash for None."""
    return NO_VALUE if value is None else f"{scale * value:{form}}{unit}"


def shortened(labels: Sequence[str], width: int) -> list[str]:
    """The labels in at most `width` characters each; as they are where all of them fit.

    Words that all of them begin or end with are left out first. Longer ones lose words in the middle, so
    that they still differ from other labels.
    """
    if max(map(len, labels), default=0) <= width:
        return list(labels)
    heads = sorted(range(width), key=lambda head: abs(2 * head - width))  # a gap near the middle comes first
    candidates = [
        [_cut(label, width, head, whole_words=whole) for whole in (True, False) for head in heads]
        for label in _without_shared_words(labels)
    ]
    uses = Counter(candidate for each in candidates for candidate in dict.fromkeys(each))
    return [min(each, key=lambda candidate: uses[candidate]) for each in candidates]


def _without_shared_words(labels: Sequence[str]) -> list[str]:
    words = [label.split() for label in labels]
    before = _shared(words)
    after = _shared([each[before:][::-1] for each in words])
    return [
        f"{ELLIPSIS if before else ''}{' '.join(each[before : len(each) - after])}{ELLIPSIS if after else ''}"
        for each in words
    ]


def _shared(words: Sequence[Sequence[str]]) -> int:
    """Length of the common prefix in words, if each label has at least one word more; 0 for one label."""
    count = 0
    while len(words) > 1 and all(len(each) > count + 1 and each[count] == words[0][count] for each in words):
        count += 1
    return count


def _cut(label: str, width: int, head: int, *, whole_words: bool) -> str:
    """The label without its middle: at most `head` characters before the gap, the rest after it."""
    if len(label) <= width:
        return label
    if not whole_words:
        return f"{label[:head]}{ELLIPSIS}{label[len(label) - (width - head - len(ELLIPSIS)) :]}"
    first = label[: head + 1].rpartition(" ")[0]
    last = label[len(label) - (width - len(first) - len(ELLIPSIS)) - 1 :].partition(" ")[2]
    return f"{first}{ELLIPSIS}{last}"


PAUSED = "paused"
MEASURED = "measured"

_WAITING = {
    "continue": "until new actions arrive, the robot continues with the previous chunk",
    "hold": "until new actions arrive, the robot holds still",
}

_OVERLAP = {
    "skip": "",
    "blend": ", and is averaged with the new chunk where they overlap",
    "rtc": ", towards which the new one is guided",
}


def format_clock(clock: str, while_waiting: str, *, overlap: str = "skip", device: str | None = None) -> str:
    """The latency that a clock charges, and what the robot does in the meantime.

    Args:
        clock: As `--clock` takes it, other than `paused`: `fixed:A[,B]`, `profile:NAME`, `measured` or
            `replay:RUN`.
        while_waiting: As `--while-waiting` takes it.
        overlap: As `--overlap` takes it.
        device: The device of its profile, where that is known.
    """
    kind, _, given = clock.partition(":")
    if kind == "fixed":
        actions, _, busy = given.partition(",")
        then = f"the next query can start after {busy} ms" if busy else "the next query can start then"
        latency = f"actions come {actions} ms after the observation, and {then}"
    else:
        times = {
            "profile": f"profile {given} says" + (f" ({device})" if device else ""),
            "measured": "on this machine",
            "replay": f"recorded in {given}",
        }
        latency = f"each query takes as long as {times.get(kind, clock)}"
    meanwhile = _WAITING.get(while_waiting, while_waiting) + _OVERLAP.get(overlap, f", {overlap}")
    return f"{latency}; {meanwhile}"


def format_clock_of(run: "RunIdentity") -> str:
    """The clock of a recorded run in words; see `format_clock`."""
    return format_clock(run.clock, run.while_waiting, overlap=run.overlap, device=run.clock_device)


def clock_label(run: "RunIdentity | RunConfig") -> str:
    """A run's clock, waiting rule and, if it is not `skip`, overlap as options spell them, in one cell."""
    if run.clock == PAUSED:
        return run.clock
    return ", ".join([run.clock, run.while_waiting, *([run.overlap] if run.overlap != "skip" else [])])
