"""The manifest of a run, and what a resumed run may not change of it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contracts.errors import UsageError, pluralize
from contracts.perturbation import format_perturbations
from contracts.prompt import prompt_fields
from contracts.redaction import redact
from contracts.text_source import OWN
from eval.policies.base import LoadedPolicy
from eval.policies.resolved import ResolvedPolicy
from eval.records import provenance
from eval.records.protocol import (
    by_content,
    describe_suite,
    differences_of,
    leaves_of,
    name_protocol,
    protocol_hash,
    suite_hash,
    without,
)
from eval.records.reader import RunRecords, identity_of
from eval.records.run_folders import Run, policy_name
from eval.records.schema import RunFolder
from eval.rollout.episode import Variant
from eval.rollout.plan import EpisodePlan
from eval.rollout.pricing import UNCHARGED
from oxygen.presets.policies import adapter_identity, weights_sha256
from sim_envs.blas import pinned_kernels


def describe_run(variant: Variant, resolved: ResolvedPolicy, policy: LoadedPolicy) -> dict[str, Any]:
    """The manifest of a run without its name, variants, times and status."""
    config, plan, pricing = variant.run.config, variant.plan, variant.pricing
    preset, whole = resolved.policy, plan.undivided or plan
    timing: dict[str, Any] = {}
    if pricing != UNCHARGED:
        overlap = {} if config.overlap == "skip" else {"overlap": config.overlap}
        timing = {**pricing.describe(), "while_waiting": config.while_waiting, **overlap}
    protocol = {
        name: describe_suite(
            suite,
            wordings=config.wordings,
            states=whole.sources(suite),
            clock=timing,
            feedback=str(config.feedback or OWN) if policy.fields_by_task else None,
        )
        for name, suite in whole.suites.items()
    }
    fields: dict[str, Any] = {}  # and what differs from the default of each
    for each in prompt_fields(policy.fields_by_task):
        fields[each.field] = each.format
        for part in dataclasses.fields(each):
            value = getattr(each, part.name)
            if part.default not in (dataclasses.MISSING, value):
                fields[f"{each.field} {part.name}"] = value
    inputs = {"feedback": fields} if fields else {}
    recorded = config.model_copy(update={"language_tasks": resolved.task_names}).model_dump(mode="json")
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
        "config": recorded,
        "protocol": protocol,
        "protocol_name": name_protocol(recorded, protocol)[0],
        "protocol_hash": protocol_hash(protocol),
        "suite_hashes": {name: suite_hash(description) for name, description in protocol.items()},
        "policy_inputs": {**policy.inputs, **inputs},
        "git": provenance.git_state(),
        "versions": provenance.versions(),
        "hardware": {
            **provenance.hardware(),
            **({"policy": dict(policy.runs_on)} if policy.runs_on else {}),
            "blas_kernels": pinned_kernels(),
        },
    }


_SAME_ON_RESUME = (
    *("protocol", "language_tasks", "policy_options", "policy_inputs"),
    *("adapter", "weights_sha256"),
)
"""Parts of the manifest that a resumed run may not change, if it recorded them."""
_FOLLOWS = ("policy_inputs.privileged_state", "policy_inputs.nothing")
"""What follows from the policy. Earlier versions recorded privileged state of `noop` and `random`, too."""


def refuse_mixed_records(run: Run, plan: EpisodePlan, current: Mapping[str, Any]) -> None:
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


def refuse_other_control(run: Run, plan: EpisodePlan, current: Mapping[str, Any]) -> None:
    """Reject a `control` that is not the same run without perturbations, or lacks episodes."""
    if run.config.control is None:
        return
    control = RunRecords(RunFolder(Path(run.config.control)))
    name, identity = control.folder.run_id, control.identity
    if identity.perturb:
        changed = format_perturbations(identity.perturb)
        raise UsageError(
            f"--control {name} is perturbed itself ({changed}); give a run without perturbations"
        )
    own = without(["perturb"], current["protocol"])
    played = control.folder.read_manifest()["protocol"]
    other = {suite: each for suite, each in played.items() if suite in own} or played
    if differences_of(other, own):
        told = "; ".join(differences_of(other, own))
        raise UsageError(
            f"--control {name} ran under another protocol ({told}); leave it out to play another"
        )
    known = {**current, "run_id": run.folder.run_id, "status": "running"}
    theirs, mine = identity.policy_and_schedule, identity_of(known, run.folder.run_id).policy_and_schedule
    if unlike := [
        f"{part.replace('_', ' ')} {theirs.get(part)} and {mine.get(part)}"
        for part in dict.fromkeys([*theirs, *mine])
        if theirs.get(part) != mine.get(part)
    ]:
        raise UsageError(
            f"--control {name} was played otherwise ({'; '.join(unlike)}); give a run of the same policy and "
            "mode, or leave it out to play one"
        )
    if missing := [key for key in plan.keys if key not in control.episodes]:
        raise UsageError(
            f"--control {name} lacks {pluralize(len(missing), 'episode')} of this run, first {missing[0]}; "
            "give the same tasks, initial states and seed, or leave it out"
        )


def _compared(value: Any, part: str) -> Any:
    return {suite: by_content(each) for suite, each in value.items()} if part == "protocol" else value
