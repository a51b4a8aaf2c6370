"""The record of a sweep: a row per cell, as `sweep.json` has it."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AliasChoices, Field

from configs.errors import check
from eval.metrics.language import Percentage
from eval.metrics.noninferiority import Verdict
from eval.metrics.rows import Row
from eval.metrics.statistics import Interval, MeanDifference
from eval.records.protocol import NO_ASSETS
from eval.records.run_folders import SweepFolder
from sim_envs.suite import Assets


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuccessVerdict:
    """The verdict on a cell's success, compared with its reference."""

    verdict: Verdict
    # Whether every episode had its queries and its end in the same control steps, and its motion the same
    # measures; with another overlap also only where motion is recorded.
    identical: bool = False
    only_reference: int = 0  # episodes that the reference alone solved; `only_cell` likewise
    only_cell: int = 0
    difference: float | None = None  # of success rates, percentage points
    ci95: Interval | None = None
    episodes_needed: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeVerdict:
    """The verdict on a time of a cell."""

    verdict: Verdict
    ratio: float | None = None
    ci95: Interval | None = None
    seconds: MeanDifference | None = None  # of restricted mean time alone


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell(Row):
    """A row of a sweep: the options of a cell, its results, and its verdicts. Older records lack some."""

    run: str  # the run's name
    options: Mapping[str, Any]  # by axis
    # `pc_held` in older records.
    pc_idle: Annotated[float | None, Field(validation_alias=AliasChoices("pc_idle", "pc_held"))] = None
    device: str | None = None  # of the clock's profile
    texts_per_simulated_s: float | None = None  # delivered texts
    # Language task to its headline measure, percent.
    pc_right_on_delivery: Mapping[str, float | None] = dataclasses.field(default_factory=dict)
    # A character per episode, in the order of keys: 1 if it was solved, 0 if not, - after an error.
    outcomes: str = ""
    current: Mapping[str, Percentage] = dataclasses.field(default_factory=dict)  # currency of texts
    time_to_success_ci95: Interval | None = None
    against: str | None = None  # the run that it is compared with; None if with none, as what follows
    success: SuccessVerdict | None = None
    time: TimeVerdict | None = None
    restricted: TimeVerdict | None = None
    motion_differences: Mapping[str, MeanDifference] = dataclasses.field(default_factory=dict)
    current_differences: Mapping[str, MeanDifference] = dataclasses.field(default_factory=dict)

    @property
    def mode(self) -> str:
        """Its mode."""
        return str(self.options["mode"])


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """The fields of a sweep's configuration that are read from its record."""

    suites: Sequence[str]
    init_ids: Sequence[int] = ()
    margin: float
    time_margin: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepProvenance:
    """Provenance of a sweep, from the manifest of its first run."""

    command: str | None = None
    policy: str
    weights_sha256: str | None = None
    assets: Assets = NO_ASSETS
    git: Mapping[str, Any] | None = None
    versions: Mapping[str, Any] | None = None
    hardware: Mapping[str, Any] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepRecord:
    """A finished sweep."""

    status: str
    config: SweepOptions
    varied: Sequence[str]  # the axes in which cells differ
    cells: Sequence[Cell]
    provenance: SweepProvenance
    finished: str | None = None


def read_sweep(folder: SweepFolder) -> SweepRecord:
    """The record of a complete sweep; one that is missing, incomplete or damaged is a UsageError."""
    return check(SweepRecord, folder.read_finished(), source=str(folder.record_path))


CELL_FIELDS = (
    *("run", "options", "device", "n_episodes", "n_success", "n_errors", "pc_success", "pc_success_ci95"),
    *("time_to_success_s", "restricted_mean_s", "restricted_mean_ci95", "motion", "mean_steps", "query_hz"),
    *("pc_idle", "charged_ms", "control_steps", "staleness_ms", "tokens_per_simulated_s"),
    *("texts_per_simulated_s", "prompt_age_steps", "pc_right_on_delivery", "outcomes", "current"),
    *("time_to_success_ci95", "against", "success", "time", "restricted"),
    *("motion_differences", "current_differences"),
)
"""The fields of a cell in `sweep.json`, for `fields_of`."""
