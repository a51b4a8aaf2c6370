"""Decides what an evaluation plays: options become an `Evaluation`, or one UsageError; nothing is written."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.cli import ranges
from configs.errors import check
from configs.load import load
from configs.paths import absolute
from configs.protocol import ProtocolConfig
from configs.schema import ExecutionConfig, OverlapRule, PolicyConfig, RunConfig, VariantsConfig
from contracts.clock import MEASURED, Replay
from contracts.errors import UsageError
from contracts.interface import Interface, compare
from contracts.mode import Mode
from contracts.prompt import FieldsByTask, parse_answer, prompt_fields, write_answer
from contracts.text_source import DelayedTruth, Frozen, Own, TextSource
from eval.policies.base import LoadedPolicy
from eval.policies.python import query_limit_s
from eval.policies.resolved import ResolvedPolicy, resolve_policy
from eval.policies.unused_options import refuse_unused_options
from eval.records.reader import read_identity
from eval.records.run_folders import Run, find_unfinished, new_run
from eval.records.schema import RunFolder
from eval.rollout.episode import Variant
from eval.rollout.executors.choice import batch_size_for, choose_executor
from eval.rollout.executors.executor import SERIAL, Executor
from eval.rollout.machine import require_quick_checks
from eval.rollout.plan import EpisodePlan, make_plans, plays_chunks
from eval.rollout.pricing import ProfilePricing, open_pricing
from eval.rollout.rollout import averaged_channels
from oxygen.robots.openpi_keys import keys_of_suite
from sim_envs.scripted.policy import HORIZON, Random
from sim_envs.suite import Suite, Task

_SCRIPTED = ("expert", "noop", "random")
"""Kinds of policies that the suite's package plays, with chunks of `HORIZON` actions."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What an evaluation plays, checked as far as it can be before the policy is loaded. Picklable."""

    variants: tuple[Variant, ...]
    policy: ResolvedPolicy
    executor: Executor
    query_limit_s: float | None  # seconds after which a call of a Python class counts as hung; None for never
    mode_is_default: bool  # whether the mode was not chosen
    remarks: tuple[str, ...]  # lines for the user

    @property
    def configs(self) -> list[RunConfig]:
        """The configuration of each variant."""
        return [variant.run.config for variant in self.variants]


def prepare_options(
    asked: Mapping[str, Any],
    *,
    given: Mapping[str, Any],
    execution: ExecutionConfig,
    output_dir: Path,
    defaults: Mapping[str, Any] | None = None,
    resume: bool = False,
    lasting: bool = False,
    policy: Any = None,
    source: str = "the command line",
) -> Evaluation:
    """Prepare what options ask for: new runs in `output_dir`, or the newest unfinished ones there.

    Args:
        asked: Options of `VariantsConfig`, those of a preset included.
        given: The options that were given apart from the preset, which must have an effect.
        execution: How the episodes are played.
        output_dir: Parent of the runs' folders.
        defaults: Options that those `asked` override.
        resume: Whether to complete runs.
        lasting: Whether worlds and their processes stay open for the next evaluation.
        policy: See `prepare`.
        source: Names where the options come from, in errors.

    Raises:
        UsageError: See `prepare`; or an option is invalid, or there is nothing to resume.
    """
    executor = dataclasses.replace(choose_executor(execution), lasting=lasting)
    how: Any = {"executor": executor, "query_timeout_s": execution.query_timeout, "policy": policy}
    if resume:
        return prepare(find_unfinished(output_dir, asked), **how)
    merged = {**(defaults or {}), "batch_size": batch_size_for(execution.num_envs), **asked}
    options = check(VariantsConfig, merged, source=source)
    is_default = merged.keys().isdisjoint({"mode", "against"})
    if is_default and isinstance(options.clock, Replay):
        mode = read_identity(RunFolder(absolute(options.clock.run))).mode
        options = check(VariantsConfig, {**merged, "mode": [mode]}, source=source)
    runs = [new_run(output_dir, each) for each in options.variants()]
    return prepare(runs, given=given, mode_is_default=is_default, **how)


def prepare(
    runs: Sequence[Run],
    *,
    given: Mapping[str, Any] | None = None,
    executor: Executor = SERIAL,
    query_timeout_s: float | None = None,
    mode_is_default: bool = False,
    policy: Any = None,
) -> Evaluation:
    """Prepare runs of the same episodes, policy and language tasks, scheduled and timed differently.

    Args:
        runs: The variants, new or to be resumed.
        given: The options of the command line, which must have an effect.
        executor: Plays the episodes.
        query_timeout_s: Seconds that a call of a Python class may take; None for ten minutes.
        mode_is_default: Whether the mode was not chosen; it is then `actions` for a policy without texts.
        policy: The class or object that the configurations name; None if it is to be found by name.

    Raises:
        UsageError: An option has no effect; this machine, a suite, task, policy or asset tree is not ready;
            or every episode would fail.
    """
    configs, remarks = [run.config for run in runs], list[str]()
    refuse_unused_options(given or {}, configs)
    require_quick_checks(
        runs[0].folder.path.parent,
        num_envs=executor.local_worlds,
        videos=any(config.video != "none" for config in configs),
        notify=remarks.append,
    )
    _refuse_shared_time(configs, executor)
    plans = make_plans(configs)
    assumed = keys_of_suite(plans[0].tasks[0].suite.interface)
    resolved = dataclasses.replace(resolve_policy(configs[0]), assumed=assumed, given=policy)
    if resolved.policy.kind == "oxygen":  # others say only when loaded which fields their prompts have
        check_feedback(configs, resolved.fields_by_task, policy=resolved.policy.name)
    limit_s = query_limit_s(resolved.policy, query_timeout_s)
    check_playable(
        *plans,
        kind=resolved.policy.kind,
        interface=resolved.interface,
        image_sizes=resolved.image_sizes,
    )
    variants = []
    for run, plan in zip(runs, plans, strict=True):
        _check_overlap(plan, run.config.overlap, resolved.policy)
        variants.append(Variant(run=run, plan=plan, pricing=open_pricing(run.config, plan.keys)))
    if remark := resolved.remark_for(configs):
        remarks.append(remark)
    remarks.extend(_remarks_on(configs[0], plans[0]))
    return Evaluation(
        variants=tuple(variants),
        policy=resolved,
        executor=executor,
        query_limit_s=limit_s,
        mode_is_default=mode_is_default,
        remarks=tuple(remarks),
    )


def _remarks_on(config: RunConfig, plan: EpisodePlan) -> Iterator[str]:
    """What is not played of a protocol by name, and of suites whose tasks lack assets."""
    if config.protocol and (elsewhere := load(ProtocolConfig, config.protocol).elsewhere):
        yield f"Protocol {config.protocol} is followed, except: {elsewhere}."
    for suite in plan.suites.values() if config.only_available else ():
        tasks = [each for each in suite.tasks() if each.task_id in config.task_ids or not config.task_ids]
        if missing := [task for task in tasks if task.missing]:
            here = {task.category for task in tasks if not task.missing}
            gone = dict.fromkeys(task.category for task in missing if task.category not in here)
            lost = f", all of {' and '.join(gone)} among them" if gone else ""
            count = f"{len(missing)} of {len(tasks)} tasks"
            yield f"{suite.protocol.name}: {count} lack assets and are left out{lost}."


def confirm(evaluation: Evaluation, policies: Sequence[LoadedPolicy]) -> Evaluation:
    """Check what only the loaded policies know; the result has their remarks, and the modes that are played.

    Raises:
        UsageError: Their conventions, texts or work do not fit.
    """
    configs, name, (policy, *_) = evaluation.configs, evaluation.policy.policy.name, policies
    remarks = [policy.remark for policy in policies if policy.remark]
    evaluation = _in_chunks(evaluation, policy)
    if evaluation.policy.interface is None and policy.interface is not None:
        plans = [variant.plan for variant in evaluation.variants]
        check_playable(*plans, interface=policy.interface, image_sizes=policy.image_sizes)
    check_feedback(configs, policy.fields_by_task, policy=name, follows_mode=policy.follows_mode)
    variants = evaluation.variants
    if not any(policy.writes_texts for policy in policies):
        if evaluation.mode_is_default:
            variants = tuple(map(_in_mode_actions, variants))
        elif any(config.mode != "actions" for config in configs):
            remarks.append(
                f"{name} declares no texts; without texts, every mode does what mode actions does."
            )
    elif not policy.follows_mode and len({config.mode for config in configs}) > 1:
        remarks.append(f"{name} decides itself what a query computes, whatever the mode.")
    for variant, loaded in zip(variants, policies, strict=True):
        if isinstance(variant.pricing, ProfilePricing) and not loaded.reports_work:
            raise UsageError(
                f"clock {variant.run.config.clock} prices work of this project's engine, and policy {name!r} "
                "does not run on it; choose another clock, such as fixed:100,300 or measured"
            )
    return dataclasses.replace(evaluation, variants=variants, remarks=tuple(dict.fromkeys(remarks)))


def _in_chunks(evaluation: Evaluation, policy: LoadedPolicy) -> Evaluation:
    """The evaluation with a query after each chunk in variants whose protocol by name plays whole chunks."""
    configs, resolved = evaluation.configs, evaluation.policy
    if not any(map(plays_chunks, configs)):
        return evaluation
    interface = policy.interface or resolved.interface
    declared = None if interface is None else interface.horizon
    chunk = HORIZON if resolved.policy.kind in _SCRIPTED else declared
    if chunk is None:
        raise UsageError(
            f"protocol {configs[0].protocol} executes all actions of an answer, and policy "
            f"{resolved.policy.name!r} does not declare how many (`horizon`); give --replan-steps N"
        )
    plans = make_plans(configs, chunk=chunk)
    variants = zip(evaluation.variants, plans, strict=True)
    return dataclasses.replace(
        evaluation, variants=tuple(dataclasses.replace(variant, plan=plan) for variant, plan in variants)
    )


def _in_mode_actions(variant: Variant) -> Variant:
    config = variant.run.config.model_copy(update={"mode": Mode.ACTIONS})
    run = new_run(variant.run.folder.path.parent, config, names_mode=False)
    return dataclasses.replace(variant, run=run)


def check_playable(
    *plans: EpisodePlan,
    kind: str | None = None,
    interface: Interface | None = None,
    image_sizes: Mapping[str, tuple[int, int]] | None = None,
) -> None:
    """Reject a policy or plan that would fail in every episode.

    The policy has a kind, and conventions; None if they are unknown, or the suite's. Images of the cameras in
    `image_sizes` are resized for it to these heights and widths, but not enlarged.

    Raises:
        UsageError: The conventions differ, `replan_steps` exceeds the horizon, a scripted policy cannot play
            these tasks, or the suite cannot run here.
    """
    tasks = {id(task): task for plan in plans for task in plan.tasks}.values()
    for suite in {id(task.suite): task.suite for task in tasks}.values():
        chosen, steps = [each.task for each in tasks if each.suite is suite], suite.protocol.replan_steps
        horizon = HORIZON if kind in _SCRIPTED else None
        if interface is not None:
            _check_conventions(interface, suite, image_sizes or {})
            horizon = interface.horizon
        elif kind == "random":
            Random(suite.interface)
        elif kind == "expert":
            _check_expert(suite, chosen)
        if horizon is not None and steps > horizon:
            raise UsageError(
                f"{steps} control steps between queries of {suite.protocol.name}: policy "
                f"{interface.name if interface else kind!r} answers a query with {horizon} actions; give "
                f"--replan-steps {horizon} or less"
            )
        suite.check(chosen)


def _check_conventions(
    interface: Interface, suite: Suite, image_sizes: Mapping[str, tuple[int, int]]
) -> None:
    seen, rendered = interface.observation, suite.interface.observation.camera_sizes
    any_size = [
        dataclasses.replace(each, size=None) if each.name in image_sizes else each for each in seen.cameras
    ]
    observation = dataclasses.replace(seen, cameras=tuple(any_size))
    try:
        compare(dataclasses.replace(interface, observation=observation), suite.interface)
    except UsageError as error:
        from eval.policies.resolved import policies_for  # imports the engine's presets

        fitting = policies_for(suite.interface)
        such_as = f", such as {', '.join(fitting)}" if fitting else ""
        raise UsageError(f"{error}{such_as}") from None
    for camera, (height, width) in image_sizes.items():
        if camera in rendered and height > rendered[camera][0] and width > rendered[camera][1]:
            have = " × ".join(map(str, rendered[camera]))
            raise UsageError(
                f"camera {camera!r}: policy {interface.name!r} declares {height} × {width} pixels, and "
                f"{suite.protocol.name} renders {have}, which is not enlarged: declare at most {have}, or "
                f"give --camera-size {height}"
            )


def _check_expert(suite: Suite, tasks: Sequence[Task]) -> None:
    played = suite.expert_tasks()
    if not played:
        raise UsageError(f"suite {suite.protocol.name} has no expert; choose another policy, such as noop")
    beyond = [task.name for task in tasks if task not in played]
    if beyond:
        raise UsageError(
            f"the expert of {suite.protocol.name} cannot play {', '.join(beyond)}; give --task-ids "
            f"{' '.join(ranges(task.task_id for task in played))}, or another policy"
        )


def check_feedback(
    configs: Sequence[RunConfig], fields_by_task: FieldsByTask, *, policy: str, follows_mode: bool = True
) -> None:
    """Reject a source of texts that the policy's prompt does not have, or cannot get.

    A policy that does not follow the mode decides itself when it writes.

    Raises:
        UsageError: The prompt has no field, the mode no texts, or a constant does not fit.
    """
    fields, modes_of = prompt_fields(fields_by_task), defaultdict[TextSource, set[str]](set)
    for config in configs:
        if config.feedback is not None:
            modes_of[config.feedback].add(config.mode)
    for source, modes in modes_of.items():
        if not fields:
            raise UsageError(
                f"--feedback {source}: the prompt of policy {policy!r} holds no text of this run's language "
                "tasks; leave it out, or see docs/memory.md"
            )
        if follows_mode and isinstance(source, Own | DelayedTruth) and modes == {"actions"}:
            raise UsageError(
                f"--feedback {source} needs the policy's texts, and mode actions has none; choose another "
                "mode, or --feedback none or truth"
            )
        if isinstance(source, Frozen) and len(fields_by_task) > 1:
            raise UsageError(
                f"--feedback {source} is the answer of one language task, and "
                f"{' and '.join(fields_by_task)} fill the prompt; choose own, none, truth or truth-delayed"
            )
        (answered, *_) = fields_by_task.values()  # in the order of the answer
        if isinstance(source, Frozen) and parse_answer(source.text, answered) is None:
            example = write_answer({each.field: "TEXT" for each in fields}, answered).replace("\n", " ")
            task = " ".join(fields_by_task)
            fault = f"is not an answer of language task {task}" if source.text else "has no text"
            raise UsageError(f"--feedback {str(source)!r} {fault}; give {f'frozen:{example}'!r}")


def _check_overlap(plan: EpisodePlan, rule: OverlapRule, policy: PolicyConfig) -> None:
    """Reject an overlap rule that the policy or a suite's actions do not support, as a UsageError."""
    if rule == "rtc" and policy.kind != "oxygen":
        raise UsageError(
            f"overlap rtc guides the denoising of this project's engine, and policy {policy.name!r} is not "
            "served by it; choose blend or skip"
        )
    if rule == "blend":
        for suite in plan.suites.values():
            averaged_channels(suite.interface.action)


def _refuse_shared_time(configs: Sequence[RunConfig], executor: Executor) -> None:
    for config in configs:
        is_measured = config.clock == MEASURED
        measures = is_measured or config.deadline_ms is not None
        if measures and (executor.num_envs > 1 or config.batch_size > 1):
            raise UsageError(
                f"{'--clock measured' if is_measured else '--deadline-ms'} measures the latency of one "
                f"robot's queries, and {executor.num_envs} worlds in batches of {config.batch_size} share "
                "this machine; give --num-envs 1 and --batch-size 1"
            )
