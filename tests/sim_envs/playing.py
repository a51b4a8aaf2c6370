"""Plays an episode of a scripted policy under its suite's published protocol, or an expert on other goals."""

from typing import Any, NamedTuple

import numpy as np

from configs.load import load
from configs.schema import SuiteConfig
from sim_envs.libero.experts.expert import Expert
from sim_envs.libero.experts.scene import ExpertScene, Goal
from sim_envs.libero.sim import LiberoSim
from sim_envs.scripted.policy import ScriptedPolicy
from sim_envs.truth.ground_truth import Phase
from sim_envs.world import EpisodeKey


class Attempt(NamedTuple):
    """How an episode ended."""

    success: bool
    steps: int


def key_of(sim: LiberoSim, init_id: int = 0) -> EpisodeKey:
    return EpisodeKey(suite=sim.task.suite, task_id=sim.task.task_id, init_id=init_id, seed=7)


def attempt(
    world: Any, policy: ScriptedPolicy, init_id: int = 0, *, key: EpisodeKey | None = None
) -> Attempt:
    """An episode of any world; in LIBERO's simulator, of its own task unless a key is given."""
    key = key or key_of(world, init_id)
    protocol = load(SuiteConfig, key.suite)
    world.reset(init_id=key.init_id, seed=key.seed, settle_steps=protocol.settle_steps)
    policy.reset(key)
    steps, success = 0, False
    while steps < protocol.max_steps and not success:
        actions = policy.query(world.policy_state())[: min(protocol.replan_steps, protocol.max_steps - steps)]
        result = world.advance(actions)
        steps, success = steps + result.steps, result.success
    return Attempt(success, steps)


def work_on(sim: LiberoSim, goals: list[Goal], *, steps: int) -> ExpertScene:
    """Let LIBERO's expert work on these goals instead of the task's until it has come to rest."""
    own = sim.env.parsed_problem
    sim.env.parsed_problem = {**own, "goal_state": [[goal.predicate, *goal.arguments] for goal in goals]}
    try:
        expert, taken = Expert(sim), 0
        expert.reset(key_of(sim))
        while expert.phase is not Phase.DONE and taken < steps:
            taken += sim.advance(expert.query(np.empty(8))[:5]).steps
    finally:
        sim.env.parsed_problem = own
    return ExpertScene(sim.env)
