"""Runs a plan of episodes in one mode or several, from the beginning or from where it was interrupted."""

import contextlib
import dataclasses
import datetime as dt
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self

from rich.console import Console as RichConsole

from configs.errors import UsageError
from configs.schema import RunConfig
from eval.metrics.success import Results, summarize
from eval.policies.base import OpenPolicy, PolicyLostError
from eval.policies.names import weights_sha256
from eval.policies.opening import open_policies
from eval.policies.resolved import ResolvedPolicy, resolve_policy
from eval.records import provenance
from eval.records.attempts import Sitting, past_sittings, sitting
from eval.records.json_files import write_json
from eval.records.protocol import describe_suite, policy_inputs, protocol_hash, say_inputs, suite_hash
from eval.records.run_folders import Run, begin, claimed, policy_name
from eval.records.schema import EpisodeResult, Outcome
from eval.rollout.clock import Clock, PausedClock, ProfileClock, find_clock
from eval.rollout.episode import Stage, run_episode
from eval.rollout.interrupts import Interrupts
from eval.rollout.plan import EpisodePlan, check_playable, make_plan
from eval.rollout.recorder import EpisodeRecorder
from eval.rollout.timeline import Waiting
from eval.rollout.worlds import WorldHolder
from sim_envs.blas import KERNELS, pin_kernels

MAX_ERRORS = 5
"""Errors in a row after which an evaluation stops, unless told otherwise."""

NOTHING_GRADED = 1
"""Exit code of a run in which every episode was an error."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Arm:
    """A run, its policy and clock, what its manifest says while it goes on, and when it was played before."""

    run: Run
    policy: OpenPolicy
    clock: Clock
    manifest: Mapping[str, Any]
    before: Sequence[Sitting]
    began: str

    def write_manifest(self, status: str) -> None:
        self.run.folder.write_manifest(self.manifest_with(status))

    def manifest_with(self, status: str) -> dict[str, Any]:
        finished = None if status == "running" else _now()
        sittings = [*self.before, sitting(self.manifest, started=self.began, finished=finished)]
        return {
            **self.manifest,
            "started": sittings[0]["started"],
            "status": status,
            "finished": finished,
            "sittings": sittings,
        }


class RepeatedErrorsError(RuntimeError):
    """So many episodes in a row were errors that the rest would be, too."""

    def __init__(self, count: int, first: EpisodeResult) -> None:
        super().__init__(
            f"stopped: {count} episodes in a row were errors, the first with the traceback above "
            f"({first.error}); mend it and go on with --resume, or allow more with --max-errors"
        )
        self.traceback = str(first.traceback)


class Monitor(Protocol):
    """What shows an evaluation while it goes on."""

    def __enter__(self) -> Self:
        """Begin to show."""

    def __exit__(self, *_: object) -> None:
        """Stop."""

    def episode(self, arm: int, result: EpisodeResult) -> None:
        """An episode of a run has ended, or had ended before the run was resumed."""

    def interrupted(self) -> None:
        """The evaluation was stopped, and can be resumed."""

    def conclude(self, results: Sequence[Results]) -> None:
        """All episodes have ended."""


MonitorFactory = Callable[[Sequence[Run], EpisodePlan], Monitor]


def run_evaluation(*runs: Run, monitor: MonitorFactory, max_errors: int = MAX_ERRORS) -> list[Results]:
    """Run what is left of an evaluation, write the results of its arms, print their table and compare them.

    Every episode is played in all arms before the next one: in the same simulator, by one policy in
    different modes, and first in another arm each time. So nothing is set up twice, and all arms
    meet the machine's drift alike.

    Args:
        runs: The arms, which differ in nothing but their mode. The others are compared with the first.
        monitor: Shows it.
        max_errors: The evaluation stops when so many episodes in a row were errors.

    Returns:
        What each arm's `results.json` holds.

    Raises:
        UsageError: Before anything is written: a suite, task, policy or asset tree that does not exist;
            what every episode would fail of; or a run that another process is still at, or that began under
            another protocol or with other weights. Later: the policy is gone for good, or too many episodes
            in a row were errors; what was done is safe on disk.
        KeyboardInterrupt: After what was done is safe on disk.
    """
    if max_errors < 1:
        raise UsageError(f"--max-errors is {max_errors}: give 1 or more")
    config = runs[0].config
    plan = make_plan(config)
    resolved = resolve_policy(config)
    name, variants = resolved.policy.name, [run.config for run in runs]
    check_playable(plan, policy=name, interface=resolved.interface, horizon=resolved.horizon)
    clocks = [find_clock(variant, plan.keys) for variant in variants]
    if remark := resolved.remark_on(variants):
        _say(remark)
    policies = open_policies(resolved, variants, notify=_say)
    for remark in dict.fromkeys(policy.remark for policy in policies if policy.remark):
        _say(remark)
    if resolved.interface is None:  # now its conventions are known
        check_playable(plan, policy=name, interface=policies[0].interface, horizon=policies[0].horizon)
    for clock, policy in zip(clocks, policies, strict=True):
        _check_priced(clock, policy, name)
    described = [
        _describe(run.config, plan, resolved, policy, clock)
        for run, policy, clock in zip(runs, policies, clocks, strict=True)
    ]
    for run, description in zip(runs, described, strict=True):
        _refuse_a_mixture(run, description)
    with contextlib.ExitStack() as claims:
        for policy in policies:
            claims.callback(policy.close)
        held = [claims.enter_context(claimed(run)) for run in runs]
        arms = _begin(held, policies, clocks, described)
        return _play(arms, plan, monitor, max_errors)


def _say(line: str) -> None:
    RichConsole(highlight=False, markup=False).print(line, soft_wrap=True)


def exit_code(results: Sequence[Results]) -> int:
    """0, or 1 if there is an arm of which no episode could be graded."""
    return 0 if all(result["overall"]["n_episodes"] for result in results) else NOTHING_GRADED


def _check_priced(clock: Clock, policy: OpenPolicy, name: str) -> None:
    if isinstance(clock, ProfileClock) and not policy.reports_work:
        raise UsageError(
            f"clock profile:{clock.profile.name} prices what this project's engine computes, and policy "
            f"{name!r} is not served by it; choose another clock, such as fixed:100,300 or measured"
        )


def _begin(
    runs: Sequence[Run],
    policies: Sequence[OpenPolicy],
    clocks: Sequence[Clock],
    described: Sequence[Mapping[str, Any]],
) -> list[_Arm]:
    """The arms, each with its manifest on disk, which names them all."""
    ids, began = [run.folder.run_id for run in runs], _now()
    arms = [
        _Arm(
            run=run,
            policy=policy,
            clock=clock,
            manifest={"run_id": run.folder.run_id, **description, "arms": ids},
            before=past_sittings(run.folder) if run.resumed else (),
            began=began,
        )
        for run, policy, clock, description in zip(runs, policies, clocks, described, strict=True)
    ]
    begin(runs, [arm.manifest_with("running") for arm in arms])
    return arms


def _play(arms: Sequence[_Arm], plan: EpisodePlan, monitor: MonitorFactory, max_errors: int) -> list[Results]:
    shown = monitor([arm.run for arm in arms], plan)
    try:
        with WorldHolder() as worlds, Interrupts() as interrupts, shown:
            stages = [
                Stage(
                    worlds=worlds,
                    policy=arm.policy,
                    clock=arm.clock,
                    waiting=Waiting(arm.run.config.while_waiting),
                    interrupts=interrupts,
                )
                for arm in arms
            ]
            _run_all(plan, [arm.run for arm in arms], stages, _watched(shown, max_errors))
    except (KeyboardInterrupt, PolicyLostError, RepeatedErrorsError) as stopped:
        for arm in arms:
            arm.write_manifest("interrupted")
        shown.interrupted()
        if isinstance(stopped, KeyboardInterrupt):
            raise
        if isinstance(stopped, RepeatedErrorsError):
            sys.stderr.write(stopped.traceback)
        raise UsageError(str(stopped)) from stopped
    return _conclude(arms, shown)


def _watched(shown: Monitor, max_errors: int) -> Callable[[int, EpisodeResult], None]:
    """Shows every episode, and gives up when too many in a row were errors."""
    in_a_row: list[EpisodeResult] = []

    def ended(arm: int, result: EpisodeResult) -> None:
        shown.episode(arm, result)
        if result.outcome is not Outcome.ERROR:
            in_a_row.clear()
            return
        in_a_row.append(result)
        if len(in_a_row) >= max_errors:
            raise RepeatedErrorsError(len(in_a_row), first=in_a_row[0])

    return ended


def _conclude(arms: Sequence[_Arm], console: Monitor) -> list[Results]:
    results: list[Results] = []
    for arm in arms:
        results.append(summarize(arm.run.folder.path))
        write_json(arm.run.folder.results_path, results[-1])
        arm.write_manifest("complete")  # last: what a kill leaves incomplete is completed by --resume
    console.conclude(results)
    return results


def _run_all(
    plan: EpisodePlan,
    runs: Sequence[Run],
    stages: Sequence[Stage],
    ended: Callable[[int, EpisodeResult], None],
) -> None:
    recorded = [run.folder.episodes() for run in runs]
    episodes = ((task, key) for task in plan.tasks for key in task.keys)
    for number, (task, key) in enumerate(episodes):
        for arm in _turns(number, len(runs)):
            result = recorded[arm].get(key)
            if result is None or result.outcome is Outcome.ERROR:
                recorder = EpisodeRecorder(runs[arm].folder, task, key, runs[arm].config)
                result = run_episode(stages[arm], task, key, recorder)
                runs[arm].folder.append(result)
            ended(arm, result)


def _turns(episode: int, arms: int) -> list[int]:
    """The order of the arms in an episode: each comes first as often as the others."""
    return [(episode + turn) % arms for turn in range(arms)]


def _describe(
    config: RunConfig, plan: EpisodePlan, resolved: ResolvedPolicy, policy: OpenPolicy, clock: Clock
) -> dict[str, Any]:
    """All that a manifest says of a run but its name, its times and its status."""
    preset = resolved.policy
    timing = (
        None
        if isinstance(clock, PausedClock)
        else {**clock.describe(), "while_waiting": config.while_waiting}
    )
    protocol = {
        name: describe_suite(suite, wordings=config.wordings, drawn=plan.draws_states(name), clock=timing)
        for name, suite in plan.suites.items()
    }
    return {
        "command": provenance.command(),
        "mode": config.mode,
        "policy": policy_name(config.policy),
        "weights_sha256": None if config.random_weights else weights_sha256(preset),
        "random_weights": preset.kind == "oxygen" and (config.random_weights or not preset.weights),
        "assets": next(iter(protocol.values()))["assets"],
        "n_planned": len(plan.keys),
        "config": config.model_copy(update={"language_tasks": resolved.wanted.names}).model_dump(mode="json"),
        "protocol": protocol,
        "protocol_hash": protocol_hash(protocol),
        "suite_hashes": {name: suite_hash(description) for name, description in protocol.items()},
        "policy_inputs": dict(policy.inputs),
        "git": provenance.git_state(),
        "versions": provenance.versions(),
        "hardware": {**provenance.hardware(), "blas_kernels": KERNELS if pin_kernels() else None},
    }


def _refuse_a_mixture(run: Run, now: Mapping[str, Any]) -> None:
    """Refuse to go on with a run whose episodes would then be of two protocols, or of two policies."""
    if not run.resumed:
        return
    before = run.folder.read_manifest()
    protocol, now_under = protocol_hash(before["protocol"]), now["protocol_hash"]
    if protocol != now_under:
        raise UsageError(
            f"{run.folder.run_id} was run under protocol {protocol}, this is {now_under} "
            "(other versions or assets); start a new run without --resume"
        )
    if policy_inputs(before) != now["policy_inputs"]:
        raise UsageError(
            f"{run.folder.run_id} showed its policy {say_inputs(policy_inputs(before))}, this is "
            f"{say_inputs(now['policy_inputs'])}; start a new run without --resume"
        )
    weights, other = before.get("weights_sha256", now["weights_sha256"]), now["weights_sha256"]
    if weights != other:
        raise UsageError(
            f"{run.folder.run_id} was run with weights {_short(weights)}, {now['policy']} now has "
            f"{_short(other)}; put the first ones back, or start a new run without --resume"
        )


def _short(digest: str | None) -> str:
    return "without a digest" if digest is None else digest[:12]


def _now() -> str:
    return dt.datetime.now().astimezone().isoformat(timespec="seconds")
