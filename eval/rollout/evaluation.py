"""Runs a plan of episodes in one mode or several, from the beginning or from where it was interrupted."""

import contextlib
import dataclasses
import datetime as dt
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from configs.console import TextConsole
from configs.errors import UsageError
from configs.schema import RunConfig
from eval.metrics.success import Results, summarize
from eval.policies.base import LoadedPolicy, PolicyLostError
from eval.policies.resolved import resolve_policy
from eval.policies.time_limit import limited, query_limit_s
from eval.records.attempts import Attempt, attempt_record, past_attempts
from eval.records.json_files import write_json
from eval.records.run_folders import Run, begin, locked_run, new_run
from eval.records.schema import Outcome
from eval.rollout.clock import Clock, ProfileClock
from eval.rollout.clock_choice import find_clock
from eval.rollout.executors.executor import Executor, PreparedEvaluation
from eval.rollout.executors.player import EpisodeJob
from eval.rollout.executors.serial import SERIAL
from eval.rollout.interrupts import DeferredSignals
from eval.rollout.manifest import describe_run, refuse_mixed_records
from eval.rollout.monitor import MAX_ERRORS, ErrorLimit, Monitor, MonitorFactory, RepeatedErrorsError
from eval.rollout.plan import EpisodePlan, check_expert, check_overlap, check_playable, make_plans
from eval.rollout.preflight import require_quick_checks

_MAX_ERRORS = 1_000_000
NOTHING_GRADED = 1
"""Exit code of a run in which every episode was an error."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Variant:
    """A run with its manifest and earlier attempts."""

    run: Run
    manifest: Mapping[str, Any]
    before: Sequence[Attempt]
    began: str

    def write_manifest(self, status: str) -> None:
        self.run.folder.write_manifest(self.manifest_with(status))

    def manifest_with(self, status: str) -> dict[str, Any]:
        finished = None if status == "running" else _now()
        attempts = [*self.before, attempt_record(self.manifest, started=self.began, finished=finished)]
        return {
            **self.manifest,
            "started": attempts[0]["started"],
            "status": status,
            "finished": finished,
            "attempts": attempts,
        }


def run_evaluation(
    *runs: Run,
    monitor: MonitorFactory,
    max_errors: int = MAX_ERRORS,
    executor: Executor = SERIAL,
    query_timeout_s: float | None = None,
    default_mode: bool = False,
) -> list[Results]:
    """Run the remaining episodes of an evaluation, write its results, print them and compare the variants.

    Each episode is played in all variants before the next, in the same simulator and by the same loaded
    model; the variant that goes first rotates, so that drift of the machine affects all variants alike.
    Variants that need different worlds are played one world after the other per task.

    Args:
        runs: The variants: the same episodes, policy and language tasks, scheduled and timed differently.
        monitor: Shows progress and results.
        max_errors: Stop after this many consecutive errors.
        executor: Plays the episodes.
        query_timeout_s: Seconds that a call of a Python class may take; None for ten minutes.
        default_mode: Whether the mode was not chosen; it is then `actions` for a policy without texts.

    Returns:
        The content of each variant's `results.json`.

    Raises:
        UsageError: Before anything is written: a suite, task, policy or asset tree does not exist; every
            episode would fail; another process has the run; or it began under another protocol or with
            other weights. Later, with all records on disk: the policy is lost, or there were too many
            consecutive errors.
        KeyboardInterrupt: All records are on disk.
    """
    if not 1 <= max_errors <= _MAX_ERRORS:
        raise UsageError(f"--max-errors is {max_errors}: give 1 to {_MAX_ERRORS}")
    configs = [run.config for run in runs]
    require_quick_checks(runs[0].folder.path.parent, num_envs=executor.num_envs, notify=_print)
    _refuse_shared_time(configs, executor)
    plans = make_plans(configs)
    resolved = resolve_policy(configs[0])
    name = resolved.policy.name
    if resolved.policy.kind == "expert":
        check_expert(plans[0])
    limit_s = query_limit_s(resolved, query_timeout_s)
    _check_playable(plans, policy=name, interface=resolved.interface, horizon=resolved.horizon)
    for config, plan in zip(configs, plans, strict=True):
        check_overlap(plan, config.overlap, policy=name, guidable=resolved.policy.kind == "oxygen")
    clocks = [find_clock(config, plan.keys) for config, plan in zip(configs, plans, strict=True)]
    if remark := resolved.remark_for(configs):
        _print(remark)
    policies = [limited(policy, limit_s) for policy in executor.open_policies(resolved, configs, _print)]
    for remark in dict.fromkeys(policy.remark for policy in policies if policy.remark):
        _print(remark)
    if resolved.interface is None:  # its conventions are known only now
        _check_playable(plans, policy=name, interface=policies[0].interface, horizon=policies[0].horizon)
    if default_mode and not any(policy.writes_texts for policy in policies):
        runs = tuple(
            new_run(run.folder.path.parent, run.config.model_copy(update={"mode": "actions"})) for run in runs
        )
    described = []
    for run, plan, policy, clock in zip(runs, plans, policies, clocks, strict=True):
        _check_priced(clock, policy, name)
        described.append(describe_run(run.config, plan, resolved, policy, clock))
        refuse_mixed_records(run, described[-1])
    with contextlib.ExitStack() as locks:
        for policy in policies:
            locks.callback(policy.close)
        held = [locks.enter_context(locked_run(run)) for run in runs]
        variants = _begin(held, described)
        shown = monitor(held, plans[0])
        prepared = PreparedEvaluation(
            plans=plans,
            runs=held,
            policies=policies,
            clocks=clocks,
            on_begin=lambda world, job: shown.began(world, job.variant, job.key),
        )
        return _play(variants, prepared, executor, ErrorLimit(shown, max_errors))


def _print(line: str) -> None:
    TextConsole(markup=False).print(line, soft_wrap=True)


def exit_code(results: Sequence[Results]) -> int:
    """0, or 1 if a variant has no graded episode."""
    return 0 if all(result["overall"]["n_episodes"] for result in results) else NOTHING_GRADED


def _check_playable(plans: Sequence[EpisodePlan], **policy: Any) -> None:
    for plan in {id(plan): plan for plan in plans}.values():
        check_playable(plan, **policy)


def _check_priced(clock: Clock, policy: LoadedPolicy, name: str) -> None:
    if isinstance(clock, ProfileClock) and not policy.reports_work:
        raise UsageError(
            f"clock profile:{clock.profile.name} prices work of this project's engine, and policy "
            f"{name!r} does not run on it; choose another clock, such as fixed:100,300 or measured"
        )


def _begin(runs: Sequence[Run], described: Sequence[Mapping[str, Any]]) -> list[_Variant]:
    """Write the first manifest of each variant; it names all variants."""
    ids, began = [run.folder.run_id for run in runs], _now()
    variants = [
        _Variant(
            run=run,
            manifest={"run_id": run.folder.run_id, **description, "variants": ids},
            before=past_attempts(run.folder) if run.resumed else (),
            began=began,
        )
        for run, description in zip(runs, described, strict=True)
    ]
    begin(runs, [variant.manifest_with("running") for variant in variants])
    return variants


def _play(
    variants: Sequence[_Variant], prepared: PreparedEvaluation, executor: Executor, limit: ErrorLimit
) -> list[Results]:
    try:
        with DeferredSignals() as interrupts, limit.monitor:
            left = _remaining_jobs(prepared, limit)
            for job, result in executor.play(prepared, left, interrupts) if left else ():
                prepared.runs[job.variant].folder.append(result)
                limit.ended(job.variant, result)
    except (KeyboardInterrupt, PolicyLostError, RepeatedErrorsError) as stopped:
        for variant in variants:
            variant.write_manifest("interrupted")
        limit.monitor.interrupted()
        if isinstance(stopped, KeyboardInterrupt):
            raise
        if isinstance(stopped, RepeatedErrorsError):
            sys.stderr.write(stopped.traceback)
        raise UsageError(str(stopped)) from stopped
    return _conclude(variants, limit.monitor)


def _conclude(variants: Sequence[_Variant], console: Monitor) -> list[Results]:
    results: list[Results] = []
    for variant in variants:
        results.append(summarize(variant.run.folder.path))
        write_json(variant.run.folder.results_path, results[-1])
        variant.write_manifest("complete")  # last, so that --resume completes a killed run
    console.conclude(results)
    return results


def _remaining_jobs(prepared: PreparedEvaluation, limit: ErrorLimit) -> list[EpisodeJob]:
    """Episodes without a record, or whose record is an error; the others are reported as resumed."""
    recorded = [run.folder.episodes() for run in prepared.runs]
    left = []
    for job in prepared.interleaved():
        result = recorded[job.variant].get(job.key)
        if result is None or result.outcome is Outcome.ERROR:
            left.append(job)
        else:
            limit.monitor.resumed(job.variant, result)
    return left


def _refuse_shared_time(variants: Sequence[RunConfig], executor: Executor) -> None:
    """Reject measuring latency while several robots share the machine."""
    for config in variants:
        option = "--clock measured" if config.clock == "measured" else "--deadline-ms"
        if config.clock != "measured" and config.deadline_ms is None:
            continue
        if executor.num_envs > 1 or config.batch_size > 1:
            raise UsageError(
                f"{option} measures the latency of one robot's queries, and {executor.num_envs} worlds in "
                f"batches of {config.batch_size} share this machine; give --num-envs 1 and --batch-size 1"
            )


def _now() -> str:
    return dt.datetime.now().astimezone().isoformat(timespec="seconds")
