"""Files of a run: the manifest, one line per episode, one query log per episode."""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, NoReturn, Self

from pydantic import Field, StrictInt
from typing_extensions import TypedDict

from configs.cli import check
from configs.errors import UsageError
from configs.paths import read_json_object
from configs.redaction import redact, redact_text
from eval.records.json_files import append_json_line, read_json_lines, write_json
from sim_envs.world import EpisodeKey

SCHEMA_VERSION = 2
"""Version of the files in a run's folder. Runs of another version are refused."""


Total = Annotated[int, Field(ge=0, lt=2**63)]
"""A number of steps, queries or tokens in an episode."""


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
    gripper_toggles: Total | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeResult:
    """One line of `episodes.jsonl`."""

    key: EpisodeKey  # the episode
    task: str  # the suite's name of the task
    instruction: str  # the suite's own instruction
    language: str  # the instruction as given to the policy
    outcome: Outcome  # how it ended
    steps: Total  # control steps after settling
    queries: Total  # policy calls
    # Stage to p50, p95 and p99 over the episode's queries, milliseconds.
    latency_ms: Mapping[str, Mapping[str, float]]
    tokens: Total  # language tokens decoded
    requests: RequestCounts  # numbers of text requests by outcome
    policy_s: float  # seconds spent in policy calls
    wall_s: float  # wall time of the episode, seconds
    # Seconds of simulated time in those control steps.
    simulated_s: Annotated[float, Field(ge=0)] | None = None
    held_steps: Total = 0  # control steps in which the robot held still for lack of an action
    continued_steps: Total = 0  # control steps in which the previous chunk continued during a query
    # Leading actions of chunks that were skipped, as old ones were executed instead.
    skipped_actions: Total = 0
    progress: float | None = None  # fraction of the task's criteria met at the end; None after an error
    # Language task to scores; empty without texts.
    texts: Mapping[str, TextScores] = dataclasses.field(default_factory=dict)
    # Why its texts are not graded, if the world failed to provide the truth; None if it did not fail.
    truth_error: str | None = None
    motion: MotionQuality = MotionQuality()  # quality of the motion
    # Compilations between warm-up and the episode's end; None if the policy does not compile.
    compiles_after_warm_up: int | None = None
    video: str | None = None  # path of the video, relative to the run's folder
    video_error: str | None = None  # why there is none, if its recording failed
    error: str | None = None  # the exception in one line; only for errors and invalid actions
    traceback: str | None = None  # its traceback; likewise

    def __post_init__(self) -> None:
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
    def success_s(self) -> float | None:
        """Simulated seconds to success; None if the task was not solved."""
        return self.simulated_s if self.outcome is Outcome.SUCCESS else None


def graded_only(episodes: Sequence[EpisodeResult]) -> list[EpisodeResult]:
    """The episodes that are not errors."""
    return [episode for episode in episodes if episode.outcome is not Outcome.ERROR]


def solved(episode: EpisodeResult) -> bool:
    """Whether the task was solved."""
    return episode.outcome is Outcome.SUCCESS


class _Planned(TypedDict, total=False):
    task_ids: list[StrictInt]
    init_ids: list[StrictInt]
    num_trials_per_task: StrictInt | None


class _Attempt(TypedDict):
    started: str
    finished: str | None


class _Manifest(TypedDict, total=False):
    """The fields of a manifest that are read without further checks."""

    config: _Planned
    protocol: dict[str, dict[str, Any]] | None
    variants: list[str]
    started: str
    attempts: Annotated[list[_Attempt], Field(min_length=1)]


class _Fields(dict[str, Any]):
    """The fields of a record; a missing one is a UsageError."""

    def __init__(self, content: Mapping[str, Any], *, source: str) -> None:
        super().__init__(content)
        self._source = source

    def __missing__(self, name: str) -> NoReturn:
        raise UsageError(f"{self._source}: lacks {name!r}")


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The folder `runs/<run_id>/` and its files."""

    path: Path

    @property
    def run_id(self) -> str:
        """The run's name."""
        return self.path.name

    @property
    def manifest_path(self) -> Path:
        """Configuration, versions, hardware."""
        return self.path / "manifest.json"

    @property
    def episodes_path(self) -> Path:
        """One line per episode."""
        return self.path / "episodes.jsonl"

    @property
    def results_path(self) -> Path:
        """Success rates and latencies."""
        return self.path / "results.json"

    def queries_path(self, key: EpisodeKey) -> Path:
        """One line per query of one episode."""
        return self.path / "queries" / f"{key}.jsonl"

    def picture_path(self, key: EpisodeKey) -> Path:
        """The latest camera picture of an episode; there only while it runs."""
        return self.path / "queries" / f"{key}.jpg"

    def read_manifest(self) -> dict[str, Any]:
        """The manifest as it was last written; an unreadable one, or a missing field, is a UsageError."""
        if not self.manifest_path.exists():
            raise UsageError(f"{self.path} is not a run: it has no {self.manifest_path.name}")
        content = read_json_object(self.manifest_path)
        version = content.get("schema_version", 1)
        if version != SCHEMA_VERSION:
            raise UsageError(
                f"{self.path} has records of schema version {version}, this program reads {SCHEMA_VERSION}; "
                "run it again"
            )
        check(_Manifest, content, source=str(self.manifest_path))
        return _Fields(redact(content), source=str(self.manifest_path))  # of older versions

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Replace the manifest atomically."""
        write_json(self.manifest_path, {"schema_version": SCHEMA_VERSION, **manifest})

    def append(self, result: EpisodeResult) -> None:
        """Append one episode; it is on disk when this returns."""
        append_json_line(self.episodes_path, dataclasses.asdict(result))

    def episodes(self) -> dict[EpisodeKey, EpisodeResult]:
        """All recorded episodes; a damaged line is a UsageError.

        The last record of an episode counts (a retry after an error).
        """
        results: dict[EpisodeKey, EpisodeResult] = {}
        for number, record in enumerate(read_json_lines(self.episodes_path), start=1):
            result = check(EpisodeResult, record, source=f"{self.episodes_path}, line {number}")
            results[result.key] = result
        return results
