"""The runs of a report: read once, named, coloured, and described in words."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from configs.assets import badged
from configs.cli import ranges
from contracts.clock import PAUSED
from contracts.episode import EpisodeKey, EpisodeResult, Outcome, solved
from contracts.errors import UsageError, pluralize
from contracts.motion import Static
from eval.records.protocol import format_inputs
from eval.records.reader import RunIdentity, RunRecords
from eval.records.schema import RunFolder
from eval.report.figures import colours_of
from eval.report.labels import labels_of
from eval.report.table import format_clock_of

_STILL = "simulated time stands still while the policy computes"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportedRun:
    """A run of a report."""

    records: RunRecords
    identity: RunIdentity
    manifest: Mapping[str, Any]  # its whole manifest
    label: str = ""  # its name within the report: what distinguishes it from the others
    colour: str = ""  # its colour in plots and timelines

    @property
    def folder(self) -> RunFolder:
        """Its folder."""
        return self.records.folder

    @property
    def episodes(self) -> Mapping[EpisodeKey, EpisodeResult]:
        """Its episodes."""
        return self.records.episodes

    @property
    def note(self) -> str | None:
        """Why the run is not complete; None if it is."""
        notes = []
        if self.identity.status != "complete":
            planned = pluralize(self.identity.n_planned, "planned episode")
            notes.append(f"{self.identity.status}: {len(self.episodes)} of {planned} are recorded")
        if errors := sum(each.outcome is Outcome.ERROR for each in self.episodes.values()):
            are = "is" if errors == 1 else "are"
            notes.append(f"{pluralize(errors, 'episode')} ended in an error and {are} not graded")
        return "; ".join(notes) or None


def read_runs(records: Sequence[RunRecords]) -> tuple[list[ReportedRun], dict[str, str]]:
    """The runs that can be read, and why others cannot, by folder.

    Raises:
        UsageError: No run can be read.
    """
    runs: list[ReportedRun] = []
    refused: dict[str, str] = {}
    for run in records:
        folder = run.folder
        try:
            identity, _, manifest = run.identity, run.episodes, folder.read_manifest()
        except UsageError as error:
            refused[str(folder.path)] = str(error)
        else:
            runs.append(ReportedRun(records=run, identity=identity, manifest=manifest))
    if not runs:
        raise UsageError("; ".join(refused.values()))
    labels = labels_of([run.identity for run in runs])
    if len({run.identity.assets.name for run in runs}) > 1:  # else the page's title has the mark of them all
        labels = [badged(label, run.identity.assets.name) for label, run in zip(labels, runs, strict=True)]
    named = zip(runs, labels, colours_of(labels), strict=True)
    return [dataclasses.replace(run, label=label, colour=colour) for run, label, colour in named], refused


def merit(episode: EpisodeResult) -> tuple[float, ...]:
    """Orders graded episodes from the worst to the best: by success, progress, texts, and how short it is."""
    return solved(episode), episode.progress or 0.0, episode.requests.finished, -episode.steps


def facts(run: ReportedRun) -> dict[str, str]:
    """Configuration and provenance of a run, by heading."""
    identity, manifest, keys = run.identity, run.manifest, run.episodes.keys()
    tasks = pluralize(len({(key.suite, key.task_id) for key in keys}), "task")
    states, seeds = (", ".join(ranges(getattr(key, part) for key in keys)) for part in ("init_id", "seed"))
    episodes = f"{len(keys)}: {tasks}, initial states {states}, seed {seeds}" if keys else "none yet"
    return {
        "Policy": ", ".join(part for part in (identity.policy, identity.weights, identity.dtype) if part),
        **({"Mode": identity.mode} if identity.mode != "actions" else {}),
        **({"Texts in the prompt": str(identity.feedback)} if identity.feedback else {}),
        **{
            f"Protocol of {suite}": _format_suite(world)
            for suite, world in manifest.get("protocol", {}).items()
        },
        "Episodes": episodes,
        "Clock": f"{identity.clock}: {_STILL if identity.clock == PAUSED else format_clock_of(identity)}",
        **({"Assets": badged(str(identity.assets), identity.assets.name)} if identity.assets.digest else {}),
        "Policy's inputs": format_inputs(identity.policy_inputs),
        "Machine": format_machine(manifest.get("hardware", {})),
        "Code": format_code(manifest),
        "Started": str(manifest.get("started", "not recorded")),
        "Command": str(manifest.get("command", "not recorded")),
        "Records": str(run.folder.path),
    }


def _format_suite(world: Mapping[str, Any]) -> str:
    if "suite" not in world:
        return "as stated when it was imported"
    suite = world["suite"]
    motion = suite.get("motion")
    parts = [
        f"at most {pluralize(suite['max_steps'], 'control step')} at {suite['control_hz']:g} Hz",
        f"{pluralize(suite['settle_steps'], 'settle step')} before",
        f"a query every {pluralize(suite['replan_steps'], 'control step')}",
        f"cameras of {suite['camera_size']} pixels",
        *([] if motion in (None, str(Static())) else [f"motion {motion}"]),
        *(f"{name}: {meaning}" for name, meaning in world.get("perturb", {}).items() if ":" in name),
        *([f"environment's seed {world['env_seed']}"] if "env_seed" in world else []),
        *([f"{world['initial_states']} initial states"] if "initial_states" in world else []),
    ]
    return "; ".join(parts)


def format_machine(hardware: Mapping[str, Any]) -> str:
    """Processor, cores and accelerators of a machine, as recorded."""
    if not hardware:
        return "not recorded"
    devices = ", ".join(hardware.get("accelerators", ()))
    cores = pluralize(hardware["cores"], "core") if hardware.get("cores") else ""
    return ", ".join(part for part in (hardware.get("processor"), cores, devices) if part)


def format_code(manifest: Mapping[str, Any]) -> str:
    """Commit and versions, as recorded."""
    git, versions = manifest.get("git") or {}, manifest.get("versions") or {}
    commit = git.get("commit")
    code = f"commit {commit[:12]}{' with changes' if git.get('dirty') else ''}" if commit else "no commit"
    return ", ".join([code, *(f"{name} {version}" for name, version in versions.items() if version)])
