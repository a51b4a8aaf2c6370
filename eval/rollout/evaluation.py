"""Runs a plan of episodes in one mode or several, from the beginning or from where it was interrupted."""

import contextlib
import dataclasses
import functools
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from configs.console import TextConsole
from configs.exits import DeferredSignals
from configs.schema import PlayConfig, RunConfig
from contracts.episode import EpisodeResult, Outcome, graded_only
from contracts.errors import UsageError, pluralize
from contracts.monitor import Monitor
from contracts.prompt import parse_answer, prompt_fields
from contracts.redaction import redact
from eval.metrics.results_file import results_of
from eval.metrics.rows import RunRows
from eval.policies.base import LoadedPolicy, PolicyLostError
from eval.policies.python import limited, query_limit_s
from eval.policies.resolved import ResolvedPolicy, resolve_policy
from eval.records import provenance
from eval.records.json_files import write_json
from eval.records.protocol import by_content, describe_suite, leaves_of, protocol_hash, suite_hash
from eval.records.reader import RunRecords
from eval.records.run_folders import Run, begin, end_attempt, locked_run, new_run, policy_name
from eval.rollout.clock import PAUSED, Clock, find_clock
from eval.rollout.episode import EpisodeJob, Variant
from eval.rollout.executors.executor import SERIAL, Executor
from eval.rollout.feedback import NoTruthError
from eval.rollout.plan import (
    EpisodePlan,
    check_feedback,
    check_overlap,
    check_playable,
    make_plans,
)
from eval.rollout.preflight import require_quick_checks
from eval.rollout.recorder import EpisodeRecorder
from oxygen.presets.policies import adapter_identity, weights_sha256
from oxygen.robots.openpi_keys import keys_of_suite
from sim_envs.blas import KERNELS, pin_kernels

MonitorFactory = Callable[[Sequence[Run], EpisodePlan], Monitor[RunRows]]
"""Opens the monitor of runs that are about to be played."""

NOTHING_GRADED = 1
"""Exit code of a run in which every episode was an error."""


def run_evaluation(
    *runs: Run,
    monitor: MonitorFactory,
    max_errors: int = PlayConfig().max_errors,
    executor: Executor = SERIAL,
    query_timeout_s: float | None = None,
    default_mode: bool = False,
) -> list[RunRows]:
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
        The results of each variant.

    Raises:
        UsageError: Before anything is written: a suite, task, policy or asset tree does not exist; every
            episode would fail; another process has the run; or it began under another protocol or with
            other weights. Later, with all records on disk: the policy is lost, a world has no truth to be
            fed back, or there were too many consecutive errors.
        KeyboardInterrupt: All records are on disk.
    """
    configs = [run.config for run in runs]
    require_quick_checks(
        runs[0].folder.path.parent,
        num_envs=executor.local_worlds,
        videos=any(config.video != "none" for config in configs),
        notify=_print,
    )
    _refuse_shared_time(configs, executor)
    plans = make_plans(configs)
    assumed = keys_of_suite(plans[0].tasks[0].suite.interface)
    resolved = dataclasses.replace(resolve_policy(configs[0]), assumed=assumed)
    name = resolved.policy.name
    if resolved.policy.kind == "oxygen":  # before it is loaded
        check_feedback(configs, resolved.feedback, policy=name)
    limit_s = query_limit_s(resolved.policy, query_timeout_s)
    check_playable(*plans, kind=resolved.policy.kind, interface=resolved.interface)
    for config, plan in zip(configs, plans, strict=True):
        check_overlap(plan, config.overlap, resolved.policy)
    clocks = [find_clock(config, plan.keys) for config, plan in zip(configs, plans, strict=True)]
    if remark := resolved.remark_for(configs):
        _print(remark)
    policies = [limited(policy, limit_s) for policy in executor.open_policies(resolved, configs, _print)]
    with contextlib.ExitStack() as until_the_end:
        for policy in policies:
            until_the_end.callback(policy.close)
        for remark in dict.fromkeys(policy.remark for policy in policies if policy.remark):
            _print(remark)
        if resolved.interface is None and policies[0].interface is not None:  # only known now
            check_playable(*plans, interface=policies[0].interface, image_sizes=policies[0].image_sizes)
        follows_mode = policies[0].follows_mode
        check_feedback(configs, policies[0].feedback, policy=name, follows_mode=follows_mode)
        if not any(policy.writes_texts for policy in policies):
            if default_mode:
                silent = [config.model_copy(update={"mode": "actions"}) for config in configs]
                runs = tuple(new_run(run.folder.path.parent, c) for run, c in zip(runs, silent, strict=True))
            elif any(config.mode != "actions" for config in configs):
                _print(f"{name} declares no texts; without texts, every mode does what mode actions does.")
        elif not follows_mode and len({config.mode for config in configs}) > 1:
            _print(f"{name} decides itself what a query computes, whatever the mode.")
        described = []
        for run, plan, policy, clock in zip(runs, plans, policies, clocks, strict=True):
            _refuse_unpriced_work(name, policy, clock)
            described.append(_describe_run(run.config, plan, resolved, policy, clock))
            _refuse_mixed_records(run, plan, described[-1])
        held = [until_the_end.enter_context(locked_run(run)) for run in runs]
        begin(held, described)
        variants = [
            Variant(
                run=run,
                plan=plan,
                policy=policy,
                record=functools.partial(EpisodeRecorder, has_texts=policy.writes_texts),
            )
            for run, plan, policy in zip(held, plans, policies, strict=True)
        ]
        return _play(variants, executor, monitor(held, plans[0]), max_errors)


def _print(line: str) -> None:
    TextConsole(markup=False).print(line, soft_wrap=True)


def exit_code(results: Sequence[RunRows]) -> int:
    """0, or 1 if a variant has no graded episode."""
    return 0 if all(run.overall.n_episodes for run in results) else NOTHING_GRADED


def _play(
    variants: Sequence[Variant[EpisodeResult]], executor: Executor, monitor: Monitor[RunRows], max_errors: int
) -> list[RunRows]:
    errors: list[EpisodeResult] = []
    try:
        with DeferredSignals() as interrupts, monitor:
            left, folders = _remaining_jobs(variants, monitor), [each.run.folder for each in variants]
            if left:
                played = executor.play(
                    variants,
                    left,
                    interrupts,
                    lambda world, job: monitor.began(world, job.variant, job.key),
                )
                for job, played_result in played:
                    result = played_result.redacted()
                    folders[job.variant].append(result)
                    monitor.episode(job.variant, result)
                    is_unfit = result.outcome is Outcome.INVALID_ACTION and result.steps == 0
                    errors = [*errors, result] if is_unfit or result.outcome is Outcome.ERROR else []
                    if len(errors) >= max_errors:
                        raise UsageError(
                            f"stopped: {len(errors)} episodes in a row were errors or began with invalid "
                            f"actions, the first with the traceback above ({errors[0].error}); fix it and "
                            "continue with --resume (after invalid actions, which are failures, start anew), "
                            "or allow more with --max-errors"
                        )
    except (KeyboardInterrupt, PolicyLostError, UsageError) as stopped:
        for variant in variants:
            end_attempt(variant.run.folder, "interrupted")
        if not isinstance(stopped, NoTruthError):  # with it, --resume would end in the same way
            monitor.interrupted()
        if len(errors) >= max_errors:
            sys.stderr.write(str(errors[0].traceback))
        if isinstance(stopped, PolicyLostError):
            raise UsageError(str(stopped)) from stopped
        raise
    results = [RunRows(RunRecords(variant.run.folder)) for variant in variants]
    for rows in results:
        folder = rows.records.folder
        write_json(folder.results_path, results_of(rows))
        end_attempt(folder, "complete")  # last, so that --resume completes a killed run
    monitor.conclude(results)
    for remark in dict.fromkeys(filter(None, map(_remark_on_empty_fields, variants, results))):
        _print(remark)
    return results


def _remark_on_empty_fields(variant: Variant[EpisodeResult], rows: RunRows) -> str | None:
    """A line on fields of a policy's prompt that it never filled in the whole run."""
    config, feedback = variant.run.config, variant.policy.feedback
    episodes = {key: each for key, each in rows.records.episodes.items() if graded_only([each])}
    is_writing = any(each.requests.requested > each.requests.finished for each in episodes.values())
    if not feedback or not episodes or is_writing or not variant.policy.writes_texts:
        return None
    silent = dict(feedback)
    for key in episodes:
        for text in (text for query in rows.records.queries(key) for text in query.delivered):
            if text.task in silent and parse_answer(text.text, silent[text.task]) is not None:
                del silent[text.task]
        if not silent:
            return None
    keys = " and ".join(f"`{each.field}`" for each in prompt_fields(silent))
    told = f"{policy_name(config.policy)} declares `feedback` and wrote no text that fills {keys}"
    return f"{told}: a class returns {keys} beside `actions`."


def _remaining_jobs(variants: Sequence[Variant[Any]], monitor: Monitor[RunRows]) -> list[EpisodeJob]:
    """Episodes without a record, or whose record is an error; the others are reported as resumed.

    Every episode is played in every variant, by task and world; the variant that goes first rotates.
    """
    recorded = [variant.run.folder.episodes() for variant in variants]
    left, first = [], 0
    for task, planned in enumerate(variants[0].plan.tasks):
        in_world: defaultdict[Hashable, list[int]] = defaultdict(list)
        for number, variant in enumerate(variants):
            in_world[variant.plan.tasks[task].world].append(number)
        turns = [
            (numbers[(turn + place) % len(numbers)], key)
            for numbers in in_world.values()
            for turn, key in enumerate(planned.keys, start=first)
            for place in range(len(numbers))
        ]
        for number, key in turns:
            result = recorded[number].get(key)
            if result is None or result.outcome is Outcome.ERROR:
                left.append(EpisodeJob(variant=number, task=task, key=key))
            else:
                monitor.resumed(number, result)
        first += len(planned.keys)
    return left


def _refuse_shared_time(configs: Sequence[RunConfig], executor: Executor) -> None:
    for config in configs:
        option = "--clock measured" if config.clock == "measured" else "--deadline-ms"
        measures = config.clock == "measured" or config.deadline_ms is not None
        if measures and (executor.num_envs > 1 or config.batch_size > 1):
            raise UsageError(
                f"{option} measures the latency of one robot's queries, and {executor.num_envs} worlds in "
                f"batches of {config.batch_size} share this machine; give --num-envs 1 and --batch-size 1"
            )


def _refuse_unpriced_work(name: str, policy: LoadedPolicy, clock: Clock) -> None:
    if clock.profile is not None and not policy.reports_work:
        raise UsageError(
            f"clock profile:{clock.profile.name} prices work of this project's engine, and policy {name!r} "
            "does not run on it; choose another clock, such as fixed:100,300 or measured"
        )


def _describe_run(
    config: RunConfig, plan: EpisodePlan, resolved: ResolvedPolicy, policy: LoadedPolicy, clock: Clock
) -> dict[str, Any]:
    """The manifest of a run without its name, variants, times and status."""
    preset, whole = resolved.policy, plan.undivided or plan
    timing: dict[str, Any] = {}
    if clock is not PAUSED:
        overlap = {} if config.overlap == "skip" else {"overlap": config.overlap}
        timing = {**clock.describe(), "while_waiting": config.while_waiting, **overlap}
    protocol = {
        name: describe_suite(
            suite,
            wordings=config.wordings,
            states=whole.sources(suite),
            clock=timing,
            feedback=(config.feedback or "own") if policy.feedback else None,
        )
        for name, suite in whole.suites.items()
    }
    fields: dict[str, Any] = {}  # and what differs from the default of each
    for each in prompt_fields(policy.feedback):
        fields[each.field] = each.format
        for part in dataclasses.fields(each):
            value = getattr(each, part.name)
            if part.default not in (dataclasses.MISSING, value):
                fields[f"{each.field} {part.name}"] = value
    inputs = {"feedback": fields} if fields else {}
    return {
        "command": provenance.command(),
        "mode": config.mode,
        "policy": policy_name(config.policy),
        "policy_options": preset.model_dump(
            mode="json", exclude={"name", "description"}, exclude_defaults=True
        ),
        "weights_sha256": None if config.random_weights else weights_sha256(preset),
        "adapter": None if config.random_weights else adapter_identity(preset),
        "random_weights": preset.kind == "oxygen" and (config.random_weights or not preset.weights),
        "assets": next(iter(protocol.values()))["assets"],
        "n_planned": len(plan.keys),
        "language_tasks": [
            each.model_dump(mode="json") for each in resolved.tasks_of(config) if config.mode != "actions"
        ],
        "config": config.model_copy(update={"language_tasks": resolved.task_names}).model_dump(mode="json"),
        "protocol": protocol,
        "protocol_hash": protocol_hash(protocol),
        "suite_hashes": {name: suite_hash(description) for name, description in protocol.items()},
        "policy_inputs": {**policy.inputs, **inputs},
        "git": provenance.git_state(),
        "versions": provenance.versions(),
        "hardware": {
            **provenance.hardware(),
            **({"policy": dict(policy.runs_on)} if policy.runs_on else {}),
            "blas_kernels": KERNELS if pin_kernels() else None,
        },
    }


_SAME_ON_RESUME = (
    *("protocol", "language_tasks", "policy_options", "policy_inputs"),
    *("adapter", "weights_sha256"),
)
"""Parts of the manifest that a resumed run may not change, if it recorded them."""
_FOLLOWS = ("policy_inputs.privileged_state", "policy_inputs.nothing")
"""What follows from the policy. Earlier versions recorded privileged state of `noop` and `random`, too."""


def _refuse_mixed_records(run: Run, plan: EpisodePlan, current: Mapping[str, Any]) -> None:
    """Reject resuming a run of other episodes, under another protocol, or with another policy or texts."""
    if not run.resumed:
        return
    begun, name = run.folder.read_manifest(), run.folder.run_id
    before, now = (
        dict(leaves_of({part: _compared(of[part], part) for part in _SAME_ON_RESUME if part in begun}))
        for of in (begun, redact(current))
    )
    for path in dict.fromkeys([*before, *now]):
        if path not in _FOLLOWS and before.get(path) != now.get(path):
            raise UsageError(
                f"{name} was begun with {path} {before.get(path)!r}, this has {now.get(path)!r}; put it "
                "back, or start a new run without --resume"
            )
    planned = set(plan.keys)
    dropped = [str(key) for key in run.folder.episodes() if key not in planned]
    if dropped or begun["n_planned"] != current["n_planned"]:
        raise UsageError(
            f"{name} was begun with {pluralize(begun['n_planned'], 'episode')}, this has "
            f"{current['n_planned']}{f', and not {dropped[0]}' if dropped else ''}: `trials_per_task` of a "
            "suite has changed; put it back, or start a new run without --resume"
        )


def _compared(value: Any, part: str) -> Any:
    return {suite: by_content(each) for suite, each in value.items()} if part == "protocol" else value
