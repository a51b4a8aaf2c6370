"""A row of the benchmark: one configuration, its measurements, their provenance; and the file of rows."""

import dataclasses
import functools
import operator
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.errors import UsageError, pluralize
from eval.bench.workloads import OFF, BenchConfiguration
from eval.records import provenance
from eval.records.json_files import append_json_line, read_json_lines
from oxygen.serving.scheduler import Mode

IDENTITY = (
    *("policy", "weights", "dtype", "device", "cameras", "prompt_tokens", "shortest_prompt"),
    *("mode", "denoise_steps", "text_tokens", "tokens_per_frame", "deadline_ms", "adapter"),
    *("robots", "arrivals", "slots", "rows", "repetitions", "queries"),
    *("versions.jax", "hardware.processor", "hardware.cores"),
)
"""Fields that identify a row's configuration and machine. All others are results."""


def identity(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """The identifying values among a row's fields, equal for rows of the same configuration and machine."""
    return tuple(functools.reduce(operator.getitem, name.split("."), values) for name in IDENTITY)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """The fields that all rows of a workload share.

    Attributes:
        policy: The preset.
        weights: `random`, or their source.
        dtype: The compute type.
        device: JAX's name of it.
        cameras: Images in an observation.
        prompt_tokens: Length of the padded prompt.
        prefix_tokens: Image and prompt tokens of one robot.
        horizon: Actions in a chunk.
        shortest_prompt: Tokens of the shortest prompt, if prompts vary.
        denoise_steps: Euler steps of the flow.
        text_tokens: Tokens of a text, N.
        robots: Observations in a query.
        arrivals: When texts are requested.
        slots, rows: Maximum unfinished texts, in total and in one batch; None without a limit.
        repetitions: Runs of each configuration.
        queries: Queries counted in a run; one more precedes them.
        warm_up_queries: Queries before the first run.
    """

    policy: str
    weights: str
    dtype: str
    device: str
    cameras: int
    prompt_tokens: int
    prefix_tokens: int
    horizon: int
    shortest_prompt: int | None = None
    denoise_steps: int
    text_tokens: int
    robots: int
    arrivals: str
    slots: int | None
    rows: int | None
    repetitions: int
    queries: int
    warm_up_queries: int

    @property
    def title(self) -> str:
        """The policy, its device, and the work; equal for rows of the same table."""
        return f"{self.policy}, {self.dtype}, {self.device}: {self.work}"

    @property
    def work(self) -> str:
        """Describes the workload."""
        found = [f"N = {self.text_tokens}", self.arrivals, f"{self.denoise_steps} denoise steps"]
        found.append(robots_label(self.robots, self.cameras))
        found += [
            pluralize(n, what) for n, what in ((self.slots, "slot"), (self.rows, "row")) if n is not None
        ]
        if self.shortest_prompt is not None:
            found.append(f"prompts from {self.shortest_prompt} tokens")
        return ", ".join(found)


def robots_label(robots: int, cameras: int) -> str:
    """The number of robots, and of cameras of each."""
    return f"{pluralize(robots, 'robot')} of {pluralize(cameras, 'camera')}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row(Setting):
    """One line of the file. Times are in milliseconds; None if a value does not apply or is unknown.

    `…_ci95` is the 95 % interval of a ratio, paired by repetition; with fewer than six repetitions it covers
    less (see `aggregation.py`).

    Attributes:
        mode: How language was scheduled.
        tokens_per_frame: Decode steps of each text in a frame of `unified` or `interleaved`, k; None in other
            modes, and by deadline.
        deadline_ms: Deadline of a frame of `unified`, instead of k.
        adapter: The mask of the texts' adapter, or `off`.
        action_ms_p50, action_ms_p95, action_ms_p99: From a query's start to its actions on the host.
        frame_ms_p50, frame_ms_p95, frame_ms_p99, frame_ms_mean: From a query's start to the next one's.
        first_token_ms_p50, …: From the start of the query that requests a text to its first token.
        request_ms_p50, …: From there to its last token.
        chunks_per_s: Action chunks of all robots.
        actions_per_s: The same times the horizon, as OxyGen's paper counts.
        tokens_per_s: Text tokens of all robots.
        decode_steps_per_frame: Mean decode steps of each text in a frame of `unified` or `interleaved`; None
            in other modes.
        deadline_missed_fraction: Fraction of frames longer than the deadline; None without one.
        requests_submitted, requests_finished, requests_dropped: Texts in the counted queries.
        decode_batch: Batch size of the decode program; None if nothing is decoded.
        stage_ms: Each program alone, median over repetitions: `prefill`, `denoise`, `guided_denoise`,
            `fork`, `decode_B`. The last two write this configuration's pool.
        decode_growth, decode_growth_ci95: A decode step of the workload's largest batch by one of its
            smallest, each in its configuration's pool; None if there is one size only.
        frame_ms_predicted: Sum of the stage times, without forks and host time; None where the programs of a
            query are not known beforehand: in `parallel`, by deadline, and with too few slots or rows. The
            fields that derive from it are None then, too.
        speedup_over_isolated, speedup_ci95: Mean frame of `isolated` by this one.
        predicted_speedup: The same ratio of the predicted frames.
        predicted_over_frame, predicted_over_frame_ci95: Predicted by measured mean frame: the part of a frame
            that its programs account for.
        attained_fraction, attained_ci95: Measured by predicted speed-up.
        action_over_actions, action_over_actions_ci95: Median action latency by that of mode `actions`.
        actions_sha256: Of the digests of every query's actions, warm-up included.
        actions_equal: Whether the actions are, bit for bit, those of mode `actions`, or else of the first
            configuration; None if it is the only one.
        compiles_after_warmup: Compilations in its own runs, warm-up included.
        program_bytes: Memory of each program by its compiler: weights and other arguments, results, temporary
            arrays. The pool is an argument of `fork` and of `decode_B`. None if the backend does not tell.
        needed_memory_bytes: The largest of these; in `parallel`, the sum of the largest of each process.
        second_process_bytes: Peak resident memory of the second process of `parallel`.
        peak_memory_bytes: Peak use since the process began, by any configuration.
        peak_memory_of: `device` if its backend reports it, else `process`; in `parallel`, both processes.
        multi_process_service: Whether NVIDIA's multi-process service ran for `parallel`, so that kernels of
            both processes can run side by side; None in other modes, and if the device is no GPU.
        took_s: Seconds from the start of the command until the row's workload was done.
        written_at: UTC, ISO 8601.
        command: The command line.
        commit, dirty: The code that ran, and whether files differed from it.
        versions: Of Python and the main packages.
        hardware: Processor, memory, accelerators, load, XLA's flags and options.
        samples: Each latency that these fields derive from: `action_ms` and `frame_ms` by repetition and
            query, `first_token_ms` and `request_ms` of the finished texts, `stage_ms` by repetition; None in
            rows of earlier versions.
    """

    mode: str
    tokens_per_frame: int | None
    deadline_ms: float | None
    adapter: str = OFF
    action_ms_p50: float
    action_ms_p95: float
    action_ms_p99: float
    frame_ms_p50: float
    frame_ms_p95: float
    frame_ms_p99: float
    frame_ms_mean: float
    first_token_ms_p50: float | None
    first_token_ms_p95: float | None
    first_token_ms_p99: float | None
    request_ms_p50: float | None
    request_ms_p95: float | None
    request_ms_p99: float | None
    chunks_per_s: float
    actions_per_s: float
    tokens_per_s: float
    decode_steps_per_frame: float | None
    deadline_missed_fraction: float | None
    requests_submitted: int
    requests_finished: int
    requests_dropped: int
    decode_batch: int | None
    stage_ms: Mapping[str, float]
    decode_growth: float | None
    decode_growth_ci95: list[float] | None
    frame_ms_predicted: float | None = None
    predicted_over_frame: float | None = None
    predicted_over_frame_ci95: list[float] | None = None
    speedup_over_isolated: float | None = None
    speedup_ci95: list[float] | None = None
    predicted_speedup: float | None = None
    attained_fraction: float | None = None
    attained_ci95: list[float] | None = None
    action_over_actions: float | None = None
    action_over_actions_ci95: list[float] | None = None
    actions_sha256: str
    actions_equal: bool | None
    compiles_after_warmup: int
    program_bytes: Mapping[str, int] | None
    needed_memory_bytes: int | None
    second_process_bytes: int | None
    peak_memory_bytes: int
    peak_memory_of: str
    multi_process_service: bool | None
    took_s: float
    written_at: str
    command: str
    commit: str | None
    dirty: bool | None
    versions: Mapping[str, str | None]
    hardware: Mapping[str, Any]
    samples: Mapping[str, Any] | None = None

    @property
    def label(self) -> str:
        """The mode, its token budget, and the adapter, if any."""
        budget = {"tokens_per_frame": self.tokens_per_frame, "deadline_ms": self.deadline_ms}
        return str(BenchConfiguration(mode=Mode(self.mode), adapter=self.adapter, **budget))

    @property
    def identity(self) -> tuple[Any, ...]:
        """Equal for rows of the same configuration and machine."""
        return identity(vars(self))


def provenance_of(module: str) -> dict[str, Any]:
    """The command line of `python -m MODULE`, the code and the machine, for the record."""
    return {
        "command": shlex.join(["python", "-m", module, *sys.argv[1:]]),
        **provenance.git_state(),
        "versions": provenance.versions(),
        "hardware": provenance.hardware(),
    }


class RowFile:
    """A file of rows, appended to workload by workload; `rows` holds them, oldest first."""

    def __init__(self, path: Path) -> None:
        """Open the file, or create it.

        Raises:
            UsageError: It cannot be written, or does not hold rows of this version.
        """
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            self.rows: list[Row] = [Row(**record) for record in read_json_lines(path)]
        except OSError as error:
            raise UsageError(f"cannot write {str(path)!r}: {error.strerror}; give --output another") from None
        except (AttributeError, TypeError, ValueError):
            raise UsageError(
                f"{str(path)!r} does not hold rows as this version writes them; give --output another"
            ) from None

    def of(self, identities: Iterable[tuple[Any, ...]]) -> Sequence[Row]:
        """The latest row of each of these configurations, in their order."""
        latest = {row.identity: row for row in self.rows}
        return [latest[identity] for identity in identities if identity in latest]

    def append(self, rows: Iterable[Row]) -> None:
        """Add rows; each is on disk when this returns."""
        for row in rows:
            append_json_line(self.path, dataclasses.asdict(row))
            self.rows.append(row)

    def has(self, identities: Iterable[tuple[Any, ...]]) -> bool:
        """Whether each of these configurations has a row."""
        return set(identities) <= {row.identity for row in self.rows}
