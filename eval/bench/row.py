"""A row of the benchmark: one configuration, its measurements, their provenance; and the file of rows."""

import dataclasses
import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from contracts.errors import UsageError, pluralize
from contracts.mode import Mode
from eval.bench.workloads import BenchConfiguration, Workload
from eval.records import provenance
from eval.records.json_files import append_json_line, read_json_lines

IDENTITY = (
    *("policy", "weights", "dtype", "device", "cameras", "prompt_tokens"),
    *("mode", "denoise_steps", "text_tokens", "tokens_per_frame", "deadline_ms", "adapter"),
    *("robots", "arrivals", "repetitions", "queries"),
    *("versions.jax", "hardware.processor", "hardware.cores"),
)
"""Fields that identify a row's configuration and machine. All others are results."""


def identity(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """The identifying values among a row's fields, equal for rows of the same configuration and machine."""
    return tuple(functools.reduce(operator.getitem, name.split("."), values) for name in IDENTITY)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row(Workload, BenchConfiguration):
    """One line of the file: a configuration of a workload, its measurements, and their provenance.

    `Workload` and `BenchConfiguration` document the first fields. Times are in milliseconds; None if a value
    does not apply or is unknown. `…_ci95` is the 95 % interval of a ratio, paired by repetition; with fewer
    than six repetitions it covers less (see `measurement.py`).
    """

    policy: str  # the preset
    weights: str  # `random`, or their source
    dtype: str  # the compute type
    device: str  # JAX's name of it
    cameras: int  # images in an observation
    prompt_tokens: int  # length of the padded prompt
    prefix_tokens: int  # image and prompt tokens of one robot
    horizon: int  # actions in a chunk

    # Latencies: from a query's start to its actions on the host, and to the next query's start; from the
    # start of the query that requests a text to its first token, and to its last one.
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

    chunks_per_s: float  # action chunks of all robots
    actions_per_s: float  # the same times the horizon, as OxyGen's paper counts
    tokens_per_s: float  # text tokens of all robots
    decode_steps_per_frame: float | None  # mean decode steps of a text in a frame of `unified`, `interleaved`
    deadline_missed_fraction: float | None  # fraction of frames longer than the deadline; None without one
    requests_submitted: int  # texts in the counted queries
    requests_finished: int

    # Each program alone, median over repetitions: `prefill`, `denoise`, `guided_denoise`, `fork`, `decode_B`.
    # The last two write this configuration's pool.
    stage_ms: Mapping[str, float]
    # Sum of the stage times of the programs that ran, without forks and host time. None, like the fields that
    # derive from it, in `parallel`, whose two processes share the device.
    frame_ms_predicted: float | None = None
    # Predicted by measured mean frame: the part of a frame that its programs account for.
    predicted_over_frame: float | None = None
    predicted_over_frame_ci95: list[float] | None = None
    speedup_over_isolated: float | None = None  # mean frame of `isolated` by this one
    speedup_ci95: list[float] | None = None
    predicted_speedup: float | None = None  # the same ratio of the predicted frames
    attained_fraction: float | None = None  # measured by predicted speed-up
    attained_ci95: list[float] | None = None

    actions_sha256: str  # of the digests of every query's actions, warm-up included
    # Whether the actions are, bit for bit, those of mode `actions`, or else of the first configuration; None
    # if it is the only one.
    actions_equal: bool | None
    compiles_after_warmup: int  # compilations in its own runs, warm-up included

    # Memory of the largest program by its compiler, weights and pool included; in `parallel`, of the largest
    # of each process. None if the backend does not tell.
    needed_memory_bytes: int | None
    # Whether NVIDIA's multi-process service ran for `parallel`, so that kernels of both processes can run
    # side by side; None in other modes, and if the device is not a GPU.
    multi_process_service: bool | None

    written_at: str  # UTC, ISO 8601
    command: str  # the command line
    commit: str | None  # the code that ran
    dirty: bool | None  # whether files differed from it
    versions: Mapping[str, str | None]  # of Python and the main packages
    hardware: Mapping[str, Any]  # processor, memory, accelerators, load, XLA's flags and options
    # Each latency that the fields above derive from: `action_ms` and `frame_ms` by repetition and query,
    # `first_token_ms` and `request_ms` of the finished texts, `stage_ms` by repetition; None in rows of
    # earlier versions.
    samples: Mapping[str, Any] | None = None

    @property
    def work(self) -> str:
        """Describes the workload, and the number of cameras of a robot."""
        return f"{super().work} of {pluralize(self.cameras, 'camera')}"

    @property
    def title(self) -> str:
        """The policy, its device, and the work; equal for rows of the same table."""
        return f"{self.policy}, {self.dtype}, {self.device}: {self.work}"

    @property
    def identity(self) -> tuple[Any, ...]:
        """Equal for rows of the same configuration and machine."""
        return identity(vars(self))


def _read(record: Mapping[str, Any]) -> Row:
    """A row of this or an earlier version, without the results that are no longer recorded.

    Raises:
        AttributeError, TypeError, ValueError: It is none, or of work that is no longer measured.
    """
    if any(record.get(limit) is not None for limit in ("slots", "rows", "shortest_prompt")):
        raise ValueError(record)
    names = {field.name for field in dataclasses.fields(Row)} & record.keys()
    return Row(**{name: record[name] for name in names} | {"mode": Mode(record.get("mode"))})


def row_provenance() -> dict[str, Any]:
    """The command line, the code and the machine, for the record."""
    return {
        "command": provenance.command(),
        **provenance.git_state(),
        "versions": provenance.versions(),
        "hardware": provenance.hardware(),
    }


class RowFile:
    """A file of rows, appended to workload by workload; `rows` holds them, oldest first."""

    def __init__(self, path: Path) -> None:
        """Open the file, or create it; refuses one that cannot be written, or does not hold rows."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            self.rows = [_read(record) for record in read_json_lines(path)]
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
