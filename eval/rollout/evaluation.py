"""Runs a plan of episodes in one mode or several, from the beginning or from where it was interrupted."""

import contextlib
import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console as RichConsole

from configs.errors import UsageError
from configs.schema import RunConfig
from eval.metrics.success import summarize
from eval.policies.engine import Cast, Policy, open_policies, read_cast
from eval.policies.names import policy_name, weights_sha256
from eval.records import provenance
from eval.records.attempts import Sitting, past_sittings, sitting
from eval.records.json_files import write_json
from eval.records.protocol import describe_suite, policy_inputs, protocol_hash, say_inputs, suite_hash
from eval.records.run_folders import Run, begin, claimed
from eval.records.schema import Outcome
from eval.records.writer import EpisodeRecorder
from eval.report.console import Console
from eval.report.tables import Results
from eval.rollout.episode import Stage, run_episode
from eval.rollout.interrupts import Interrupts
from eval.rollout.plan import EpisodePlan, check_playable, make_plan
from eval.rollout.worlds import WorldHolder
from sim_envs.libero.assets import AssetSet, find_assets
from sim_envs.libero.blas import KERNELS, pin_kernels
from sim_envs.libero.tasks import is_drawn

NOTHING_GRADED = 1
"""Exit code of a run in which every episode was an error."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Arm:
    """A run, who acts in it, what its manifest says while it goes on, and when it was played before."""

    run: Run
    policy: Policy
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


def run_evaluation(*runs: Run) -> list[Results]:
    """Run what is left of an evaluation, write the results of its arms, print their table and compare them.

    Every episode is played in all arms before the next one: in the same simulator, by one policy in
    different modes, and first in another arm each time. So nothing is set up twice, and all arms
    meet the machine's drift alike.

    Args:
        runs: The arms, which differ in nothing but their mode. The others are compared with the first.

    Returns:
        What each arm's `results.json` holds.

    Raises:
        UsageError: Before anything is written: a suite, task, policy or asset tree that does not exist;
            what every episode would fail of; or a run that another process is still at, or that began under
            another protocol or with other weights.
        KeyboardInterrupt: After what was done is safe on disk.
    """
    config = runs[0].config
    plan = make_plan(config)
    cast = read_cast(config)
    assets = find_assets(config.assets)
    check_playable(plan, assets, policy=cast.policy.name, horizon=cast.horizon)
    if remark := cast.remark_on([run.config for run in runs]):
        RichConsole(highlight=False, markup=False).print(remark, soft_wrap=True)
    policies = open_policies(cast, [run.config for run in runs])
    described = [
        _describe(run.config, plan, cast, assets, policy) for run, policy in zip(runs, policies, strict=True)
    ]
    for run, description in zip(runs, described, strict=True):
        _refuse_a_mixture(run, description)
    with contextlib.ExitStack() as claims:
        arms = _begin([claims.enter_context(claimed(run)) for run in runs], policies, described)
        return _play(arms, plan, assets)


def exit_code(results: Sequence[Results]) -> int:
    """0, or 1 if there is an arm of which no episode could be graded."""
    return 0 if all(result["overall"]["n_episodes"] for result in results) else NOTHING_GRADED


def _begin(
    runs: Sequence[Run], policies: Sequence[Policy], described: Sequence[Mapping[str, Any]]
) -> list[_Arm]:
    """The arms, each with its manifest on disk, which names them all."""
    ids, began = [run.folder.run_id for run in runs], _now()
    arms = [
        _Arm(
            run=run,
            policy=policy,
            manifest={"run_id": run.folder.run_id, **description, "arms": ids},
            before=past_sittings(run.folder) if run.resumed else (),
            began=began,
        )
        for run, policy, description in zip(runs, policies, described, strict=True)
    ]
    begin(runs, [arm.manifest_with("running") for arm in arms])
    return arms


def _play(arms: Sequence[_Arm], plan: EpisodePlan, assets: AssetSet) -> list[Results]:
    console = Console([arm.run for arm in arms], plan, assets)
    try:
        with WorldHolder(assets) as worlds, Interrupts() as interrupts, console:
            stages = [Stage(worlds=worlds, policy=arm.policy, interrupts=interrupts) for arm in arms]
            _run_all(plan, [arm.run for arm in arms], stages, console)
    except KeyboardInterrupt:
        for arm in arms:
            arm.write_manifest("interrupted")
        console.interrupted()
        raise
    return _conclude(arms, console)


def _conclude(arms: Sequence[_Arm], console: Console) -> list[Results]:
    results: list[Results] = []
    for arm in arms:
        results.append(summarize(arm.run.folder.path))
        write_json(arm.run.folder.results_path, results[-1])
        arm.write_manifest("complete")  # last: what a kill leaves incomplete is completed by --resume
    console.conclude(results)
    return results


def _run_all(plan: EpisodePlan, runs: Sequence[Run], stages: Sequence[Stage], console: Console) -> None:
    recorded = [run.folder.episodes() for run in runs]
    episodes = ((task, key) for task in plan.tasks for key in task.keys)
    for number, (task, key) in enumerate(episodes):
        for arm in _turns(number, len(runs)):
            result = recorded[arm].get(key)
            if result is None or result.outcome is Outcome.ERROR:
                recorder = EpisodeRecorder(runs[arm].folder, task, key, runs[arm].config)
                result = run_episode(stages[arm], task, key, recorder)
                runs[arm].folder.append(result)
            console.episode(arm, result)


def _turns(episode: int, arms: int) -> list[int]:
    """The order of the arms in an episode: each comes first as often as the others."""
    return [(episode + turn) % arms for turn in range(arms)]


def _describe(
    config: RunConfig, plan: EpisodePlan, cast: Cast, assets: AssetSet, policy: Policy
) -> dict[str, Any]:
    """All that a manifest says of a run but its name, its times and its status."""
    asset_set = {"name": assets.name, "digest": assets.digest}
    protocol = {
        name: describe_suite(
            suite,
            assets=asset_set,
            wordings=config.wordings,
            drawn=any(map(is_drawn, config.init_ids)),
        )
        for name, suite in plan.protocols.items()
    }
    return {
        "command": provenance.command(),
        "mode": config.mode,
        "policy": policy_name(config.policy),
        "weights_sha256": None if config.random_weights else weights_sha256(cast.policy),
        "random_weights": cast.policy.kind == "oxygen" and (config.random_weights or not cast.policy.weights),
        "assets": asset_set,
        "n_planned": len(plan.keys),
        "config": config.model_copy(update={"language_tasks": cast.wanted.names}).model_dump(mode="json"),
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
