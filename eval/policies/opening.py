"""Loads the policy of a run, of any kind."""

import dataclasses
from collections.abc import Callable, Sequence

from configs.schema import RunConfig
from eval.policies.base import LoadedPolicy
from eval.policies.python import open_python
from eval.policies.resolved import ResolvedPolicy
from eval.policies.scripted import open_scripted


def open_policies(
    resolved: ResolvedPolicy,
    variants: Sequence[RunConfig],
    *,
    worlds: int = 1,
    notify: Callable[[str], None] = print,
) -> list[LoadedPolicy]:
    """Load the policy, once for all variants.

    Variants differ only in scheduling, so weights and the compiled prefill and denoise are shared.

    Args:
        resolved: The policy and its language tasks.
        variants: The runs.
        worlds: Number of parallel episodes.
        notify: Called with one line if a server has to be waited for.

    Raises:
        UsageError: The checkpoint, class or server is not available.
    """
    loaded = _opened(resolved, variants, worlds, notify)
    return [
        each if each.feedback else dataclasses.replace(each, feedback=resolved.feedback) for each in loaded
    ]


def _opened(
    resolved: ResolvedPolicy, variants: Sequence[RunConfig], worlds: int, notify: Callable[[str], None]
) -> list[LoadedPolicy]:
    policy = resolved.policy
    if policy.kind == "oxygen":
        from eval.policies.engine import open_engine  # imports JAX

        return open_engine(resolved, variants, worlds=worlds)
    if policy.kind == "python":
        return [open_python(str(policy.target), policy.kwargs, worlds=worlds)] * len(variants)
    if policy.kind == "websocket":
        from eval.policies.websocket import open_websocket  # imports the protocol's libraries

        modes = [variant.mode for variant in variants]
        server = open_websocket(str(policy.target), policy.kwargs, notify=notify, modes=modes, worlds=worlds)
        return [server] * len(variants)
    return [open_scripted(policy, resolved.tasks_of(variant), variant) for variant in variants]
