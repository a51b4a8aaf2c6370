"""Runs a plan of episodes from beginning to end, or from where it was interrupted."""

import datetime as dt
import shlex
import sys
from typing import Any

from configs.errors import UsageError
from eval import provenance
from eval.console import Console
from eval.episode import Stage, run_episode
from eval.interrupts import Interrupts
from eval.json_files import write_json
from eval.plan import EpisodePlan, make_plan
from eval.policies import Cast, Policy, open_policy, read_cast
from eval.policy_names import weights_sha256
from eval.protocol import describe_suite, hash_of
from eval.recorder import EpisodeRecorder
from eval.records import Outcome
from eval.results import summarize
from eval.runs import Run
from eval.worlds import WorldHolder
from sim_envs.libero.assets import AssetSet, find_assets
from sim_envs.libero.blas import KERNELS, pin_kernels

NOTHING_GRADED = 1
"""Exit code of a run in which every episode was an error."""


def run_evaluation(run: Run) -> int:
    """Run what is left of the run, write its results and print its table.

    Returns:
        The exit code: 0, or 1 if no episode could be graded.

    Raises:
        UsageError: Before anything is written: a suite, task, policy or asset tree that does not exist, or
            a run that another process is still at.
        KeyboardInterrupt: After what was done is safe on disk.
    """
    plan = make_plan(run.config)
    cast = read_cast(run.config)
    assets = find_assets(run.config.assets)
    policy = open_policy(cast, run.config)
    manifest = _manifest(run, plan, cast, assets, policy)
    if run.resumed:
        _refuse_another_protocol(run, manifest)
    with run.folder.claimed():
        run.folder.write_manifest(manifest)
        console = Console(run, plan, assets)
        try:
            with WorldHolder(assets) as worlds, Interrupts() as interrupts, console:
                _run_all(run, plan, Stage(worlds=worlds, policy=policy, interrupts=interrupts), console)
        except KeyboardInterrupt:
            run.folder.write_manifest({**manifest, "status": "interrupted", "finished": _now()})
            console.interrupted()
            raise
        return _conclude(run, manifest, console)


def _conclude(run: Run, manifest: dict[str, Any], console: Console) -> int:
    run.folder.write_manifest({**manifest, "status": "complete", "finished": _now()})
    results = summarize(run.folder.path)
    write_json(run.folder.results_path, results)
    console.table(results)
    return 0 if results["overall"]["n_episodes"] else NOTHING_GRADED


def _run_all(run: Run, plan: EpisodePlan, stage: Stage, console: Console) -> None:
    recorded = run.folder.episodes()
    for task in plan.tasks:
        for key in task.keys:
            result = recorded.get(key)
            if result is None or result.outcome is Outcome.ERROR:
                recorder = EpisodeRecorder(run.folder, task, key, run.config)
                result = run_episode(stage, task, key, recorder)
                run.folder.append(result)
            console.episode(result)


def _manifest(run: Run, plan: EpisodePlan, cast: Cast, assets: AssetSet, policy: Policy) -> dict[str, Any]:
    asset_set = {"name": assets.name, "digest": assets.digest}
    protocol = {
        name: describe_suite(
            suite, assets=asset_set, policy_inputs=policy.inputs, wordings=run.config.wordings
        )
        for name, suite in plan.protocols.items()
    }
    return {
        "run_id": run.folder.run_id,
        "status": "running",
        "started": run.folder.read_manifest()["started"] if run.resumed else _now(),
        "finished": None,
        "command": shlex.join(["python", "-m", "eval.libero", *sys.argv[1:]]),
        "mode": run.config.mode,
        "policy": run.config.policy,
        "weights_sha256": None if run.config.random_weights else weights_sha256(cast.policy),
        "assets": asset_set,
        "n_planned": len(plan.keys),
        "config": run.config.model_dump(mode="json"),
        "protocol": protocol,
        "protocol_hash": hash_of(protocol),
        "suite_hashes": {name: hash_of(description) for name, description in protocol.items()},
        "git": provenance.git_state(),
        "versions": provenance.versions(),
        "hardware": {**provenance.hardware(), "blas_kernels": KERNELS if pin_kernels() else None},
    }


def _refuse_another_protocol(run: Run, manifest: dict[str, Any]) -> None:
    before = run.folder.read_manifest()["protocol_hash"]
    if before != manifest["protocol_hash"]:
        raise UsageError(
            f"{run.folder.run_id} was run under protocol {before}, this is {manifest['protocol_hash']} "
            "(other versions or assets); start a new run without --resume"
        )


def _now() -> str:
    return dt.datetime.now().astimezone().isoformat(timespec="seconds")
