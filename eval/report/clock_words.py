"""A run's clock and waiting rule in words, for headings and captions."""

from configs.schema import RunConfig
from eval.records.reader import RunIdentity

PAUSED = "paused"
MEASURED = "measured"

_WAITING = {
    "continue": "until new actions arrive, the robot continues with the previous chunk",
    "hold": "until new actions arrive, the robot holds still",
}

_OVERLAP = {
    "skip": "",
    "blend": ", which the new one then takes over from little by little",
    "rtc": ", and the new one is guided towards it",
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
    meanwhile = _WAITING.get(while_waiting, while_waiting) + _OVERLAP.get(overlap, f", {overlap}")
    return f"{_format_latency(clock, device)}; {meanwhile}"


def format_clock_of(run: RunIdentity) -> str:
    """The clock of a recorded run in words; see `say_clock`."""
    return format_clock(run.clock, run.while_waiting, overlap=run.overlap, device=run.clock_device)


def clock_label(run: RunIdentity | RunConfig) -> str:
    """A run's clock, waiting rule and, if it is not `skip`, overlap as options spell them, in one cell."""
    if run.clock == PAUSED:
        return run.clock
    return ", ".join([run.clock, run.while_waiting, *([run.overlap] if run.overlap != "skip" else [])])


def _format_latency(clock: str, device: str | None) -> str:
    kind, _, given = clock.partition(":")
    if kind == "fixed":
        actions, _, busy = given.partition(",")
        then = f"the next query can start after {busy} ms" if busy else "the next query can start then"
        return f"actions come {actions} ms after the observation, and {then}"
    served_by = f"as {_with_article(device)} would serve it" if device else f"as profile {given} says"
    speeds = {
        "profile": served_by,
        "measured": "as fast as this machine",
        "replay": f"as recorded in {given}",
    }
    return f"the policy runs {speeds.get(kind, clock)}"


def _with_article(device: str) -> str:
    """`a Jetson AGX Thor`, `an H200`: the article fits initials that are spelled out."""
    spelt_out = not device[1:2].islower()
    return f"{'an' if device[0] in ('AEFHILMNORSX' if spelt_out else 'AEIOUaeiou') else 'a'} {device}"
