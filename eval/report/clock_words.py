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
    meanwhile = _WAITING.get(while_waiting, while_waiting) + _OVERLAP.get(overlap, f", {overlap}")
    return f"{_format_latency(clock, device)}; {meanwhile}"


def format_clock_of(run: RunIdentity) -> str:
    """The clock of a recorded run in words; see `format_clock`."""
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
    times = {
        "profile": f"profile {given} says" + (f" ({device})" if device else ""),
        "measured": "on this machine",
        "replay": f"recorded in {given}",
    }
    return f"each query takes as long as {times.get(kind, clock)}"
