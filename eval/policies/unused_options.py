"""Rejects options that have no effect."""

from collections.abc import Mapping, Sequence
from typing import Any

from configs.cli import format_option
from configs.schema import RunConfig
from contracts.clock import MEASURED, PAUSED
from contracts.errors import UsageError
from contracts.mode import Mode
from eval.metrics.language import HEADLINES
from eval.policies.resolved import read_policy, resolve_policy

_BUDGET_OPTIONS = ("tokens_per_frame", "deadline_ms")
_ADAPTER_OPTIONS = ("adapter", "adapter_mask")
_TEXT_OPTIONS = ("language_tasks", "text_every", "decode_weights", *_ADAPTER_OPTIONS, *_BUDGET_OPTIONS)
_CLOCK_OPTIONS = ("while_waiting", "overlap")
_MODEL_OPTIONS = (
    *("random_weights", "dtype", "decode_weights", "batch_size"),
    *_ADAPTER_OPTIONS,
    *_BUDGET_OPTIONS,
)


def refuse_unused_options(given: Mapping[str, Any], variants: Sequence[RunConfig]) -> None:
    """Reject options of the command line, by their names in `RunConfig`, without effect in any variant.

    Options of a preset are accepted.
    """
    for option in _CLOCK_OPTIONS:
        if option in given and variants[0].clock == PAUSED:
            is_for = "clocks on which time passes while the policy computes"
            raise _unused(option, given, is_for, "choose one with --clock, such as profile:h200")
    refuse_model_options(given, [variants[0].policy])
    resolved, modes = resolve_policy(variants[0]), [variant.mode for variant in variants]
    name, writes = resolved.policy.name, resolved.policy.generates_text
    charges_server = (given.get("policy_kwargs") or {}).get("charge") == "server"
    clocks = [variant.clock for variant in variants]
    if charges_server and resolved.policy.kind == "websocket" and MEASURED not in clocks:
        is_for = f"clock measured, and this is {clocks[0]}"
        raise _unused("policy_kwargs", {"policy_kwargs": "charge=server"}, is_for, "give --clock measured")
    for option in _TEXT_OPTIONS:
        if not given.get(option):  # an empty list asks for no texts
            continue
        effective = [mode for mode in Mode if option not in unused_in(mode)]
        if not set(modes) & set(effective):
            is_for = f"mode {', '.join(effective)}, and this is {', '.join(modes)}"
            raise _unused(option, given, is_for, f"add a variant: --mode {' '.join([*modes, 'unified'])}")
        if resolved.policy.kind != "oxygen" and writes is None:
            does = "decides itself what it writes" if resolved.policy.is_foreign else "generates no text"
            remedy = "choose another, such as --policy tiny or expert"
            raise _unused(option, given, f"texts, and policy {name} {does}", remedy)
        if not resolved.tasks:
            is_for = "texts, and there are no language tasks"
            raise _unused(option, given, is_for, "give --language-tasks")
    unwritten = [task.name for task in resolved.tasks if task.name not in HEADLINES]
    if given.get("language_tasks") and unwritten and writes == "truth":
        shown = format_option("language_tasks", given["language_tasks"])
        truth = f"policy {name} writes the ground truth, which has no {', '.join(unwritten)}"
        raise UsageError(f"{shown}: {truth}; leave it out, or give some of {', '.join(HEADLINES)}")
    if "video_every" in given and variants[0].video == "none":
        is_for = "videos, and none are recorded"
        raise _unused("video_every", given, is_for, "give --video failures or all")


def refuse_model_options(given: Mapping[str, Any], policies: Sequence[str]) -> None:
    """Reject options of models if no policy, or checkpoint, is one of this project's."""
    unused = [option for option in _MODEL_OPTIONS if option in given]
    kinds = [read_policy(each).kind for each in policies] if unused else []
    if unused == ["batch_size"] and {"python", "lerobot"} & {*kinds}:  # only loading tells whether it batches
        return
    if unused and "oxygen" not in kinds:
        kind = {"python": "a Python class", "websocket": "a server", "lerobot": "LeRobot's"}
        is_for = f"this project's models, and {policies[0]} is {kind.get(kinds[0], 'scripted')}"
        raise _unused(unused[0], given, is_for, "choose another, such as --policy tiny")


def _unused(option: str, given: Mapping[str, Any], is_for: str, remedy: str) -> UsageError:
    return UsageError(f"{format_option(option, given[option])} is for {is_for}; leave it out, or {remedy}")


def unused_in(mode: Mode) -> frozenset[str]:
    """Names of the options in `RunConfig` that have no effect in a mode."""
    unused = {Mode.UNIFIED: (), Mode.INTERLEAVED: ("deadline_ms",), Mode.ACTIONS: _TEXT_OPTIONS}
    return frozenset(unused.get(mode, _BUDGET_OPTIONS))
