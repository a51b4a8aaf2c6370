"""Plays an episode of a scripted policy under its suite's published protocol."""

import dataclasses

from configs.load import load
from configs.schema import SuiteConfig
from sim_envs.libero.experts.expert import Expert
from sim_envs.libero.sim import LiberoSim
from sim_envs.scripted.policy import ScriptedPolicy
from sim_envs.truth.ground_truth import Phase
from sim_envs.world import EpisodeKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt:
    """How an episode ended, and the phases of the expert in their order."""

    success: bool
    steps: int
    phases: tuple[Phase, ...]


def attempt(sim: LiberoSim, policy: ScriptedPolicy, init_id: int = 0) -> Attempt:
    protocol = load(SuiteConfig, sim.task.suite)
    sim.reset(init_id=init_id, seed=7, settle_steps=protocol.settle_steps)
    policy.reset(EpisodeKey(suite=sim.task.suite, task_id=sim.task.task_id, init_id=init_id, seed=7))
    steps, success = 0, False
    phases: list[Phase] = []
    while steps < protocol.max_steps and not success:
        actions = policy.query(sim.policy_state())[: min(protocol.replan_steps, protocol.max_steps - steps)]
        if isinstance(policy, Expert) and policy.phase not in phases[-1:]:
            phases.append(policy.phase)
        result = sim.advance(actions)
        steps, success = steps + result.steps, result.success
    return Attempt(success=success, steps=steps, phases=tuple(phases))
