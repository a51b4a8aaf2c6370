"""Scripted policies by name."""

from collections.abc import Callable, Mapping

from configs.errors import UsageError, unknown
from sim_envs.libero.conventions import LIBERO_INTERFACE
from sim_envs.libero.experts.expert import Expert
from sim_envs.libero.experts.scene import Simulator
from sim_envs.scripted.policy import Noop, Random, ScriptedPolicy

SCRIPTED_POLICIES: Mapping[str, Callable[[Simulator, float], ScriptedPolicy]] = {
    "expert": Expert,
    "noop": lambda _, noise: _unvaried("noop", Noop(LIBERO_INTERFACE), noise),
    "random": lambda _, noise: _unvaried("random", Random(LIBERO_INTERFACE), noise),
}


def scripted_policy(name: str, sim: Simulator, noise: float = 0.0) -> ScriptedPolicy:
    """The policy of that name, bound to a simulator.

    Args:
        name: Name of the policy.
        sim: A simulator with a task loaded.
        noise: Variation of the expert's pace and path, and frequency of mistakes, from 0 to 1.

    Raises:
        UsageError: Unknown policy, the policy cannot do the task, or it does not support noise.
    """
    refuse_unknown(name)
    return SCRIPTED_POLICIES[name](sim, noise)


def refuse_unknown(name: str) -> None:
    """Raise a UsageError if there is no scripted policy of that name."""
    if name not in SCRIPTED_POLICIES:
        raise unknown("scripted policy", name, SCRIPTED_POLICIES)


def _unvaried(name: str, policy: ScriptedPolicy, noise: float) -> ScriptedPolicy:
    if noise != 0.0:
        raise UsageError(f"expert noise is {noise}, but the policy {name!r} takes none: leave it out")
    return policy
