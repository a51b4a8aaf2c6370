"""The scripted policies by name."""

from collections.abc import Callable, Mapping

from configs.errors import unknown
from sim_envs.experts.controls import Noop, Random, ScriptedPolicy
from sim_envs.experts.expert import Expert
from sim_envs.experts.scene import Simulator

SCRIPTED_POLICIES: Mapping[str, Callable[[Simulator], ScriptedPolicy]] = {
    "expert": Expert,
    "noop": lambda _: Noop(),
    "random": lambda _: Random(),
}


def scripted_policy(name: str, sim: Simulator) -> ScriptedPolicy:
    """The policy of that name, bound to a simulator.

    Raises:
        UsageError: No such policy, or it cannot do the simulator's task.
    """
    if name not in SCRIPTED_POLICIES:
        raise unknown("scripted policy", name, SCRIPTED_POLICIES)
    return SCRIPTED_POLICIES[name](sim)
