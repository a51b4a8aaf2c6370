"""Collects demonstrations into a dataset; resumes an interrupted collection."""

import datetime as dt
import json
import os
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from configs.collection import CollectConfig
from configs.errors import UsageError
from configs.schema import RunConfig
from eval.collect.assemble import assemble
from eval.collect.console import CollectionConsole
from eval.collect.contact_sheet import write_contact_sheet
from eval.collect.plan import Job, frame_rate, learner_config, make_jobs, run_config
from eval.collect.playing import (
    CollectionContext,
    DemonstrationSource,
    EpisodeReport,
    Simulation,
    play_in_process,
    play_in_processes,
)
from eval.collect.store import EpisodeStore, StoredEpisode
from eval.policies.opening import open_policies
from eval.policies.resolved import resolve_policy
from eval.records import provenance
from eval.records.json_files import write_json
from eval.records.schema import Outcome, RunFolder
from eval.rollout.interrupts import DeferredSignals
from eval.rollout.plan import check_expert, check_feedback, check_playable, make_plan
from oxygen.model.compile_cache import use_compile_cache
from oxygen.presets.policies import weights_sha256
from oxygen.training import layout
from oxygen.training.demonstrations import Demonstrations

_MAX_WORKERS = 4096

INCOMPLETE = 1
"""Exit code when an episode was an error, or none was kept."""


def worker_count(given: int | None) -> int:
    """The number of worker processes; by default one per available core.

    Raises:
        UsageError: Fewer than one was given.
    """
    if given is not None and not 1 <= given <= _MAX_WORKERS:
        raise UsageError(f"--workers is {given}: give 1 to {_MAX_WORKERS}")
    return given or len(os.sched_getaffinity(0))


def collect_demonstrations(config: CollectConfig, dataset: Path, *, workers: int) -> int:
    """Collect demonstrations into a folder.

    Returns:
        The exit code: 0, or 1 if an episode was an error or none was kept.

    Raises:
        UsageError: A suite, task or policy does not exist, assets of a task are missing, the folder holds a
            dataset with other options, or another process uses it. In these cases nothing is written.
        KeyboardInterrupt: Ctrl-C; finished episodes are on disk.
    """
    _check_policies(config)
    run = run_config(config, config.seeds[0])
    kind = resolve_policy(run).policy.kind
    model = run if kind == "oxygen" else learner_config(config)
    source = Simulation(kind=kind, noise=config.expert_noise, model=model)
    if source.model is not None:
        use_compile_cache()  # fails before anything is written if JAX does not start
    return collect_from(source, config, dataset, workers=workers)


def _check_policies(config: CollectConfig) -> None:
    acting, learner = run_config(config, config.seeds[0]), learner_config(config)
    resolved, learning = resolve_policy(acting), resolve_policy(learner) if learner else None
    for_experts = {"--expert-noise": config.expert_noise, "--learner": config.learner}
    for option, value in for_experts.items():
        if value and resolved.policy.kind != "expert":
            raise UsageError(f"{option} {value} is for --policy expert, not {config.policy}")
    if learning and learning.policy.kind != "oxygen":
        raise UsageError(f"--learner is {config.learner}, which has no weights; give a policy that has")
    plan = make_plan(acting)
    if resolved.policy.kind == "expert":
        check_expert(plan)
    player = learning or resolved
    if config.feedback is None and player.policy.feedback:
        raise UsageError(
            f"policy {player.policy.name} reads its own texts: give their origin, such as --feedback own"
        )
    if config.feedback is not None:
        check_feedback([learner or acting], player.feedback, policy=player.policy.name)
    for each in filter(None, (resolved, learning)):
        check_playable(plan, policy=each.policy.name, interface=each.interface, horizon=each.horizon)


def collect_from(source: DemonstrationSource, config: CollectConfig, dataset: Path, *, workers: int) -> int:
    """Collect demonstrations from any source. See `collect_demonstrations`."""
    jobs = make_jobs(config)
    store = EpisodeStore(dataset)
    store.check(config)
    with RunFolder(dataset).locked():
        store.begin(config)
        context = CollectionContext(source=source, store=store, config=config)
        console = CollectionConsole(config, jobs, dataset)
        reports = _play(context, jobs, console, workers)
        return _conclude(context, jobs, reports, console)


def _play(
    context: CollectionContext, jobs: Sequence[Job], console: CollectionConsole, workers: int
) -> list[EpisodeReport]:
    pending = [job for job in jobs if not context.store.has(job.key)]
    reports: list[EpisodeReport] = []
    console.begin(pending, done=len(jobs) - len(pending), workers=min(workers, len(pending)))
    if not pending:
        return reports
    try:
        with DeferredSignals() as interrupts, console:
            workers, run = min(workers, len(pending)), context.source.model
            with interrupts.suspended():  # it compiles
                loaded = [] if run is None else open_policies(resolve_policy(run), [run], worlds=workers)
            model = next(iter(loaded), None)
            play = play_in_process if workers == 1 else partial(play_in_processes, workers=workers)
            for report in play(context, pending, model, interrupts=interrupts):
                reports.append(report)
                console.add(report)
    except KeyboardInterrupt:
        console.interrupted()
        raise
    return reports


def _conclude(
    context: CollectionContext,
    jobs: Sequence[Job],
    reports: Sequence[EpisodeReport],
    console: CollectionConsole,
) -> int:
    errors = sum(report.outcome is Outcome.ERROR for report in reports)
    kept = context.store.demonstrations()
    if not kept:
        console.nothing_kept()
        return INCOMPLETE
    dataset = context.store.dataset
    sheet = dataset / "contact_sheet.png"
    if not _is_up_to_date(dataset, kept):
        console.assembling(len(kept))
        plan = jobs[0].plan
        assemble(kept, dataset, context.config, interface=plan.suite.interface, fps=frame_rate(plan))
        write_contact_sheet(Demonstrations(dataset), sheet)
    manifest = _manifest(context, jobs, kept)
    write_json(dataset / layout.MANIFEST, {**manifest, "errors": errors})
    console.conclude(manifest["counts"], errors, sheet)
    return INCOMPLETE if errors else 0


def _is_up_to_date(dataset: Path, kept: Sequence[StoredEpisode]) -> bool:
    """Whether the dataset exists already with exactly these demonstrations."""
    try:
        manifest = json.loads((dataset / layout.MANIFEST).read_text(encoding="utf-8"))
    except OSError:
        return False
    return bool(manifest["demonstrations"] == [str(each.key) for each in kept])


def _manifest(
    context: CollectionContext, jobs: Sequence[Job], kept: Sequence[StoredEpisode]
) -> dict[str, Any]:
    """Provenance of the demonstrations, with the options of the last command."""
    suites = {job.key.suite: job.plan.protocol for job in jobs}
    failed, learner = context.store.failures(), learner_config(context.config)
    frames = sum(pq.read_metadata(each.path).num_rows for each in kept)
    return {
        "policy": context.config.policy,
        "policy_weights_sha256": _digest(run_config(context.config, context.config.seeds[0])),
        "learner": learner and {"policy": Path(learner.policy).name, "weights_sha256": _digest(learner)},
        "config": context.config.model_dump(mode="json"),
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


def _digest(run: RunConfig) -> str | None:
    """SHA-256 of the policy's weights; None if it has none, or random ones."""
    policy = resolve_policy(run).policy
    return weights_sha256(policy) if policy.kind == "oxygen" and not run.random_weights else None
