"""Opens the policy of a run, whatever kind it is."""

from collections.abc import Sequence

from configs.schema import RunConfig
from eval.policies.base import OpenPolicy
from eval.policies.resolved import ResolvedPolicy
from eval.policies.scripted import open_scripted


def open_policies(resolved: ResolvedPolicy, variants: Sequence[RunConfig]) -> list[OpenPolicy]:
    """The policy in every variant of a run, ready to act.

    The variants differ in their modes alone: a model is loaded and compiled once, which takes seconds.

    Raises:
        UsageError: Its checkpoint, class or server is not to be had.
    """
    policy = resolved.policy
    if policy.kind == "oxygen":
        from eval.policies.engine import open_engine  # imports JAX

        return open_engine(resolved, variants)
    return [open_scripted(policy, resolved.tasks, variant) for variant in variants]
