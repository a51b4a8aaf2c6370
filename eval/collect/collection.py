"""Collects demonstrations into a dataset; resumes an interrupted collection."""

import datetime as dt
import functools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from configs.console import TextConsole
from configs.errors import check
from configs.exits import DeferredSignals
from configs.paths import locked, read_json_object, shown
from configs.schema import RunConfig
from configs.training import CollectConfig
from contracts.episode import EpisodeKey, Outcome
from contracts.errors import UsageError, pluralize
from contracts.hashing import hash_of
from contracts.interface import Interface
from contracts.motion import Static
from contracts.text_source import TrueText
from eval.collect.dataset import assemble, write_contact_sheet
from eval.collect.episode import DemonstrationRecorder, EpisodeReport
from eval.collect.store import DemonstrationKey, EpisodeStore, StoredEpisode
from eval.policies.base import LoadedPolicy
from eval.policies.opening import open_policies
from eval.policies.resolved import ResolvedPolicy, resolve_policy
from eval.policies.scripted import open_scripted
from eval.records import provenance
from eval.records.json_files import write_json
from eval.records.protocol import describe_suite
from eval.records.run_folders import Run
from eval.records.schema import RunFolder
from eval.rollout.episode import EpisodeJob, LoadedVariant
from eval.rollout.executors.executor import SERIAL, Processes
from eval.rollout.plan import EpisodePlan, make_plan
from eval.rollout.prepare import check_feedback, check_playable
from oxygen.model.compile_cache import use_compile_cache
from oxygen.presets.policies import weights_sha256
from oxygen.training import layout
from oxygen.training.demonstrations import Demonstrations
from videos.mp4 import REMEDY, encoder_problem

_MAY_DIFFER = {
    *("suites", "task_ids", "only_available", "per_category", "num_trials_per_task", "init_ids", "seeds"),
    *("assets", "environment", "expert_noise"),
}
"""Options that select episodes, so that a later command may change them."""

INCOMPLETE = 1
"""Exit code when an episode was an error, or none was kept."""

_LOG_INTERVAL_S = 60.0


def collect_demonstrations(config: CollectConfig, dataset: Path, *, workers: int) -> int:
    """Collect demonstrations into a folder; returns 0, or 1 if an episode was an error or none was kept.

    What cannot be collected, or not into this folder, is refused before anything is written. After Ctrl-C,
    finished episodes are on disk.
    """
    run, learner = _run_config(config), _learner_config(config)
    resolved, learning = resolve_policy(run), resolve_policy(learner) if learner else None
    kind, player = resolved.policy.kind, learning or resolved
    if resolved.policy.target is not None:
        raise UsageError(
            f"--policy {config.policy} is a class or a server, which cannot be recorded; give expert, noop, "
            "random, or a policy with weights, such as tiny or the folder of a checkpoint"
        )
    for option, value in {"--expert-noise": config.expert_noise, "--learner": config.learner}.items():
        if value and kind != "expert":
            raise UsageError(f"{option} {value} is for --policy expert, not {config.policy}")
    if learning and learning.policy.kind != "oxygen":
        raise UsageError(f"--learner is {config.learner}, which has no weights; give a policy that has")
    plan = make_plan(run)
    _check_feedback(player, learner or run)
    for each in filter(None, (resolved, learning)):
        check_playable(plan, kind=each.policy.kind, interface=each.interface)
    if config.images == "video" and (problem := encoder_problem()) is not None:
        raise UsageError(f"--images video cannot be written ({problem}); {REMEDY}, or give --images png")
    model = run if kind == "oxygen" else learner
    if model is not None:
        use_compile_cache()  # fails before anything is written if JAX does not start

    def open_policy(worlds: int) -> LoadedPolicy:
        if model is None:
            return open_scripted(resolved.policy, (), run, noise=config.expert_noise)
        return open_policies(player, [model], worlds=worlds)[0]

    return collect_from(open_policy, config, dataset, workers=workers)


def collect_from(
    open_policy: Callable[[int], LoadedPolicy], config: CollectConfig, dataset: Path, *, workers: int
) -> int:
    """The same with a policy of the caller's, which is opened for a number of worlds."""
    plan = _plan(config)
    jobs = {
        EpisodeJob(variant=0, task=number, key=key): DemonstrationKey.of(key, task, config)
        for number, task in enumerate(plan.tasks)
        for key in task.keys
    }
    jobs = dict(sorted(jobs.items(), key=lambda item: item[1]))
    task, store, learner = plan.tasks[0], EpisodeStore(dataset), _learner_config(config)
    options = {  # that all episodes of a dataset share
        **config.model_dump(mode="json", exclude=_MAY_DIFFER),
        **_conventions(task.suite.interface),
        "policy_weights_sha256": _digest(_run_config(config)),
        "learner_weights_sha256": learner and _digest(learner),
        **{  # without assets, which each demonstration names
            f"protocol of {name}": hash_of({**describe_suite(suite), "assets": None})
            for name, suite in plan.suites.items()
        },
    }
    store.check(options)
    written = dataset / layout.MANIFEST
    with locked(dataset):
        before = read_json_object(written) if written.exists() else {}
        before_suites = check(dict[str, Any], before.get("suites", {}), source=f"{written}: suites")
        protocols = {name: suite.protocol.model_dump(mode="json") for name, suite in plan.suites.items()}
        suites = before_suites | store.begin(options, protocols)
        pending = [job for job, key in jobs.items() if not store.has(key)]
        console = CollectionConsole(config, jobs.values(), dataset, pending=len(pending))
        if pending:
            _play(pending, plan, open_policy, config, dataset, console, workers=min(workers, len(pending)))
        kept = store.demonstrations()
        if not kept:
            console.print("No episode succeeded, so there is no dataset.")
            return INCOMPLETE
        sheet = dataset / "contact_sheet.png"
        names = [str(each.key) for each in kept]
        if before.get("demonstrations") != names:
            console.print(f"Writing {pluralize(len(kept), 'demonstration')} …")
            fps = task.protocol.control_hz / task.protocol.replan_steps
            assemble(kept, dataset, config, interface=task.suite.interface, fps=fps)
            write_contact_sheet(Demonstrations(dataset), sheet)
        manifest = _manifest(config, options, kept, store.failures())
        write_json(written, {**manifest, "suites": suites, "errors": console.errors})
        console.conclude(manifest["counts"], sheet)
        return INCOMPLETE if console.errors else 0


def _play(
    pending: Sequence[EpisodeJob],
    plan: EpisodePlan,
    open_policy: Callable[[int], LoadedPolicy],
    config: CollectConfig,
    dataset: Path,
    console: "CollectionConsole",
    *,
    workers: int,
) -> None:
    """Play episodes, each of which is on disk when the next begins."""
    executor = SERIAL if workers == 1 else Processes(num_envs=workers)
    record, folder = functools.partial(DemonstrationRecorder, config), RunFolder(dataset)
    try:
        with DeferredSignals() as interrupts, console.progress:
            with interrupts.suspended():  # it compiles
                policy = open_policy(workers)
            run = Run(config=_run_config(config), folder=folder)
            variant = LoadedVariant(run=run, plan=plan, policy=policy, record=record)
            for job, report in executor.play([variant], pending, interrupts, lambda *_: None):
                console.add(job.key, report)
    except KeyboardInterrupt:
        count = pluralize(console.played - console.errors, "more episode")
        console.print(f"Interrupted: {count} kept. The same command completes the rest.")
        raise


def _check_feedback(player: ResolvedPolicy, run: RunConfig) -> None:
    name = player.policy.name
    if run.feedback is None:
        if player.policy.feedback:
            raise UsageError(f"policy {name} reads its own texts: give their origin, such as --feedback own")
    elif player.policy.kind != "expert":
        check_feedback([run], player.fields_by_task, policy=name)
    elif not isinstance(run.feedback, TrueText):
        raise UsageError(f"--feedback {run.feedback}: the expert writes no texts; give truth, or truth:0.5")


def _plan(config: CollectConfig) -> EpisodePlan:
    """The episodes of a configuration, checked."""
    size = {} if config.image_size is None else {"camera_size": config.image_size}
    plan = make_plan(_run_config(config), **size)
    for task in plan.tasks:
        first, last = task.protocol.test_init_ids or (0, -1)
        for key in task.keys:
            if first <= key.init_id <= last:
                raise UsageError(
                    f"init id {key.init_id}: {key.suite} reserves {first} to {last} for tests of policies; "
                    f"give others, such as {last + 1}"
                )
    shared: dict[str, Any] = {}
    for name, suite in plan.suites.items():
        for part, value in _conventions(suite.interface).items():
            if shared.setdefault(part, value) != value:
                raise UsageError(
                    f"{name} has {part} {value}, the suites before it {shared[part]}: collect them into "
                    "separate datasets"
                )
        for camera in suite.interface.observation.cameras:
            if config.images == "video" and any(side % 2 for side in camera.size or ()):
                raise UsageError(
                    f"camera {camera.name!r} of {name} has {camera}: video needs even numbers; give another "
                    "--image-size, or --images png"
                )
    return plan


def _run_config(config: CollectConfig) -> RunConfig:
    """The run that plays the same episodes: in mode `actions`, unless the policy reads its own texts."""
    shared: Any = {
        name: getattr(config, name) for name in CollectConfig.model_fields if name in RunConfig.model_fields
    }
    how: Any = {"mode": "isolated"}
    if config.feedback is None:
        how = {"mode": "actions", "language_tasks": ()}
    return RunConfig(**how, video="none", **shared)


def _learner_config(config: CollectConfig) -> RunConfig | None:
    """The run of the learner alone over the same episodes; None without a learner."""
    run = _run_config(config)
    return run.model_copy(update={"policy": config.learner}) if config.learner else None


def _conventions(interface: Interface) -> dict[str, Any]:
    """The conventions of cameras, state and actions that all episodes of a dataset share, for its options."""
    observation, action = interface.observation, interface.action
    return {
        "cameras": [f"{camera.name}: {camera}" for camera in observation.cameras],
        "state": [*map(str, observation.state), f"rotation: {observation.rotation}"],
        "action": [*map(str, action.channels), *map(str, action.grippers), f"rotation: {action.rotation}"],
        "control_hz": action.control_hz,
    }


def _manifest(
    config: CollectConfig,
    options: Mapping[str, Any],
    kept: Sequence[StoredEpisode],
    failed: Sequence[DemonstrationKey],
) -> dict[str, Any]:
    learner, learner_sha256 = config.learner, options["learner_weights_sha256"]
    frames = sum(pq.read_metadata(each.path).num_rows for each in kept)
    return {
        "policy": config.policy,
        "policy_weights_sha256": options["policy_weights_sha256"],
        "learner": learner and {"policy": Path(learner).name, "weights_sha256": learner_sha256},
        "config": config.model_dump(mode="json"),
        "command": provenance.command(),
        "finished": dt.datetime.now().astimezone().isoformat(timespec="seconds"),
        "assets": [list(each) for each in sorted({(each.key.assets, each.key.digest) for each in kept})],
        "counts": {"demonstrations": len(kept), "frames": frames, "failures": len(failed)},
        "demonstrations": [str(each.key) for each in kept],
        "failed": [str(key) for key in failed],
        "git": provenance.git_state(),
        "versions": {**provenance.versions(), "pyarrow": pa.__version__},
        "hardware": provenance.hardware(),
    }


def _digest(run: RunConfig) -> str | None:
    """SHA-256 of the policy's weights; None if it has none, or random ones."""
    policy = resolve_policy(run).policy
    return weights_sha256(policy) if policy.kind == "oxygen" and not run.random_weights else None


class CollectionConsole:
    """Prints the progress of one collection; `progress` is its bar, shown while entered."""

    def __init__(
        self, config: CollectConfig, keys: Collection[DemonstrationKey], dataset: Path, *, pending: int
    ) -> None:
        """Print what is collected, and how many of the `keys` are done already."""
        console = TextConsole()
        self.print, self._logs = console.print, not console.is_terminal
        self._pending = pluralize(pending, "episode")
        self._kept = " and are among them" if config.keep_failures else ""
        noise = f", noise {config.expert_noise:g}" if config.expert_noise else ""
        motion = "" if config.motion in (None, Static()) else f", motion {config.motion}"
        learner = f", correcting {escape(config.learner)}" if config.learner else ""
        what = f"[bold]{escape(config.policy)}[/]{noise}{motion}{learner}"
        assets = escape(", ".join(sorted({key.assets for key in keys})))
        self.print(f"Demonstrations of {what}, assets {assets} → {escape(str(dataset))}", soft_wrap=True)
        if done := len(keys) - pending:
            self.print(f"Played before: {done} of {pluralize(len(keys), 'episode')}.")
        self.played = self.errors = self._solved = self._frames = 0
        columns = BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.fields[status]}")
        # Without a terminal, a line per minute instead.
        self.progress = Progress(*columns, TimeRemainingColumn(), console=console, disable=self._logs)
        self._bar = self.progress.add_task("", total=pending, status="")
        self._began = self._logged = time.monotonic()

    def add(self, key: EpisodeKey, report: EpisodeReport) -> None:
        """Update the bar, or print a line per minute without a terminal; print an error at once."""
        self.played += 1
        self.errors += report.outcome is Outcome.ERROR
        self._solved += report.outcome is Outcome.SUCCESS
        self._frames += report.frames
        graded, per_s = self.played - self.errors, self._frames / (time.monotonic() - self._began)
        rate = f"{100 * self._solved / graded:.0f} % success" if graded else "no episode finished"
        status = f"{rate}, {per_s:.1f} frames/s"
        if self.errors:
            status += f", [red]{pluralize(self.errors, 'error')}[/]"
        self.progress.update(self._bar, advance=1, status=status)
        if report.error is not None:
            self.print(f"error in {key}: {report.error}", style="red", markup=False)
        if self._logs and time.monotonic() - self._logged >= _LOG_INTERVAL_S:
            self._logged = time.monotonic()
            self.print(f"{self.played} of {self._pending}, {status}", soft_wrap=True)

    def conclude(self, counts: Mapping[str, int], sheet: Path) -> None:
        """Print a summary of the dataset and the path of its contact sheet."""
        kept = counts["demonstrations"]
        files = [file for part in ("data", "meta", "videos") for file in (sheet.parent / part).rglob("*")]
        size = sum(file.stat().st_size for file in files if file.is_file()) / kept / 1e6
        summary = [
            f"[bold]{pluralize(kept, 'demonstration')}[/]",
            pluralize(counts["frames"], "frame"),
            f"{size:.2f} MB each",
            f"{pluralize(counts['failures'], 'episode')} failed{self._kept}",
        ]
        if self.errors:
            summary.append(f"[red]{pluralize(self.errors, 'error')}[/], which the same command tries again")
        self.print(", ".join(summary))
        self.print(f"Contact sheet: {shown(sheet)}", soft_wrap=True, markup=False)
