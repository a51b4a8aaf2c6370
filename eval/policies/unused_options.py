"""Refuses options that were given and can have no effect: whoever gives one expects some."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from configs.cli import spelt
from configs.errors import UsageError
from configs.schema import Mode, RunConfig
from eval.policies.names import read_policy
from eval.policies.resolved import ResolvedPolicy, resolve_policy

_OF_A_FRAME = ("tokens_per_frame", "deadline_ms")
_OF_TEXTS = ("language_tasks", "text_every", *_OF_A_FRAME)
_OF_A_CLOCK = ("while_waiting", "overlap")
_OF_A_MODEL = ("random_weights", "dtype", "batch_size", *_OF_A_FRAME)


def refuse_unused_options(given: Mapping[str, Any], variants: Sequence[RunConfig]) -> None:
    """Refuse what no variant of an evaluation would heed.

    Args:
        given: The options on the command line, by their names in `RunConfig`. What a preset says is none: it
            may be of use to another variant, or to another policy.
        variants: What they led to.

    Raises:
        UsageError: Names the first such option, what it is for, and the way out; or there is no such policy
            or language task.
    """
    for option in _OF_A_CLOCK:
        if option in given and variants[0].clock == "paused":
            raise UsageError(
                f"{spelt(option, given[option])} is for clocks on which time passes while the policy "
                "computes; leave it out, or choose one with --clock, such as profile:jetson-thor"
            )
    refuse_model_options(given, [variants[0].policy])
    resolved, modes = resolve_policy(variants[0]), [variant.mode for variant in variants]
    for option in _OF_TEXTS:
        if given.get(option):  # no language tasks at all are none to be heeded
            _refuse_in_modes(option, spelt(option, given[option]), modes)
            _refuse_without_texts(spelt(option, given[option]), resolved)


def refuse_model_options(given: Mapping[str, Any], policies: Sequence[str]) -> None:
    """Refuse what only a model can heed where every policy is scripted.

    Args:
        given: The options on the command line, by their names in the configuration.
        policies: Who acts: names, or paths of checkpoints. They are read only if something is to be heeded.

    Raises:
        UsageError: Names the first such option; or there is no such policy.
    """
    idle = [option for option in _OF_A_MODEL if option in given]
    if idle and not any(read_policy(each).kind == "oxygen" for each in policies):
        raise UsageError(
            f"{spelt(idle[0], given[idle[0]])} is for a policy with a model, and {policies[0]} is "
            "scripted; leave it out, or choose another, such as --policy tiny"
        )


def unused_in(mode: Mode) -> frozenset[str]:
    """The options that a run in a mode does not heed, by their names in `RunConfig`."""
    if mode == "unified":
        return frozenset()
    return frozenset(_OF_TEXTS if mode == "actions" else _OF_A_FRAME)


def _refuse_in_modes(option: str, said: str, modes: Sequence[Mode]) -> None:
    heeding = [mode for mode in get_args(Mode) if option not in unused_in(mode)]
    if not set(modes) & set(heeding):
        raise UsageError(
            f"{said} is for mode {', '.join(heeding)}, and this is {', '.join(modes)}; leave it out, or add "
            f"a variant: --mode {' '.join([*modes, 'unified'])}"
        )


def _refuse_without_texts(said: str, resolved: ResolvedPolicy) -> None:
    silent = resolved.policy.kind != "oxygen" and resolved.policy.speaks is None
    if silent:
        raise UsageError(
            f"{said}: policy {resolved.policy.name} says nothing; leave it out, or choose one that speaks, "
            "such as --policy tiny or expert"
        )
    if not resolved.tasks:
        raise UsageError(
            f"{said} is for texts, and none is asked for; leave it out, or name some with --language-tasks"
        )
