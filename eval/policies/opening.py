"""Opens the policy of a run, whatever kind it is."""

from collections.abc import Callable, Sequence

from configs.schema import RunConfig
from eval.policies.base import OpenPolicy
from eval.policies.python import open_python
from eval.policies.resolved import ResolvedPolicy
from eval.policies.scripted import open_scripted


def open_policies(
    resolved: ResolvedPolicy,
    variants: Sequence[RunConfig],
    *,
    worlds: int = 1,
    notify: Callable[[str], None] = print,
) -> list[OpenPolicy]:
    """The policy in every variant of a run, ready to act.

    The variants differ in how they are served alone: a model is loaded and its prefill and denoise are
    compiled once, which takes seconds.

    Args:
        resolved: The policy and its texts.
        variants: The runs.
        worlds: How many episodes each is in at once.
        notify: Told in one line what is waited for, if that may take a while.

    Raises:
        UsageError: Its checkpoint, class or server is not to be had.
    """
    policy = resolved.policy
    if policy.kind == "oxygen":
        from eval.policies.engine import open_engine  # imports JAX

        return open_engine(resolved, variants, worlds=worlds)
    if policy.kind == "python":
        return [open_python(str(policy.target), policy.kwargs, worlds=worlds)] * len(variants)
    if policy.kind == "websocket":
        from eval.policies.websocket import open_websocket  # imports the protocol's libraries

        return [open_websocket(str(policy.target), policy.kwargs, notify=notify)] * len(variants)
    return [open_scripted(policy, resolved.tasks_of(variant), variant) for variant in variants]
