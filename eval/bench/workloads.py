"""Workloads, their arrivals as the command line gives them, and the configurations that do each of them."""

import dataclasses
import itertools
import re
from collections.abc import Mapping
from typing import Any, Self

from configs.errors import UsageError, unknown
from oxygen.serving.arrivals import Arrivals, Burst, EveryN, Poisson, RandomLength
from oxygen.serving.budget import Deadline
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
    body, _, lengths = rest.partition("@")
    try:
        arrivals = _parse(kind, body.split(":"))
        return _with_lengths(arrivals, lengths) if "@" in rest else arrivals
    except UsageError as error:
        raise UsageError(f"arrivals {text!r}: {error}") from None
    except ValueError:
        raise UsageError(
            f"arrivals {text!r}: {body!r} has something that is no number of its kind; write {_FORMS[kind]}"
        ) from None


def _parse(kind: str, numbers: list[str]) -> Arrivals:
    match kind, numbers:
        case "every", [n]:
            return EveryN(n=int(n))
        case "burst", [n, every]:
            return Burst(n=int(n), every=int(every))
        case "poisson", [rate]:
            return Poisson(rate=float(rate), seed=_SEED)
    raise UsageError(f"write {_FORMS[kind]}, or {_FORMS[kind]}@LEAST-MOST")


def _with_lengths(arrivals: Arrivals, lengths: str) -> Arrivals:
    match = re.fullmatch(r"(\d+)-(\d+)", lengths)
    if match is None:
        raise UsageError(f"{lengths!r} is no range of lengths; write @8-30")
    return RandomLength(arrivals=arrivals, min_tokens=int(match[1]), max_tokens=int(match[2]), seed=_SEED)


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
        for field in ("denoise_steps", "text_tokens", "robots"):
            if getattr(self, field) < 1:
                raise UsageError(f"{field.replace('_', ' ')}: {getattr(self, field)}; at least 1")
        longest = self.arrivals.longest or 0
        if longest > self.text_tokens:
            raise UsageError(
                f"arrivals {self.arrivals_text!r} request up to {longest} tokens; "
                f"text tokens: {self.text_tokens}"
            )
        if self.slots is not None and self.slots < self.robots:
            raise UsageError(f"slots: {self.slots}; at least one for each robot, {self.robots}")
        for field in ("rows", "cameras"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise UsageError(f"{field}: {value}; at least 1")

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

    @property
    def fields(self) -> dict[str, Any]:
        """The workload's part of a row."""
        names = ("denoise_steps", "text_tokens", "robots", "slots", "rows")
        return {**{name: getattr(self, name) for name in names}, "arrivals": self.arrivals_text}

    def lengths(self, robot: int, query: int) -> list[int]:
        """Tokens of each text requested for a robot in a query."""
        return [self.text_tokens if n is None else n for n in self.arrivals.due(robot, query)]

    def __str__(self) -> str:
        served = f"{robots_label(self.robots, self.cameras)}{capacity_label(self.slots, self.rows)}"
        return f"N = {self.text_tokens}, {self.arrivals_text}, {self.denoise_steps} denoise steps, {served}"


def robots_label(robots: int, cameras: int | None) -> str:
    """The number of robots, and of cameras of each if given."""
    return plural(robots, "robot") + ("" if cameras is None else f" of {plural(cameras, 'camera')}")


def capacity_label(slots: int | None, rows: int | None) -> str:
    """The numbers of slots and rows, as far as they are given, each after a comma."""
    given = [(slots, "slot"), (rows, "row")]
    return "".join(f", {plural(n, what)}" for n, what in given if n is not None)


def plural(number: int, noun: str) -> str:
    """A count in words; as `configs.cli.counted`, which needs other packages."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


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
        return configuration_label(self.mode.value, self.tokens_per_frame, self.deadline_ms, self.adapter)


def configuration_label(
    mode: str, tokens_per_frame: int | None, deadline_ms: float | None, adapter: str = OFF
) -> str:
    """The mode, its token budget, and the adapter, if any."""
    beside = "" if adapter == OFF else f", adapter {adapter}"
    if deadline_ms is not None:
        return f"{mode}, {deadline_ms:g} ms{beside}"
    return f"{mode}{beside}" if tokens_per_frame is None else f"{mode}, k = {tokens_per_frame}{beside}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkloadGrid:
    """The values of each axis; all combinations are measured.

    Deadlines, if any, replace the tokens per frame of `unified`. Without `cameras` the policy's number is
    used.
    `slots` and `rows` are the same in all workloads.
    """

    modes: tuple[str, ...]
    denoise_steps: tuple[int, ...]
    text_tokens: tuple[int, ...]
    tokens_per_frame: tuple[int, ...]
    robots: tuple[int, ...]
    arrivals: tuple[tuple[str, Arrivals], ...]
    deadline_ms: tuple[float, ...] = ()
    cameras: tuple[int, ...] = ()
    adapter: tuple[str, ...] = (OFF,)
    slots: int | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        for name in self.adapter:
            if name not in ADAPTERS:
                raise unknown("adapter", name, ADAPTERS)
        for name in self.modes:
            if name not in list(Mode):
                raise unknown("mode", name, list(Mode))
        for k in self.tokens_per_frame:
            if k < 1:
                raise UsageError(f"tokens per frame: {k}; at least 1")
        for milliseconds in self.deadline_ms:
            Deadline(milliseconds)  # checks itself
        self.workloads()  # each checks itself

    def configurations(self, text_tokens: int) -> list[BenchConfiguration]:
        """The modes in order; those with a token budget once for each k of at most `text_tokens`.

        If there are deadlines, `unified` once for each instead.
        """
        ks = sorted({min(k, text_tokens) for k in self.tokens_per_frame})
        found = []
        for mode in map(Mode, self.modes):
            if mode is Mode.UNIFIED and self.deadline_ms:
                found += [BenchConfiguration(mode=mode, deadline_ms=ms) for ms in self.deadline_ms]
            elif mode in (Mode.UNIFIED, Mode.INTERLEAVED):
                found += [BenchConfiguration(mode=mode, tokens_per_frame=k) for k in ks]
            else:
                found.append(BenchConfiguration(mode=mode))
        return [
            dataclasses.replace(configuration, adapter=adapter)
            for configuration in found
            for adapter in (self.adapter if configuration.mode is not Mode.ACTIONS else (OFF,))
        ]

    def workloads(self) -> list[tuple[Workload, list[BenchConfiguration]]]:
        """All workloads with their configurations."""
        product = itertools.product(
            self.denoise_steps, self.text_tokens, self.cameras or (None,), self.robots, self.arrivals
        )
        return [
            (
                Workload(
                    denoise_steps=steps,
                    text_tokens=n,
                    robots=robots,
                    arrivals=arrivals,
                    arrivals_text=arrivals_text,
                    slots=self.slots,
                    rows=self.rows,
                    cameras=cameras,
                ),
                self.configurations(n),
            )
            for steps, n, cameras, robots, (arrivals_text, arrivals) in product
        ]
