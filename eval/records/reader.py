"""Reads recorded runs. A file that cannot be read is a one-line error that names it."""

import dataclasses
import functools
import reprlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from configs.errors import check
from configs.paths import is_locked
from configs.schema import ClockOption, PerturbOption, RunConfig, TextSourceOption
from contracts.clock import PAUSED
from contracts.episode import EpisodeKey, EpisodeResult
from contracts.errors import UsageError
from contracts.mode import BUDGETED
from contracts.perturbation import UNPERTURBED
from contracts.query import QueryRecord
from eval.records.protocol import PROTOCOL_OPTIONS, name_protocol, protocol_hash, suite_hash, without
from eval.records.query_logs import read_queries
from eval.records.schema import RunFolder
from oxygen.training.run_folder import RUN_FILE
from sim_envs.suite import Assets


@dataclasses.dataclass(frozen=True, kw_only=True)
class Imported:
    """Where the results of an imported run are from."""

    runner: str  # the program that wrote them
    names_states: bool  # whether the initial states of its episodes are known


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """The fields of a manifest that decide which runs are comparable."""

    run_id: str
    policy: str  # its name
    mode: str
    assets: Assets
    # Hash of everything about the world that affects scores, computed from the recorded protocol. Runs with
    # different hashes are never ranked together.
    protocol_hash: str
    # The same for each suite alone, so that runs of different suites share tables.
    suite_hashes: Mapping[str, str]
    # Likewise without `feedback`; runs with different ones of a suite are never compared in it.
    world_hashes: Mapping[str, str]
    # Likewise without `perturb`: a perturbed run is compared with its control.
    control_hashes: Mapping[str, str]
    status: str  # `complete`, or why it is not
    n_planned: Annotated[int, Field(ge=0, lt=2**63)]  # number of planned episodes
    # Name of the protocol, such as `openpi`, with a star if something differs from it; empty if it has none.
    protocol_name: str = ""
    # What differs from the protocol of that name, or from the suites' own, in words; but clock and motion.
    protocol_changes: Sequence[str] = ()
    given: str | None = None  # value of `--policy`
    policy_kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    variants: Sequence[str] = ()  # run ids of all variants of the evaluation, this run's included
    # The policy's inputs: prompt, cameras.
    policy_inputs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # SHA-256 of the weights; None if there are none, they are random, or not a file in our format.
    weights_sha256: str | None = None
    random_weights: bool = False  # whether the weights are random
    dtype: str | None = None  # data type of the policy's computation; None for its default
    # Data type of the weights that decode texts; None for that of the computation, and in mode `actions`.
    decode_weights: str | None = None
    # SHA-256 and mask of the adapter of its texts; None without one, and in mode `actions`.
    adapter: Mapping[str, str] | None = None
    # Queries between text requests; None if the preset decides, or in mode `actions`.
    text_every: int | None = None
    # In modes `unified` and `interleaved`, tokens decoded per query for each running text; with a deadline,
    # the size of the compiled batch. None in other modes.
    tokens_per_frame: int | None = None
    # In mode `unified`, latency budget of a query, milliseconds; None without one.
    deadline_ms: float | None = None
    clock: ClockOption = PAUSED
    while_waiting: str = "continue"  # value of `--while-waiting`
    overlap: str = "skip"  # value of `--overlap`
    # Origin of the texts in the prompt; None for a policy that reads none.
    feedback: TextSourceOption | None = None
    perturb: PerturbOption = UNPERTURBED  # changes of its episodes; none for a control
    clock_device: str | None = None  # device of the clock's profile; None on other clocks
    # Values of the options that replace parts of the published protocol, and of the wordings and the seeds.
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Each suite's step limit in simulated seconds; empty if only hashes are recorded.
    limits_s: Mapping[str, float] = dataclasses.field(default_factory=dict)
    margin: float = 5.0  # declared non-inferiority margin of the success rate, percentage points
    time_margin: float = 10.0  # declared non-inferiority margin of the time to success, percent

    imported: Imported | None = None  # None for a run that was played here

    @property
    def names_states(self) -> bool:
        """Whether the initial states of its episodes are known, so that they can be paired."""
        return self.imported is None or self.imported.names_states

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON types, clocks and text sources as they are spelled."""
        fields: dict[str, Any] = TypeAdapter(RunIdentity).dump_python(self, mode="json")
        return fields

    @property
    def policy_and_schedule(self) -> dict[str, Any]:
        """The policy and its schedule, which a run and its control share."""
        of_weights = {} if self.weights_sha256 else {"policy": self.given or self.policy}
        return {**of_weights, **{name: getattr(self, name) for name in _POLICY_AND_SCHEDULE}}

    @property
    def weights(self) -> str | None:
        """A short label of the weights; None if they are unknown."""
        parts = []
        if self.random_weights:
            parts.append("random weights")
        elif self.weights_sha256 is not None:
            parts.append(f"weights {self.weights_sha256[:8]}")
        if self.adapter is not None:
            parts.append(f"adapter {self.adapter['sha256'][:8]} ({self.adapter['mask']} mask)")
        if self.decode_weights is not None:
            parts.append(f"texts in {self.decode_weights}")
        return ", ".join(parts) or None


_POLICY_AND_SCHEDULE = (
    *("policy_kwargs", "weights_sha256", "random_weights", "dtype", "decode_weights", "adapter"),
    *("mode", "text_every", "tokens_per_frame", "deadline_ms", "feedback"),
)

_PARTS_OUTSIDE = {
    "suite_hashes": (),
    "world_hashes": ("feedback",),
    "control_hashes": ("feedback", "perturb"),
}
"""Hashes of each suite's protocol, and parts that are not in them."""

OVERRIDES = ("wordings", "seeds", "init_ids", "motion", *PROTOCOL_OPTIONS)


def read_identity(folder: RunFolder) -> RunIdentity:
    """The run's identity from its manifest; a missing or damaged one is a UsageError."""
    manifest = folder.read_manifest()
    if manifest.get("status") == "running" and not is_locked(folder.path):
        manifest = {**manifest, "status": "stopped"}  # killed
    return identity_of(manifest, str(folder.manifest_path))


def identity_of(manifest: Mapping[str, Any], source: str) -> RunIdentity:
    """The identity of a run in a manifest; a UsageError that names its source if that is damaged."""
    config, protocol, mode = manifest.get("config", {}), manifest.get("protocol"), manifest.get("mode")
    names = [field.name for field in dataclasses.fields(RunIdentity)]
    identity = {name: manifest[name] for name in names if name in manifest}
    known = dict.fromkeys(manifest.get("suite_hashes") or [""], manifest.get("protocol_hash"))
    identity["world_hashes"] = identity["control_hashes"] = known
    identity["random_weights"] = identity.get("random_weights") or bool(config.get("random_weights"))
    identity["dtype"] = config.get("dtype")
    identity |= {"given": config.get("policy"), "policy_kwargs": config.get("policy_kwargs") or {}}
    options = ("margin", "time_margin", "clock", "while_waiting", "overlap", "perturb")
    identity |= {name: config[name] for name in options if name in config}
    fields = RunConfig.model_fields
    identity["overrides"] = {name: config.get(name, fields[name].default) for name in OVERRIDES}
    if mode == "actions":
        identity["adapter"] = None
    else:
        identity |= {option: config.get(option) for option in ("text_every", "decode_weights")}
    if mode in BUDGETED:
        identity |= {option: config.get(option) for option in ("tokens_per_frame", "deadline_ms")}
    try:
        identity["protocol_name"], identity["protocol_changes"] = name_protocol(config, protocol or {})
        if protocol:  # else only hashes are recorded
            profiles = [world.get("clock", {}).get("profile", {}) for world in protocol.values()]
            devices = (profile["device"] for profile in profiles if "device" in profile)
            identity["clock_device"] = next(devices, None)
            identity["protocol_hash"] = protocol_hash(protocol)
            identity["feedback"] = next((world.get("feedback") for world in protocol.values()), None)
            env_seeds = (world["env_seed"] for world in protocol.values() if "env_seed" in world)
            identity["overrides"]["env_seed"] = next(env_seeds, None)
            for hashes, parts in _PARTS_OUTSIDE.items():
                left = without(parts, protocol)
                identity[hashes] = {suite: suite_hash(world) for suite, world in left.items()}
            identity["limits_s"] = {
                suite: world["suite"]["max_steps"] / world["suite"]["control_hz"]
                for suite, world in protocol.items()
                if "suite" in world
            }
    except (AttributeError, LookupError, TypeError) as error:
        raise UsageError(f"{source}: damaged protocol: {error!r}") from None
    return check(RunIdentity, identity, source=source)


def warn_skipped(folder: Path, why: UsageError | str) -> None:
    """Report on stderr that a folder is skipped, and why."""
    sys.stderr.write(f"skipped {folder}: {why}\n")


def read_episodes(folder: RunFolder) -> dict[EpisodeKey, EpisodeResult]:
    """The run's episodes in the order they were first recorded; an incomplete last line is skipped.

    A line that is not an episode, or one that the run did not plan, is a UsageError.
    """
    episodes = folder.episodes()
    if not folder.manifest_path.exists():
        return episodes
    manifest = folder.read_manifest()
    config, trials = manifest.get("config", {}), manifest.get("config", {}).get("num_trials_per_task")
    planned = {
        "suite": list(manifest.get("protocol") or {}),
        "task_id": config.get("task_ids"),
        "init_id": config.get("init_ids") or (None if trials is None else range(trials)),
        "seed": config.get("seeds"),
    }
    for key in episodes:
        for part, allowed in planned.items():
            if allowed and getattr(key, part) not in allowed:
                others = reprlib.repr(allowed)
                raise UsageError(f"{folder.episodes_path} has episode {key}, and the run has {part} {others}")
    return episodes


@dataclasses.dataclass(frozen=True)
class RunRecords:
    """The records of a run: its episodes and query logs are read once, when they are first asked for.

    All raise a UsageError for a record that cannot be read.
    """

    folder: RunFolder
    _queries: dict[EpisodeKey, Sequence[QueryRecord]] = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def identity(self) -> RunIdentity:
        """The identity, with the status that the run has now; one that lacks episodes is not complete."""
        found = read_identity(self.folder)
        lacks = found.status == "complete" and len(self.episodes) < found.n_planned
        return dataclasses.replace(found, status="stopped") if lacks else found

    @functools.cached_property
    def episodes(self) -> Mapping[EpisodeKey, EpisodeResult]:
        """The episodes in the order they were first recorded."""
        return read_episodes(self.folder)

    def queries(self, key: EpisodeKey) -> Sequence[QueryRecord]:
        """The queries of an episode in order; none without a query log."""
        if key not in self._queries:
            self._queries[key] = read_queries(self.folder, key)
        return self._queries[key]


def require_runs(paths: Sequence[Path]) -> list[RunRecords]:
    """`find_runs`, where none is a UsageError, too."""
    if found := find_runs(paths):
        return found
    raise UsageError(
        f"no run in {', '.join(map(str, paths))}; make one with `oxygen-eval run`, or give another folder"
    )


def find_runs(paths: Sequence[Path]) -> list[RunRecords]:
    """All runs in or below the paths, without duplicates.

    Other folders are skipped; a path that is not a folder is a UsageError. Rollouts of a training are found
    only if its folder is one of the paths.
    """
    found: dict[Path, RunRecords] = {}
    for path in paths:
        if not path.is_dir():
            raise UsageError(f"no folder {str(path)!r}; give a run's folder, or one that holds runs")
        for folder in _runs_in(path, seen=set()):
            found.setdefault(folder.resolve(), RunRecords(RunFolder(folder)))
    return list(found.values())


def _runs_in(path: Path, seen: set[Path]) -> Iterator[Path]:
    """The path itself if it is a run, else the runs below it. Follows cyclic links once."""
    run = RunFolder(path)
    if any(file.exists() for file in (run.manifest_path, run.episodes_path, run.results_path)):
        yield path
    elif path.resolve() not in seen:
        seen.add(path.resolve())
        try:
            inside = sorted(
                each for each in path.iterdir() if each.is_dir() and not each.name.startswith(".")
            )
        except OSError as error:
            warn_skipped(path, f"cannot read it: {error.strerror}")
            return
        for folder in inside:
            if not (folder / RUN_FILE).is_file():
                yield from _runs_in(folder, seen)
