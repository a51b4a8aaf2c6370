"""What is measured: workloads, and for each the contenders that do the same work in different ways."""

import dataclasses
import itertools

from configs.errors import UsageError, unknown
from oxygen.serving.arrivals import Arrivals
from oxygen.serving.budget import Deadline
from oxygen.serving.scheduler import Mode


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """What is asked of every contender alike.

    Attributes:
        denoise_steps: Euler steps of the flow.
        text_tokens: Tokens of a text, or of the longest one where lengths are drawn.
        robots: Observations in a query.
        arrivals: When texts are born, for every robot.
        spelled: The arrivals as they were written.
        slots: Texts that can be alive at once, of all robots; None for as many as are asked for, so that none
            is dropped.
        rows: Texts that `unified` and `shared` decode in one batch; None for all that are alive.
        cameras: Images in an observation; None for as many as the policy has.
    """

    denoise_steps: int
    text_tokens: int
    robots: int
    arrivals: Arrivals
    spelled: str
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
                f"arrivals {self.spelled!r} ask for up to {longest} tokens; text tokens: {self.text_tokens}"
            )
        if self.slots is not None and self.slots < self.robots:
            raise UsageError(f"slots: {self.slots}; at least one for each robot, {self.robots}")
        for field in ("rows", "cameras"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise UsageError(f"{field}: {value}; at least 1")

    def lengths(self, robot: int, query: int) -> list[int]:
        """Tokens of each text that is born for a robot in a query."""
        return [self.text_tokens if n is None else n for n in self.arrivals.due(robot, query)]

    def __str__(self) -> str:
        robots = robots_in_words(self.robots, self.cameras)
        most = room_in_words(self.slots, self.rows)
        return f"N = {self.text_tokens}, {self.spelled}, {self.denoise_steps} denoise steps, {robots}{most}"


def robots_in_words(robots: int, cameras: int | None) -> str:
    """How many robots, and through how many cameras each sees if that was said."""
    served = "1 robot" if robots == 1 else f"{robots} robots"
    if cameras is None:
        return served
    return f"{served} of 1 camera" if cameras == 1 else f"{served} of {cameras} cameras"


def room_in_words(slots: int | None, rows: int | None) -> str:
    """What was said about the room for texts, to go on a sentence with; nothing if nothing was."""
    said = [(slots, "slot"), (rows, "row")]
    return "".join(f", {n} {what}{'' if n == 1 else 's'}" for n, what in said if n is not None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contender:
    """A way of doing a workload.

    Attributes:
        mode: How language is scheduled.
        tokens_per_frame: Decode steps in a frame of mode `unified`; None in the others, which have no such.
        deadline_ms: In mode `unified`, what decides on the steps of a frame instead, milliseconds.
    """

    mode: Mode
    tokens_per_frame: int | None = None
    deadline_ms: float | None = None

    @property
    def least_tokens(self) -> int:
        """Decode steps of a frame of mode `unified` in any case: a deadline promises one."""
        return self.tokens_per_frame or 1

    def __str__(self) -> str:
        return contender_in_words(self.mode.value, self.tokens_per_frame, self.deadline_ms)


def contender_in_words(mode: str, tokens_per_frame: int | None, deadline_ms: float | None) -> str:
    """A mode, and of `unified` what decides on the tokens of a frame."""
    if deadline_ms is not None:
        return f"{mode}, {deadline_ms:g} ms"
    return mode if tokens_per_frame is None else f"{mode}, k = {tokens_per_frame}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Axes:
    """Every choice on every axis; what is measured is their product.

    Deadlines, where there are any, take the place of the tokens per frame. Without `cameras` there are as
    many as the policy has. `slots` and `rows` are no axes: they are the same in all workloads.
    """

    modes: tuple[str, ...]
    denoise_steps: tuple[int, ...]
    text_tokens: tuple[int, ...]
    tokens_per_frame: tuple[int, ...]
    robots: tuple[int, ...]
    arrivals: tuple[tuple[str, Arrivals], ...]
    deadline_ms: tuple[float, ...] = ()
    cameras: tuple[int, ...] = ()
    slots: int | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        for name in self.modes:
            if name not in list(Mode):
                raise unknown("mode", name, list(Mode))
        for k in self.tokens_per_frame:
            if k < 1:
                raise UsageError(f"tokens per frame: {k}; at least 1")
        for milliseconds in self.deadline_ms:
            Deadline(milliseconds)  # checks itself
        self.workloads()  # each checks itself

    def contenders(self, text_tokens: int) -> list[Contender]:
        """The modes in their order; `unified` once for each deadline, or for each k.

        More than a text's length is no other k.
        """
        ks = sorted({min(k, text_tokens) for k in self.tokens_per_frame})
        unified = [Contender(mode=Mode.UNIFIED, deadline_ms=ms) for ms in self.deadline_ms] or [
            Contender(mode=Mode.UNIFIED, tokens_per_frame=k) for k in ks
        ]
        return [
            contender
            for mode in self.modes
            for contender in (unified if mode == Mode.UNIFIED else [Contender(mode=Mode(mode))])
        ]

    def workloads(self) -> list[tuple[Workload, list[Contender]]]:
        """Every workload with its contenders."""
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
                    spelled=spelled,
                    slots=self.slots,
                    rows=self.rows,
                    cameras=cameras,
                ),
                self.contenders(n),
            )
            for steps, n, cameras, robots, (spelled, arrivals) in product
        ]
