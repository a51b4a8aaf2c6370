"""The manifest of a run: what was run, under which protocol, versions and hardware."""

from collections.abc import Iterator, Mapping
from typing import Any

from configs.errors import UsageError, pluralize
from configs.feedback import prompt_fields
from configs.schema import RunConfig
from eval.policies.base import LoadedPolicy
from eval.policies.resolved import ResolvedPolicy
from eval.records import provenance
from eval.records.protocol import describe_suite, protocol_hash, suite_hash
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
            sampled=whole.samples_states(suite),
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


_SAME_ON_RESUME = ("protocol", "language_tasks", "policy_inputs", "adapter", "weights_sha256")
"""Parts of the manifest that a resumed run may not change."""


def refuse_mixed_records(run: Run, plan: EpisodePlan, current: Mapping[str, Any]) -> None:
    """Reject resuming a run of other episodes, under another protocol, or with another policy or other texts.

    Raises:
        UsageError: Names the first part of the manifest that differs, or an episode that is not planned any
            more.
    """
    if not run.resumed:
        return
    begun, name = run.folder.read_manifest(), run.folder.run_id
    before, now = (dict(_leaves({part: of.get(part) for part in _SAME_ON_RESUME})) for of in (begun, current))
    for path in dict.fromkeys([*before, *now]):
        # Assets count by content, not by name.
        if not path.endswith(".assets.name") and before.get(path) != now.get(path):
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


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The plain values in nested mappings and lists, with their paths, as in `mine.suite.max_steps`."""
    if isinstance(value, Mapping | list | tuple):
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value
