"""Collects demonstrations from beginning to end, or what an earlier command left over."""

import datetime as dt
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from configs.collection import CollectConfig
from configs.errors import UsageError
from configs.schema import RunConfig
from eval.collect.assemble import assemble
from eval.collect.console import Console
from eval.collect.contact_sheet import write_contact_sheet
from eval.collect.plan import Job, frame_rate, learner_config, make_jobs, run_config
from eval.collect.playing import Report, Setting, Simulation, Work, play_beside, play_here
from eval.collect.store import EpisodeStore, Kept
from eval.policies.names import weights_sha256
from eval.policies.opening import open_policies
from eval.policies.resolved import resolve_policy
from eval.records import provenance
from eval.records.json_files import write_json
from eval.records.schema import Outcome, RunFolder
from eval.rollout.interrupts import Interrupts
from eval.rollout.plan import check_playable, make_plan
from oxygen.training import layout
from oxygen.training.demonstrations import Demonstrations

INCOMPLETE = 1
"""Exit code when an episode was an error, or none was kept."""


def worker_count(given: int | None) -> int:
    """The number of processes: as given, else one per core that may be used.

    Raises:
        UsageError: Fewer than one was given.
    """
    if given is not None and given < 1:
        raise UsageError(f"--workers is {given}: give 1 or more")
    return given or len(os.sched_getaffinity(0))


def collect_demonstrations(config: CollectConfig, dataset: Path, *, workers: int) -> int:
    """Collect demonstrations into a folder.

    Returns:
        The exit code: 0, or 1 if an episode was an error or none was kept.

    Raises:
        UsageError: Before anything is written: something named does not exist, the assets lack what a task
            needs, or the folder holds a dataset of other options, or another process is at it.
        KeyboardInterrupt: After what was played is safe on disk.
    """
    _check_policies(config)
    _check_playable(config)
    return collect_from(_simulation(config), config, dataset, workers=workers)


def _simulation(config: CollectConfig) -> Simulation:
    """The suites' worlds, the configured policy, and the learner, if there is one."""
    run = run_config(config, config.seeds[0])
    kind = resolve_policy(run).policy.kind
    model = run if kind == "oxygen" else learner_config(config)
    return Simulation(kind=kind, noise=config.expert_noise, model=model)


def _check_policies(config: CollectConfig) -> None:
    resolved, learner = resolve_policy(run_config(config, config.seeds[0])), learner_config(config)
    for_experts = {"--expert-noise": config.expert_noise, "--learner": config.learner}
    for option, value in for_experts.items():
        if value and resolved.policy.kind != "expert":
            raise UsageError(f"{option} {value} is for --policy expert, not {config.policy}")
    if learner and resolve_policy(learner).policy.kind != "oxygen":
        raise UsageError(f"--learner is {config.learner}, which learns nothing; give a policy with weights")


def _check_playable(config: CollectConfig) -> None:
    acting = run_config(config, config.seeds[0])
    plan = make_plan(acting)
    for run in (acting, learner_config(config)):
        if run:
            resolved = resolve_policy(run)
            check_playable(
                plan,
                policy=resolved.policy.name,
                interface=resolved.interface,
                horizon=resolved.horizon,
            )


def collect_from(setting: Setting, config: CollectConfig, dataset: Path, *, workers: int) -> int:
    """Collect demonstrations in any setting. See `collect_demonstrations`."""
    jobs = make_jobs(config)
    store = EpisodeStore(dataset)
    store.check(config)
    with RunFolder(dataset).claimed():
        store.begin(config)
        work = Work(setting=setting, store=store, config=config)
        console = Console(config, jobs, dataset)
        reports = _play(work, jobs, console, workers)
        return _conclude(work, jobs, reports, console)


def _play(work: Work, jobs: Sequence[Job], console: Console, workers: int) -> list[Report]:
    pending = [job for job in jobs if not work.store.has(job.key)]
    reports: list[Report] = []
    console.begin(pending, there=len(jobs) - len(pending), workers=min(workers, len(pending)))
    if not pending:
        return reports
    try:
        with Interrupts() as interrupts, console:
            for report in _reports(work, pending, workers, interrupts):
                reports.append(report)
                console.add(report)
    except KeyboardInterrupt:
        console.interrupted()
        raise
    return reports


def _reports(work: Work, jobs: Sequence[Job], workers: int, interrupts: Interrupts) -> Iterator[Report]:
    workers, run = min(workers, len(jobs)), work.setting.model
    opened = [] if run is None else open_policies(resolve_policy(run), [run], worlds=workers)
    model = next(iter(opened), None)
    if workers == 1:
        return play_here(work, jobs, model, interrupts=interrupts)
    return play_beside(work, jobs, model, workers=workers, interrupts=interrupts)


def _conclude(work: Work, jobs: Sequence[Job], reports: Sequence[Report], console: Console) -> int:
    errors = sum(report.outcome is Outcome.ERROR for report in reports)
    kept = work.store.demonstrations()
    if not kept:
        console.nothing()
        return INCOMPLETE
    dataset = work.store.dataset
    sheet = dataset / "contact_sheet.png"
    if not _is_of(dataset, kept):
        console.assembling(len(kept))
        plan = jobs[0].plan
        assemble(kept, dataset, work.config, interface=plan.suite.interface, fps=frame_rate(plan))
        write_contact_sheet(Demonstrations(dataset), sheet)
    manifest = _manifest(work, jobs, kept)
    write_json(dataset / layout.MANIFEST, {**manifest, "errors": errors})
    console.conclude(manifest["counts"], errors, sheet)
    return INCOMPLETE if errors else 0


def _is_of(dataset: Path, kept: Sequence[Kept]) -> bool:
    """Whether the dataset is there already, and of just these demonstrations."""
    try:
        manifest = json.loads((dataset / layout.MANIFEST).read_text(encoding="utf-8"))
    except OSError:
        return False
    return bool(manifest["demonstrations"] == [str(each.key) for each in kept])


def _manifest(work: Work, jobs: Sequence[Job], kept: Sequence[Kept]) -> dict[str, Any]:
    """Where the demonstrations came from. The options are those of the last command."""
    suites = {job.key.suite: job.plan.protocol for job in jobs}
    failed = work.store.failures()
    frames = sum(pq.read_metadata(each.path).num_rows for each in kept)
    return {
        "policy": work.config.policy,
        "policy_weights_sha256": _digest(run_config(work.config, work.config.seeds[0])),
        "learner": _learner(work.config),
        "config": work.config.model_dump(mode="json"),
        "command": shlex.join(["python", "-m", "eval.collect", *sys.argv[1:]]),
        "finished": dt.datetime.now().astimezone().isoformat(timespec="seconds"),
        "assets": [list(each) for each in sorted({(each.key.assets, each.key.digest) for each in kept})],
        "suites": {name: suite.model_dump(mode="json") for name, suite in suites.items()},
        "counts": {"demonstrations": len(kept), "frames": frames, "failures": len(failed)},
        "demonstrations": [str(each.key) for each in kept],
        "failed": [str(key) for key in failed],
        "git": provenance.git_state(),
        "versions": {**provenance.versions(), "pyarrow": pa.__version__},
        "hardware": provenance.hardware(),
    }


def _learner(config: CollectConfig) -> Mapping[str, str | None] | None:
    """Who took turns with the demonstrator: by name, and by what tells its weights from all others."""
    run = learner_config(config)
    return None if run is None else {"policy": Path(run.policy).name, "weights_sha256": _digest(run)}


def _digest(run: RunConfig) -> str | None:
    """What tells the weights that act from all others; None where there are none, or random ones."""
    policy = resolve_policy(run).policy
    return weights_sha256(policy) if policy.kind == "oxygen" and not run.random_weights else None
