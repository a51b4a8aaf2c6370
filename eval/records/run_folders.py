"""Creates the folders of new runs and sweeps, finds those of unfinished ones, and describes attempts."""

import contextlib
import dataclasses
import datetime as dt
import itertools
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from configs.errors import check
from configs.load import agrees, load
from configs.paths import locked, read_json_object, shown
from configs.schema import EpisodesConfig, PolicyConfig, Preset, RunConfig, SweepConfig, VariantsConfig
from contracts.episode import Outcome
from contracts.errors import UsageError
from contracts.redaction import MASK, redact, strip_url
from eval.records.json_files import write_json
from eval.records.reader import RunRecords, read_episodes, warn_skipped
from eval.records.schema import RunFolder, current_options

ConfigT = TypeVar("ConfigT", bound=EpisodesConfig)

_PROVENANCE = ("command", "git", "versions", "hardware")
"""Fields of the manifest that are recorded for each attempt, beside its start and end."""

_SWEEP_FILE = "sweep.json"
_STATES = {"running": "the sweep is not complete", "errors": "the sweep has episodes that were errors"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A configuration, and the folder of the records of its episodes.

    The folder of a new run is reserved by `locked_run`, possibly under another name, and appears when the run
    begins.
    """

    config: RunConfig
    folder: RunFolder
    resumed: bool = False  # whether it may have earlier records
    names_mode: bool = True  # whether the name of a new folder has the mode

    def with_options(self, options: Mapping[str, Any]) -> Self:
        """The run with other values of some options."""
        return dataclasses.replace(self, config=self.config.model_copy(update=options))


def policy_name(given: str) -> str:
    """A policy's name in records and tables: from its YAML file, class or server address; else as given."""
    if given.endswith((".yaml", ".yml")):
        return load(PolicyConfig, given).name
    scheme, _, address = strip_url(given).partition("://")
    if given.startswith("lerobot:"):
        address = given.partition(":")[2]
    if scheme in ("ws", "wss") or given.startswith("lerobot:"):
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", address).strip("-")
    name = given.rpartition(":")[2]
    return name if re.fullmatch(r"[\w.-]+", name) and not address else given


def new_run(output_dir: Path, config: RunConfig, *, names_mode: bool = True) -> Run:
    """A new run with an unused folder name from time, policy, perturbations and, with `names_mode`, mode."""
    now = dt.datetime.now().astimezone()
    policy = policy_name(config.policy)
    policy = re.sub(r"[^\w.-]+", "-", Path(policy).stem if "/" in policy else policy).strip("-")
    perturbed = "".join(f"-{part}".replace(":", "") for part in config.perturb)
    name = f"{now:%Y%m%d-%H%M%S}-{policy}{f'-{config.mode}' if names_mode else ''}{perturbed}"
    taken = {path.name for path in output_dir.iterdir()} if output_dir.is_dir() else set()
    names = [name, *(f"{name}-{number}" for number in range(2, len(taken) + 2))]
    folders = (RunFolder(output_dir / each) for each in names)
    return Run(
        config=config,
        folder=next(each for each in folders if taken.isdisjoint((each.run_id, _draft(each).run_id))),
        names_mode=names_mode,
    )


@contextlib.contextmanager
def locked_run(run: Run) -> Iterator[Run]:
    """Lock the run's folder for this process, or reserve that of a new run.

    A resumed run that another process has locked is a UsageError.
    """
    if run.resumed:
        with locked(run.folder.path):
            yield run
        return
    own = _reserved(run)
    draft = _draft(own.folder)
    try:
        with locked(draft.path):
            yield own
    finally:
        if not draft.manifest_path.exists():
            shutil.rmtree(draft.path, ignore_errors=True)


def begin(runs: Sequence[Run], described: Sequence[Mapping[str, Any]]) -> None:
    """Begin an attempt at locked runs: write their manifests. The folders of new runs appear with them.

    A kill leaves either nothing visible or an evaluation that can be resumed: once the first folder appears,
    the others are complete under hidden names. Files that a killed attempt was writing are removed.
    """
    for left in (left for run in runs if run.resumed for left in run.folder.path.rglob("*.partial")):
        left.unlink()
    variants, now = [run.folder.run_id for run in runs], _now()
    for run, description in zip(runs, described, strict=True):
        attempt = {**{name: description.get(name) for name in _PROVENANCE}, "started": now, "finished": None}
        attempt["batch_size"] = run.config.batch_size
        attempts = [*(past_attempts(run.folder) if run.resumed else ()), attempt]
        (run.folder if run.resumed else _draft(run.folder)).write_manifest(
            {
                "run_id": run.folder.run_id,
                **description,
                "command": attempts[0].get("command"),  # the one that began the run
                "variants": variants,
                "started": attempts[0]["started"],
                "status": "running",
                "finished": None,
                "attempts": attempts,
            }
        )
    for run in runs:
        if not run.resumed:
            _draft(run.folder).path.rename(run.folder.path)


def _draft(folder: RunFolder) -> RunFolder:
    """The hidden folder of a new run until its manifest is written."""
    return RunFolder(folder.path.with_name(f".{folder.run_id}.partial"))


def _reserved(run: Run) -> Run:
    """Reserve a folder name by creating its draft, which is atomic between processes."""
    output_dir = run.folder.path.parent
    output_dir.mkdir(parents=True, exist_ok=True)
    while True:
        draft = _draft(run.folder).path
        with contextlib.suppress(FileExistsError):
            draft.mkdir()
            if not os.path.lexists(run.folder.path):
                return run
            draft.rmdir()  # another process has begun under this name
        run = new_run(output_dir, run.config, names_mode=run.names_mode)


_PERTURBED = frozenset({"perturb", "perturb_each", "severities"})


def find_unfinished(output_dir: Path, given: Mapping[str, Any]) -> tuple[Run, ...]:
    """The variants of the newest unfinished evaluation in `output_dir` with the given options.

    An evaluation with an error is unfinished. The given modes may be a subset of its modes:
    `--mode unified --resume` resumes the demo. A class with `infer_batch`, which may have run out of memory,
    can go on with another batch size. If there is none, a UsageError says so.
    """
    options = check(VariantsConfig, given, source="the command line")
    modes = options.modes if given.keys() & {"mode", "against"} else ()
    of_variants = {"mode", "against", *_PERTURBED}
    others = redact({option: value for option, value in given.items() if option not in of_variants})
    perturbed = set(options.perturbed) if given.keys() & _PERTURBED else None
    size = {option: value for option, value in given.items() if option == "batch_size"}
    finished = []
    for recorded in _evaluations_newest_first(output_dir):
        batches = "padded_batches" in recorded[0].folder.read_manifest().get("policy_inputs", {})
        variants = tuple(each.with_options(size) for each in recorded) if batches else recorded
        configs = [variant.config for variant in variants]
        known = set(modes) <= {config.mode for config in configs}
        known &= perturbed in (None, {config.perturb for config in configs})
        if not known or not agrees(VariantsConfig.of(configs), others):
            continue
        try:
            unfinished = any(
                RunRecords(variant.folder).identity.status != "complete"
                or not variant.folder.results_path.exists()
                or any(each.outcome is Outcome.ERROR for each in read_episodes(variant.folder).values())
                for variant in variants
            )
        except UsageError as error:
            warn_skipped(variants[0].folder.path, error)
            continue
        if unfinished:
            secrets = _secrets_again(configs[0], given, variants[0].folder.run_id)
            return tuple(each.with_options(secrets) for each in variants)
        finished.append(
            f"{variants[0].folder.run_id} is complete and without errors{_how_to_report(variants[0].folder)}"
        )
    raise _nothing_to_resume("run", output_dir, finished[0] if finished else "")


def _how_to_report(folder: "RunFolder | SweepFolder") -> str:
    """How to write the page of a complete run or sweep, which a kill may have left out."""
    return f" (its page: oxygen-eval report {shown(folder.path)})"


def _nothing_to_resume(what: str, output_dir: Path, complete: str) -> UsageError:
    why = complete or f"no unfinished {what} in {shown(output_dir)} has these options"
    return UsageError(f"nothing to resume: {why}; start another without --resume")


def _secrets(given: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The options that are not recorded as they are."""
    return {option: value for option, value in given if redact({option: value}) != {option: value}}


def _secrets_again(recorded: Preset, given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The options of a run or sweep that are not recorded as they are; without one of them, a UsageError."""
    secrets = _secrets(given.items())
    for option, value in recorded.model_dump().items():
        if option not in secrets and MASK in str(value):
            raise UsageError(
                f"{name} needs what is not recorded, a secret in its {option} ({value}); give the option "
                "again, as when it was started"
            )
    return secrets


def _evaluations_newest_first(output_dir: Path) -> list[tuple[Run, ...]]:
    """All evaluations with complete sets of variants, to be resumed, the reference variant first."""
    paths = sorted(path.parent for path in output_dir.glob("[!.]*/manifest.json"))
    runs = {path.name: run for path in paths if (run := _recorded(RunFolder(path)))}
    started: dict[tuple[str, ...], str] = {}
    for name, run in list(runs.items()):
        manifest = run.folder.read_manifest()
        if "started" not in manifest:
            warn_skipped(run.folder.path, UsageError(f"{run.folder.manifest_path}: lacks 'started'"))
            continue
        variants = manifest.get("variants", ())
        # A renamed folder is not among its manifest's variants any more: it is a separate evaluation.
        names = tuple(variants) if name in variants else (name,)
        for missing in set(names) - runs.keys():
            if left := _left_by_a_kill(RunFolder(output_dir / missing)):
                runs[missing] = left
        if runs.keys() >= set(names):
            started[names] = manifest["started"]
    newest_first = sorted(started, key=lambda names: (started[names], names[0]), reverse=True)
    return [tuple(runs[name] for name in names) for names in newest_first]


def _left_by_a_kill(folder: RunFolder) -> Run | None:
    """A variant whose folder did not appear before a kill, and appears now; None if there is none."""
    draft = _draft(folder)
    with contextlib.suppress(OSError, UsageError):
        if draft.manifest_path.exists():
            with locked(draft.path):  # its process may still run
                draft.path.rename(folder.path)
            return _recorded(folder)
    return None


def _recorded(folder: RunFolder) -> Run | None:
    """The run in a folder; None for imported results, and, reported on stderr, if it cannot be read."""
    try:
        manifest = folder.read_manifest()
        if "imported" in manifest:
            return None
        recorded = manifest["config"]
        config = check(RunConfig, recorded, source=str(folder.manifest_path))
        return Run(config=config, folder=folder, resumed=True)
    except UsageError as error:
        warn_skipped(folder.path, error)
        return None


def end_attempt(folder: RunFolder, status: str) -> None:
    """Record in a run's manifest that the attempt at it has ended, and the run's status."""
    manifest, finished = folder.read_manifest(), _now()
    *before, last = manifest["attempts"]
    attempts = [*before, {**last, "finished": finished}]
    folder.write_manifest({**manifest, "status": status, "finished": finished, "attempts": attempts})


def _now() -> str:
    """The time with UTC offset."""
    return dt.datetime.now().astimezone().isoformat(timespec="seconds")


def past_attempts(folder: RunFolder) -> list[Mapping[str, Any]]:
    """The attempts at a run that is resumed. A killed one ended with its last record."""
    *before, last = folder.read_manifest()["attempts"]
    finished = last["finished"] or last["started"]
    if last["finished"] is None and folder.episodes_path.exists():
        written = dt.datetime.fromtimestamp(folder.episodes_path.stat().st_mtime).astimezone()
        finished = max(dt.datetime.fromisoformat(finished), written).isoformat(timespec="seconds")
    return [*before, {**last, "finished": finished}]


@dataclasses.dataclass(frozen=True)
class SweepFolder:
    """The folder of a sweep: `sweep.json`, its plots, and the folders of its runs."""

    path: Path  # the folder
    file: str = _SWEEP_FILE  # the name of the record in it
    # Options with secrets, which are not recorded.
    secrets: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)

    @classmethod
    def at(cls, path: Path) -> Self:
        """The sweep in a folder, or the one whose record is the file at `path`."""
        return cls(path.parent, path.name) if path.suffix == ".json" else cls(path)

    @property
    def record_path(self) -> Path:
        """The configuration and, once complete, the results."""
        return self.path / self.file

    def read(self) -> dict[str, Any]:
        """The record as it was last written; one that is missing or not a sweep's is a UsageError."""
        if not self.record_path.is_file():
            raise UsageError(f"{self.path} is not a sweep: it has no {self.file}")
        record = read_json_object(self.record_path)
        if not {"config", "status"} <= record.keys():
            raise UsageError(f"{self.record_path}: not the record of a sweep")
        return record

    def read_finished(self) -> dict[str, Any]:
        """The record of a complete sweep; a missing or incomplete one is a UsageError."""
        record = self.read()
        if record["status"] != "complete":
            raise UsageError(
                f"{self.record_path}: {_STATES.get(record['status'], 'unknown')}; complete it with --resume"
            )
        return record

    def config(self) -> SweepConfig:
        """The configuration; a record that cannot be read, or of another version, is a UsageError."""
        recorded = check(SweepConfig, current_options(self.read()["config"]), source=str(self.record_path))
        return recorded.model_copy(update=self.secrets)

    def write(self, config: SweepConfig, *, status: str, **results: Any) -> None:
        """Replace the record, whole or not at all."""
        content = {"sweep": self.path.name, "status": status, "config": config.model_dump(mode="json")}
        write_json(self.record_path, {**content, **results})

    def runs(self) -> tuple[Run, ...]:
        """The runs of the cells, in their order; none if none has begun."""
        runs = next(iter(_evaluations_newest_first(self.path)), ())
        return tuple(run.with_options(self.secrets) for run in runs)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for this process; that of another process is a UsageError."""
        with locked(self.path):
            for left in self.path.glob("*.partial"):  # of a killed process
                if left.is_file():
                    left.unlink()
                elif not self.begun():
                    shutil.rmtree(left)
            yield

    def begun(self) -> list[RunFolder]:
        """The folders in which a run has begun, readable or not."""
        return [RunFolder(path.parent) for path in self.path.glob("[!.]*/manifest.json")]

    def drop_unless_begun(self) -> None:
        """Remove the folder, unless a run has begun in it."""
        if not self.begun():
            shutil.rmtree(self.path)


def new_sweep(output_dir: Path, config: SweepConfig) -> SweepFolder:
    """A new folder for a sweep, with its configuration."""
    name = f"{dt.datetime.now().astimezone():%Y%m%d-%H%M%S}-sweep"
    for number in itertools.count(1):
        folder = SweepFolder(output_dir / (name if number == 1 else f"{name}-{number}"))
        with contextlib.suppress(FileExistsError):
            folder.path.mkdir(parents=True)
            break
    folder.write(config, status="running")
    return dataclasses.replace(folder, secrets=_secrets(config))


def find_unfinished_sweep(output_dir: Path, given: Mapping[str, Any]) -> SweepFolder:
    """The newest unfinished sweep in a folder that agrees with every option given; else a UsageError."""
    complete = None
    for path in sorted(output_dir.glob(f"*/{_SWEEP_FILE}"), reverse=True):
        folder = SweepFolder(path.parent)
        try:
            status, config = folder.read()["status"], folder.config()
        except UsageError as error:
            warn_skipped(folder.path, error)
            continue
        if not agrees(config, redact(given)):
            continue
        if status != "complete":
            return dataclasses.replace(folder, secrets=_secrets_again(config, given, folder.path.name))
        complete = complete or f"{folder.path.name} is complete{_how_to_report(folder)}"
    raise _nothing_to_resume("sweep", output_dir, complete or "")
