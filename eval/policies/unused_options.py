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
            raise UsageError(
                f"{format_option(option, given[option])} is for clocks on which time passes while the policy "
                "computes; leave it out, or choose one with --clock, such as profile:h200"
            )
    refuse_model_options(given, [variants[0].policy])
    resolved, modes = resolve_policy(variants[0]), [variant.mode for variant in variants]
    charges_server = (given.get("policy_kwargs") or {}).get("charge") == "server"
    clocks = [variant.clock for variant in variants]
    if charges_server and resolved.policy.kind == "websocket" and MEASURED not in clocks:
        raise UsageError(
            f"--policy-kwargs charge=server is for clock measured, and this is {clocks[0]}; leave it out, or "
            "give --clock measured"
        )
    for option in _TEXT_OPTIONS:
        if not given.get(option):  # an empty list asks for no texts
            continue
        shown = format_option(option, given[option])
        effective = [mode for mode in Mode if option not in unused_in(mode)]
        if not set(modes) & set(effective):
            raise UsageError(
                f"{shown} is for mode {', '.join(effective)}, and this is {', '.join(modes)}; leave it out, "
                f"or add a variant: --mode {' '.join([*modes, 'unified'])}"
            )
        if resolved.policy.kind != "oxygen" and resolved.policy.generates_text is None:
            name = resolved.policy.name
            writes = "decides itself what it writes" if resolved.policy.is_foreign else "generates no text"
            raise UsageError(
                f"{shown}: policy {name} {writes}; leave it out, or choose another, such as --policy tiny or "
                "expert"
            )
        if not resolved.tasks:
            raise UsageError(
                f"{shown} is for texts, and there are no language tasks; leave it out, or give "
                "--language-tasks"
            )
    unwritten = [task.name for task in resolved.tasks if task.name not in HEADLINES]
    if given.get("language_tasks") and unwritten and resolved.policy.generates_text == "truth":
        raise UsageError(
            f"{format_option('language_tasks', given['language_tasks'])}: policy {resolved.policy.name} "
            f"writes the ground truth, which has no {', '.join(unwritten)}; leave it out, or give some of "
            f"{', '.join(HEADLINES)}"
        )
    if "video_every" in given and variants[0].video == "none":
        raise UsageError(
            f"{format_option('video_every', given['video_every'])} is for videos, and none are recorded; "
            "leave it out, or give --video failures or all"
        )


def refuse_model_options(given: Mapping[str, Any], policies: Sequence[str]) -> None:
    """Reject options of models if no policy, or checkpoint, is one of this project's."""
    unused = [option for option in _MODEL_OPTIONS if option in given]
    if not unused:
        return
    kinds = [read_policy(each).kind for each in policies]
    if unused == ["batch_size"] and {"python", "lerobot"} & {*kinds}:  # only loading tells whether it batches
        return
    if "oxygen" not in kinds:
        kind = {"python": "a Python class", "websocket": "a server", "lerobot": "LeRobot's"}.get(
            kinds[0], "scripted"
        )
        raise UsageError(
            f"{format_option(unused[0], given[unused[0]])} is for this project's models, and {policies[0]} "
            f"is {kind}; leave it out, or choose another, such as --policy tiny"
        )


def unused_in(mode: Mode) -> frozenset[str]:
    """Names of the options in `RunConfig` that have no effect in a mode."""
    match mode:
        case "unified":
            return frozenset()
        case "interleaved":
            return frozenset({"deadline_ms"})
        case "actions":
            return frozenset(_TEXT_OPTIONS)
        case _:
            return frozenset(_BUDGET_OPTIONS)
