"""Runs a plan of episodes in one mode or several, from the beginning or from where it was interrupted."""

import contextlib
import functools
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from configs.console import TextConsole
from configs.exits import DeferredSignals
from configs.schema import PlayConfig
from contracts.episode import EpisodeResult, Outcome, graded_only
from contracts.errors import UsageError
from contracts.monitor import Monitor
from contracts.prompt import parse_answer, prompt_fields
from eval.metrics.results_file import results_of
from eval.metrics.rows import RunRows
from eval.policies.base import PolicyLostError
from eval.policies.python import limited
from eval.records.json_files import write_json
from eval.records.reader import RunRecords
from eval.records.run_folders import Run, begin, end_attempt, locked_run, policy_name
from eval.rollout.episode import EpisodeJob, LoadedVariant
from eval.rollout.executors.executor import Executor, Variants
from eval.rollout.manifest import describe_run, refuse_mixed_records, refuse_other_control
from eval.rollout.plan import EpisodePlan
from eval.rollout.prepare import Evaluation, confirm
from eval.rollout.recorder import EpisodeRecorder
from sim_envs.world import TaskError

MonitorFactory = Callable[[Sequence[Run], EpisodePlan], Monitor[RunRows]]
"""Opens the monitor of runs that are about to be played."""

NOTHING_GRADED = 1
"""Exit code of a run in which every episode was an error."""


def print_line(line: str) -> None:
    """Print a line to the user."""
    TextConsole(markup=False).print(line, soft_wrap=True)


def run_evaluation(
    evaluation: Evaluation,
    *,
    monitor: MonitorFactory,
    max_errors: int = PlayConfig().max_errors,
    notify: Callable[[str], None] = print_line,
) -> list[RunRows]:
    """Run the remaining episodes of an evaluation, write its results, print them and compare the variants.

    Each episode is played in all variants before the next, in the same simulator and by the same loaded
    model; the variant that goes first rotates, so that drift of the machine affects all variants alike.
    Variants that need different worlds are played one world after the other per task.

    Args:
        evaluation: What is played, from `prepare`.
        monitor: Shows progress and results.
        max_errors: Stop after this many consecutive errors.
        notify: Takes remarks, a line each.

    Returns:
        The results of each variant.

    Raises:
        UsageError: Before anything is written: the policy does not load or fit; another process has the run;
            or it began under another protocol or with other weights. Later, with all records on disk: the
            policy is lost, a task is at fault (`TaskError`), or there were too many consecutive errors.
        KeyboardInterrupt: All records are on disk.
    """
    _tell(notify, evaluation.remarks)
    opened = evaluation.executor.open_policies(evaluation.policy, evaluation.configs, notify)
    policies = [limited(policy, evaluation.query_limit_s) for policy in opened]
    with contextlib.ExitStack() as until_the_end:
        for policy in policies:
            until_the_end.callback(policy.close)
        evaluation = confirm(evaluation, policies)
        _tell(notify, evaluation.remarks)
        described = []
        for prepared, policy in zip(evaluation.variants, policies, strict=True):
            described.append(describe_run(prepared, evaluation.policy, policy))
            refuse_mixed_records(prepared.run, prepared.plan, described[-1])
            refuse_other_control(prepared.run, prepared.plan, described[-1])
        runs = [until_the_end.enter_context(locked_run(prepared.run)) for prepared in evaluation.variants]
        begin(runs, described)
        variants = [
            LoadedVariant(
                run=run,
                plan=prepared.plan,
                policy=policy,
                pricing=prepared.pricing,
                record=functools.partial(EpisodeRecorder, has_texts=policy.writes_texts),
            )
            for run, prepared, policy in zip(runs, evaluation.variants, policies, strict=True)
        ]
        results = _play(variants, evaluation.executor, monitor(runs, variants[0].plan), max_errors)
        _tell(notify, dict.fromkeys(filter(None, map(_remark_on_empty_fields, variants, results))))
        return results


def _tell(notify: Callable[[str], None], lines: Iterable[str]) -> None:
    for line in lines:
        notify(line)


def exit_code(results: Sequence[RunRows]) -> int:
    """0, or 1 if a variant has no graded episode."""
    return 0 if all(run.overall.n_episodes for run in results) else NOTHING_GRADED


def _play(
    variants: Variants[EpisodeResult], executor: Executor, monitor: Monitor[RunRows], max_errors: int
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
                    if (earlier := job.earlier_video) and earlier != result.video:
                        (folders[job.variant].path / earlier).unlink(missing_ok=True)
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
        if not isinstance(stopped, TaskError):  # with it, --resume would end in the same way
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
    return results


def _remark_on_empty_fields(variant: LoadedVariant[EpisodeResult], rows: RunRows) -> str | None:
    """A line on fields of a policy's prompt that it never filled in the whole run."""
    config, fields = variant.run.config, variant.policy.fields_by_task
    episodes = {key: each for key, each in rows.records.episodes.items() if graded_only([each])}
    is_writing = any(each.requests.requested > each.requests.finished for each in episodes.values())
    if not fields or not episodes or is_writing or not variant.policy.writes_texts:
        return None
    silent = dict(fields)
    for key in episodes:
        for text in (text for query in rows.records.queries(key) for text in query.delivered):
            if text.task in silent and parse_answer(text.text, silent[text.task]) is not None:
                del silent[text.task]
        if not silent:
            return None
    keys = " and ".join(f"`{each.field}`" for each in prompt_fields(silent))
    told = f"{policy_name(config.policy)} declares `feedback` and wrote no text that fills {keys}"
    return f"{told}: a class returns {keys} beside `actions`."


def _remaining_jobs(variants: Variants[Any], monitor: Monitor[RunRows]) -> list[EpisodeJob]:
    """Episodes without a record, or whose record is an error; others are reported as resumed, if there are.

    Every episode is played in every variant, by task and world; the variant that goes first rotates.
    """
    recorded = [variant.run.folder.episodes() for variant in variants]
    done: list[list[EpisodeResult]] = [[] for _ in variants]
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
                earlier = None if result is None else result.video
                left.append(EpisodeJob(variant=number, task=task, key=key, earlier_video=earlier))
            else:
                done[number].append(result)
        first += len(planned.keys)
    if any(done):
        monitor.resumed(done)
    return left
