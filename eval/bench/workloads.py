"""Workloads, their arrivals as the command line gives them, and the configurations that do each of them."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Self

from configs.errors import UsageError, unknown
from oxygen.serving.arrivals import Arrivals, Burst, EveryN, Poisson, RandomLength
from oxygen.serving.scheduler import Mode

_SEED = 7
_FORMS: Mapping[str, str] = {
    "every": "every:QUERIES",
    "burst": "burst:TEXTS:QUERIES",
    "poisson": "poisson:TEXTS_PER_QUERY",
}


def parse_arrivals(text: str) -> Arrivals:
    """The arrivals that `text` describes.

    `every:2` is a text in every second query, `burst:4:8` four texts in every eighth, `poisson:0.5` one in
    two queries on average. `@8-30` after any of them draws each text's length from 8 to 30 tokens.

    Raises:
        UsageError: It does not describe arrivals.
    """
    kind, _, rest = text.partition(":")
    if kind not in _FORMS:
        raise unknown("arrivals", text, _FORMS.values())
    body, at, lengths = rest.partition("@")
    try:
        match kind, body.split(":"):
            case "every", [n]:
                arrivals: Arrivals = EveryN(n=int(n))
            case "burst", [n, every]:
                arrivals = Burst(n=int(n), every=int(every))
            case "poisson", [rate]:
                arrivals = Poisson(rate=float(rate), seed=_SEED)
            case _:
                raise UsageError(f"write {_FORMS[kind]}, or {_FORMS[kind]}@LEAST-MOST")
        if not at:
            return arrivals
        if (bounds := re.fullmatch(r"(\d+)-(\d+)", lengths)) is None:
            raise UsageError(f"{lengths!r} is not a range of lengths; write @8-30")
        least, most = map(int, bounds.groups())
        return RandomLength(arrivals=arrivals, min_tokens=least, max_tokens=most, seed=_SEED)
    except UsageError as error:
        raise UsageError(f"arrivals {text!r}: {error}") from None
    except ValueError:
        raise UsageError(f"arrivals {text!r}: {body!r} has an invalid number; write {_FORMS[kind]}") from None


OFF = "off"
"""A configuration without an adapter."""
ADAPTERS = (OFF, "exact", "published")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """The work that all configurations do alike.

    Attributes:
        denoise_steps: Euler steps of the flow.
        text_tokens: Tokens of a text, or of the longest one if lengths are random.
        robots: Observations in a query.
        arrivals: When texts are requested, for every robot.
        arrivals_text: The arrivals as written on the command line.
        slots: Unfinished texts at once, of all robots; None for as many as are requested, so that none is
            dropped.
        rows: Texts that `unified` and `shared` decode in one batch; None for all unfinished ones.
        cameras: Images in an observation; None for the policy's number.
    """

    denoise_steps: int
    text_tokens: int
    robots: int
    arrivals: Arrivals
    arrivals_text: str
    slots: int | None = None
    rows: int | None = None
    cameras: int | None = None

    def __post_init__(self) -> None:
        longest = self.arrivals.longest or 0
        if longest > self.text_tokens:
            raise UsageError(
                f"arrivals {self.arrivals_text!r} request up to {longest} tokens; "
                f"text tokens: {self.text_tokens}"
            )
        if self.slots is not None and self.slots < self.robots:
            raise UsageError(f"slots: {self.slots}; at least one for each robot, {self.robots}")

    @classmethod
    def steady(cls, *, denoise_steps: int, text_tokens: int, cameras: int | None = None) -> Self:
        """One robot, and one text per query."""
        return cls(
            denoise_steps=denoise_steps,
            text_tokens=text_tokens,
            robots=1,
            arrivals=EveryN(n=1),
            arrivals_text="every:1",
            cameras=cameras,
        )

    def lengths(self, robot: int, query: int) -> list[int]:
        """Tokens of each text requested for a robot in a query."""
        return [self.text_tokens if n is None else n for n in self.arrivals.due(robot, query)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchConfiguration:
    """A mode and its token budget.

    Attributes:
        mode: How language is scheduled.
        tokens_per_frame: Decode steps of each text in a frame of modes `unified` and `interleaved`; None in
            other modes, and by deadline.
        deadline_ms: Deadline of a frame in mode `unified`, instead of `tokens_per_frame`; milliseconds.
        adapter: The mask of a suffix adapter that texts use; `off` for none.
    """

    mode: Mode
    tokens_per_frame: int | None = None
    deadline_ms: float | None = None
    adapter: str = OFF

    @property
    def min_decode_steps(self) -> int:
        """The fewest decode steps of a text in a frame; a deadline guarantees one."""
        return self.tokens_per_frame or 1

    def __str__(self) -> str:
        budget = "" if self.tokens_per_frame is None else f", k = {self.tokens_per_frame}"
        if self.deadline_ms is not None:
            budget = f", {self.deadline_ms:g} ms"
        return f"{self.mode.value}{budget}" + ("" if self.adapter == OFF else f", adapter {self.adapter}")
