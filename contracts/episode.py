"""Episodes: what identifies one, how it ended, and its result."""

import dataclasses
import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Self

from contracts.hashing import seed_of
from contracts.latency import Quantiles
from contracts.redaction import redact_text

_NAME = r"[A-Za-z0-9_.-]+"
_LARGEST = 2**63 - 1  # number of steps, queries or tokens
_COUNTS = (
    *("steps", "queries", "tokens"),
    *("idle_steps", "continued_steps", "skipped_actions", "clipped_steps"),
)


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class EpisodeKey:
    """Identifies an episode. All randomness of the episode is a function of these four fields.

    Attributes:
        suite: Name of the task suite; letters, digits, `_`, `.` and `-`.
        task_id: Index of the task in the suite.
        init_id: Id of the stored or sampled initial state.
        seed: Seed of the policy's noise and, where the protocol leaves it free, of the environment.
    """

    suite: str
    task_id: int
    init_id: int
    seed: int

    def __post_init__(self) -> None:
        if re.fullmatch(_NAME, self.suite) is None:
            raise ValueError(f"suite is {self.suite!r}, should match {_NAME}")

    def __str__(self) -> str:
        return f"{self.suite}.{self.task_id}.{self.init_id}.{self.seed}"

    @property
    def state(self) -> tuple[str, int, int]:
        """Task and initial state, which episodes of several seeds share: they are not independent."""
        return self.suite, self.task_id, self.init_id

    def choose(self, wordings: Sequence[str]) -> str:
        """The wording of the episode's instruction, in rotation, the same for all policies and modes."""
        return wordings[(self.init_id + self.task_id + self.seed) % len(wordings)]

    def digest(self) -> int:
        """A 64-bit hash of the key, the same on every machine and in every process."""
        return seed_of(str(self))


class Outcome(enum.StrEnum):
    """How an episode ended."""

    SUCCESS = "success"
    TIMEOUT = "timeout"
    FAILURE = "failure"
    """The task can no longer be solved, by the world's judgement: an object lifted once too often."""
    INVALID_ACTION = "invalid_action"
    """The actions could not be executed, or physics diverged under them: a failure of the policy."""
    ERROR = "error"
    """Simulator, renderer, connection or our code failed: not graded."""

    @property
    def has_traceback(self) -> bool:
        """Whether an exception was raised."""
        return self in (Outcome.INVALID_ACTION, Outcome.ERROR)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """A count out of a total; of scores between 0 and 1, their sum out of their number."""

    hits: float = 0
    of: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.hits <= self.of:
            raise ValueError(f"{self.hits} hits of {self.of}")

    def __add__(self, other: "Share") -> "Share":
        return Share(hits=self.hits + other.hits, of=self.of + other.of)


Shares = Mapping[str, Share]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextScores:
    """Scores of the texts of one language task in one episode."""

    texts: int  # finished texts
    not_graded: int  # texts that could not be parsed: unknown words, cut off, contradictory
    oracle: int  # texts written from the ground truth, whose scores are the upper bound
    at_request: Shares  # measure to share, against the truth when the text was requested
    on_delivery: Shares  # the same against the truth when its last token was known
    staleness_s: float  # sum over texts of the simulated seconds from request to delivery
    # Simulated seconds in which the text delivered last is true, weighted by its score; none before the first
    # text. None on clock `paused`, and in records without it.
    current_s: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestCounts:
    """Numbers of text requests in an episode, by outcome."""

    requested: int = 0
    finished: int = 0
    cancelled: int = 0
    dropped: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class MotionQuality:
    """How smoothly the robot moved in an episode; None where undefined or not recorded."""

    # Natural logarithm of the end effector's dimensionless squared jerk.
    log_dimensionless_jerk: float | None = None
    path_length_m: float | None = None  # length of the end effector's path, m
    # Mean change of the executed action at a change of chunk, over that inside chunks.
    chunk_jump_ratio: float | None = None
    # Changes of the commands to the grippers between opening and closing.
    gripper_toggles: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeResult:
    """One line of `episodes.jsonl`."""

    key: EpisodeKey  # the episode
    task: str  # the suite's name of the task
    instruction: str  # the suite's own instruction
    language: str  # the instruction as given to the policy
    category: str = ""  # the kind of task, in suites that have several
    difficulty: int | None = None  # its level in the suite; None if unknown
    outcome: Outcome  # how it ended
    steps: int  # control steps after settling
    queries: int  # policy calls
    latency_ms: Mapping[str, Quantiles]  # by stage, over the episode's queries
    tokens: int  # language tokens decoded
    requests: RequestCounts  # numbers of text requests by outcome
    policy_s: float  # seconds spent in policy calls
    wall_s: float  # wall time of the episode, seconds; 0 if it is not known
    # Seconds of simulated time in those control steps.
    simulated_s: float | None = None
    idle_steps: int = 0  # control steps in which the robot was idle for lack of an action
    continued_steps: int = 0  # control steps in which the previous chunk continued during a query
    # Leading actions of chunks that were skipped, as old ones were executed instead.
    skipped_actions: int = 0
    clipped_steps: int = 0  # control steps in which an action of the arm was beyond its limits
    progress: float | None = None  # fraction of the task's criteria met at the end; None after an error
    # Language task to scores; empty without texts.
    texts: Mapping[str, TextScores] = dataclasses.field(default_factory=dict)
    # Why its texts are not graded, if the world failed to provide the truth; None if it did not fail.
    truth_error: str | None = None
    motion: MotionQuality = MotionQuality()  # quality of the motion
    redraws: int = 0  # draws of its perturbations that were impossible, each replaced by the next
    # Compilations between warm-up and the episode's end; None if the policy does not compile.
    compiles_after_warm_up: int | None = None
    video: str | None = None  # path of the video, relative to the run's folder
    video_error: str | None = None  # why there is none, if its recording failed
    error: str | None = None  # the exception in one line; only for errors and invalid actions
    traceback: str | None = None  # its traceback; likewise

    def __post_init__(self) -> None:
        for name in _COUNTS:
            if not 0 <= getattr(self, name) <= _LARGEST:
                raise ValueError(f"{name} is {getattr(self, name)}, should be 0 or more, and below 2^63")
        if self.simulated_s is not None and not self.simulated_s >= 0:
            raise ValueError(f"simulated_s is {self.simulated_s}, should be 0 or more")
        if self.video is not None:
            path = PurePosixPath(self.video)
            if "\0" in self.video or path.is_absolute() or ".." in path.parts or not path.name:
                raise ValueError(f"video is {self.video!r}, should be a path inside the run's folder")
        raised = self.outcome.has_traceback
        if raised != bool(self.error) or raised != bool(self.traceback):
            raise ValueError(
                f"outcome {self.outcome.value!r} with error {self.error!r}: exactly an error and an invalid "
                "action have one, and a traceback"
            )

    def redacted(self) -> Self:
        """The result without the secrets that stand in its error and traceback."""
        if self.error is None or self.traceback is None:
            return self
        error, raised = redact_text(self.error), redact_text(self.traceback)
        return dataclasses.replace(self, error=error, traceback=raised)

    @property
    def known_steps(self) -> int | None:
        """Its control steps; None if the program that played it did not record them."""
        return self.steps if self.steps or self.simulated_s is not None else None

    @property
    def success_s(self) -> float | None:
        """Simulated seconds to success; None if the task was not solved."""
        return self.simulated_s if self.outcome is Outcome.SUCCESS else None


def graded_only(episodes: Sequence[EpisodeResult]) -> list[EpisodeResult]:
    """The episodes that are not errors."""
    return [episode for episode in episodes if episode.outcome is not Outcome.ERROR]


def states_of(episodes: Iterable[EpisodeResult]) -> list[tuple[str, int, int]]:
    """Suite, task and initial state of each episode."""
    return [episode.key.state for episode in episodes]


def solved(episode: EpisodeResult) -> bool:
    """Whether the task was solved."""
    return episode.outcome is Outcome.SUCCESS
