"""The manifest of a run: what was run, under which protocol, versions and hardware."""

from collections.abc import Mapping
from typing import Any

from configs.errors import UsageError, pluralize
from configs.feedback import prompt_fields
from configs.schema import RunConfig
from eval.policies.base import LoadedPolicy
from eval.policies.resolved import ResolvedPolicy
from eval.records import provenance
from eval.records.protocol import describe_suite, format_inputs, protocol_hash, suite_hash
from eval.records.run_folders import Run, policy_name
from eval.rollout.clock import PAUSED, Clock
from eval.rollout.plan import EpisodePlan
from oxygen.presets.policies import adapter_identity, weights_sha256
from sim_envs.blas import KERNELS, pin_kernels


def describe_run(
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
            sampled=whole.samples_states(name),
            clock=timing,
            feedback=(config.feedback or "own") if policy.feedback else None,
        )
        for name, suite in whole.suites.items()
    }
    formats = {each.field: each.format for each in prompt_fields(policy.feedback)}
    inputs = {"feedback": formats} if formats else {}
    return {
        "command": provenance.command(),
        "mode": config.mode,
        "policy": policy_name(config.policy),
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
        "hardware": {**provenance.hardware(), "blas_kernels": KERNELS if pin_kernels() else None},
    }


def refuse_mixed_records(run: Run, current: Mapping[str, Any]) -> None:
    """Reject resuming a run of other episodes, under another protocol, or with another policy or other texts.

    Raises:
        UsageError: The protocol, the number of episodes, the language tasks, the policy's inputs or its
            weights differ from the recorded ones. Older manifests do not have the language tasks.
    """
    if not run.resumed:
        return
    before = run.folder.read_manifest()
    protocol, now_under = protocol_hash(before["protocol"]), current["protocol_hash"]
    if protocol != now_under:
        differs = _first_difference(_by_content(before["protocol"]), _by_content(current["protocol"]))
        raise UsageError(
            f"{run.folder.run_id} was run under protocol {protocol}, this is {now_under}: {differs} has "
            "changed; put it back, or start a new run without --resume"
        )
    if before["n_planned"] != current["n_planned"]:
        raise UsageError(
            f"{run.folder.run_id} was begun with {pluralize(before['n_planned'], 'episode')}, this has "
            f"{current['n_planned']}: `trials_per_task` of a suite has changed; put it back, or start a new "
            "run without --resume"
        )
    tasks = {"language_tasks": before.get("language_tasks", current["language_tasks"])}
    if differs := _first_difference(tasks, {"language_tasks": current["language_tasks"]}):
        raise UsageError(
            f"{run.folder.run_id} was run with other texts: {differs} has changed; put it back, or start a "
            "new run without --resume"
        )
    if before["policy_inputs"] != current["policy_inputs"]:
        raise UsageError(
            f"{run.folder.run_id} showed its policy {format_inputs(before['policy_inputs'])}, this is "
            f"{format_inputs(current['policy_inputs'])}; start a new run without --resume"
        )
    adapter, other = before.get("adapter"), current["adapter"]
    if adapter != other:
        raise UsageError(
            f"{run.folder.run_id} was run with adapter {adapter and adapter['sha256'][:12]}, this has "
            f"{other and other['sha256'][:12]}; put the first one back, or start a new run without --resume"
        )
    weights, other = before["weights_sha256"], current["weights_sha256"]
    if weights != other:
        first, second = (each[:12] if each else "without a digest" for each in (weights, other))
        raise UsageError(
            f"{run.folder.run_id} was run with weights {first}, {current['policy']} now has {second}; put "
            "the first ones back, or start a new run without --resume"
        )


def _by_content(protocol: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A protocol as it is hashed: assets by content, not by name."""
    return {name: {**suite, "assets": suite["assets"]["digest"]} for name, suite in protocol.items()}


def _first_difference(before: Any, now: Any) -> str | None:
    """The path of the first value that differs, as in `mine.suite.max_steps`; None if there is none."""
    if isinstance(before, (list, tuple)) and isinstance(now, (list, tuple)):
        before, now = dict(enumerate(before)), dict(enumerate(now))
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return None if before == now else ""
    for key in dict.fromkeys([*before, *now]):
        if key not in before or key not in now:
            return str(key)
        if (inner := _first_difference(before[key], now[key])) is not None:
            return f"{key}.{inner}".removesuffix(".")
    return None
