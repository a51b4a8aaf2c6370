"""Loads the policy of an evaluation, once for all variants."""

import dataclasses
from collections.abc import Callable, Sequence

from configs.schema import PolicyConfig, RunConfig
from contracts.errors import UsageError
from eval.policies.base import LoadedPolicy
from eval.policies.resolved import ResolvedPolicy


def open_policies(
    resolved: ResolvedPolicy,
    variants: Sequence[RunConfig],
    *,
    worlds: int = 1,
    notify: Callable[[str], None] = print,
) -> list[LoadedPolicy]:
    """Load the policy, once for all variants.

    Variants differ only in scheduling, so weights and the compiled prefill and denoise are shared. `worlds`
    is the number of parallel episodes; `notify` is called with one line if a server has to be waited for, or
    a class is made several times. Refuses a checkpoint, class or server that is not available.
    """
    policy, assumed, size = resolved.policy, resolved.assumed, variants[0].batch_size
    target, kwargs = str(policy.target), policy.kwargs
    if policy.kind == "oxygen":
        from eval.policies.engine import open_engine  # compiles

        loaded = open_engine(resolved, variants, worlds=worlds)
    elif policy.kind == "python":
        from eval.policies.python import open_python

        opened = open_python(
            target,
            kwargs,
            worlds=worlds,
            batch_size=size,
            assumed=assumed,
            notify=notify,
            given=resolved.given,
        )
        loaded = [opened] * len(variants)
    elif policy.kind == "lerobot":
        suite = assumed.interface
        opened = _lerobot(policy)(target, kwargs, suite=suite, worlds=worlds, batch_size=size)
        loaded = [opened] * len(variants)
    elif policy.kind == "websocket":
        from eval.policies.websocket import open_websocket  # imports the protocol's libraries

        modes = [variant.mode for variant in variants]
        opened = open_websocket(target, kwargs, notify=notify, modes=modes, worlds=worlds, assumed=assumed)
        loaded = [opened] * len(variants)
    else:
        from eval.policies.scripted import open_scripted

        loaded = [open_scripted(policy, resolved.tasks_of(variant), variant) for variant in variants]
    return [
        each if each.fields_by_task else dataclasses.replace(each, fields_by_task=resolved.fields_by_task)
        for each in loaded
    ]


def _lerobot(policy: PolicyConfig) -> Callable[..., LoadedPolicy]:
    """What opens LeRobot's policies; a UsageError without LeRobot."""
    try:
        from eval.policies.lerobot import open_lerobot
    except ModuleNotFoundError as error:
        raise UsageError(
            f"policy lerobot:{policy.target} needs LeRobot ({error}): in an environment of Python 3.12, uv "
            "pip install 'oxygen-eval[lerobot]'; or serve it from another, by examples/serve_lerobot.py"
        ) from error
    return open_lerobot
