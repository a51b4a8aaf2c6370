"""What is measured: workloads, and for each the contenders that do the same work in different ways."""

import dataclasses
import itertools

from configs.errors import UsageError, unknown
from oxygen.arrivals import Arrivals
from oxygen.scheduler import Mode


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """What is asked of every contender alike.

    Attributes:
        denoise_steps: Euler steps of the flow.
        text_tokens: Tokens of a text, or of the longest one where lengths are drawn.
        robots: Observations in a query.
        arrivals: When texts are born, for every robot.
        spelled: The arrivals as they were written.
    """

    denoise_steps: int
    text_tokens: int
    robots: int
    arrivals: Arrivals
    spelled: str

    def __post_init__(self) -> None:
        for field in ("denoise_steps", "text_tokens", "robots"):
            if getattr(self, field) < 1:
                raise UsageError(f"{field.replace('_', ' ')}: {getattr(self, field)}; at least 1")
        longest = self.arrivals.longest or 0
        if longest > self.text_tokens:
            raise UsageError(
                f"arrivals {self.spelled!r} ask for up to {longest} tokens; text tokens: {self.text_tokens}"
            )

    def lengths(self, robot: int, query: int) -> list[int]:
        """Tokens of each text that is born for a robot in a query."""
        return [self.text_tokens if n is None else n for n in self.arrivals.due(robot, query)]

    def __str__(self) -> str:
        robots = "1 robot" if self.robots == 1 else f"{self.robots} robots"
        return f"N = {self.text_tokens}, {self.spelled}, {self.denoise_steps} denoise steps, {robots}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contender:
    """A way of doing a workload.

    Attributes:
        mode: How language is scheduled.
        tokens_per_frame: Decode steps in a frame of mode `unified`; None in the others, which have no such.
    """

    mode: Mode
    tokens_per_frame: int | None = None

    def __str__(self) -> str:
        k = self.tokens_per_frame
        return self.mode.value if k is None else f"{self.mode.value}, k = {k}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Axes:
    """Every choice on every axis; what is measured is their product."""

    modes: tuple[str, ...]
    denoise_steps: tuple[int, ...]
    text_tokens: tuple[int, ...]
    tokens_per_frame: tuple[int, ...]
    robots: tuple[int, ...]
    arrivals: tuple[tuple[str, Arrivals], ...]

    def __post_init__(self) -> None:
        for name in self.modes:
            if name not in list(Mode):
                raise unknown("mode", name, list(Mode))
        for k in self.tokens_per_frame:
            if k < 1:
                raise UsageError(f"tokens per frame: {k}; at least 1")
        self.workloads()  # each checks itself

    def contenders(self, text_tokens: int) -> list[Contender]:
        """The modes in their order; `unified` once for each k. More than a text's length is no other k."""
        ks = sorted({min(k, text_tokens) for k in self.tokens_per_frame})
        return [
            Contender(mode=Mode(mode), tokens_per_frame=k)
            for mode in self.modes
            for k in (ks if mode == Mode.UNIFIED else [None])
        ]

    def workloads(self) -> list[tuple[Workload, list[Contender]]]:
        """Every workload with its contenders."""
        product = itertools.product(self.denoise_steps, self.text_tokens, self.robots, self.arrivals)
        return [
            (
                Workload(
                    denoise_steps=steps, text_tokens=n, robots=robots, arrivals=arrivals, spelled=spelled
                ),
                self.contenders(n),
            )
            for steps, n, robots, (spelled, arrivals) in product
        ]
