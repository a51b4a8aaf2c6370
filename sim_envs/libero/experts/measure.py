"""Plays scripted policies under a suite's published protocol and counts successes."""

import dataclasses
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from configs.load import load
from configs.schema import SuiteConfig
from sim_envs.libero.assets import AssetSet
from sim_envs.libero.experts.expert import Expert
from sim_envs.libero.experts.policies import scripted_policy
from sim_envs.libero.experts.skills import NoSkillError
from sim_envs.libero.sim import LiberoSim
from sim_envs.libero.tasks import LiberoTask
from sim_envs.scripted.policy import ScriptedPolicy
from sim_envs.world import EpisodeKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt:
    """How one episode went.

    Attributes:
        key: Which episode.
        success: Whether the goal held within the step limit.
        steps: Control steps taken.
        phases: What the expert was busy with, and from which step on; empty for the controls.
        no_skill: Why the expert could not even try; empty if it could.
    """

    key: EpisodeKey
    success: bool
    steps: int
    phases: tuple[tuple[int, str], ...]
    no_skill: str = ""

    def as_record(self) -> dict[str, Any]:
        """One line of JSON."""
        return {**dataclasses.asdict(self.key), **dataclasses.asdict(self), "key": str(self.key)}


def attempt(sim: LiberoSim, policy: ScriptedPolicy, key: EpisodeKey, protocol: SuiteConfig) -> Attempt:
    """Play one episode, replanning as the protocol says."""
    sim.reset(init_id=key.init_id, seed=key.seed, settle_steps=protocol.settle_steps)
    policy.reset(key)
    steps, success = 0, False
    phases: list[tuple[int, str]] = []
    while steps < protocol.max_steps and not success:
        actions = policy.query(sim.policy_state())[: min(protocol.replan_steps, protocol.max_steps - steps)]
        if isinstance(policy, Expert) and (not phases or phases[-1][1] != policy.phase):
            phases.append((steps, str(policy.phase)))
        result = sim.advance(actions)
        steps, success = steps + result.steps, result.success
    return Attempt(key=key, success=success, steps=steps, phases=tuple(phases))


def attempts(
    policy: str,
    tasks: Iterable[LiberoTask],
    init_ids: Sequence[int],
    *,
    seed: int,
    assets: AssetSet,
    noise: float = 0.0,
) -> Iterator[Attempt]:
    """Play one episode per task and initial state.

    A task that the expert has no skill for is not played; its episodes are failures that say why.

    Args:
        policy: Name of a scripted policy.
        tasks: Which tasks, of one or several suites.
        init_ids: Which of each task's initial states.
        seed: Of every episode.
        assets: What the tasks are built from.
        noise: The expert's noise, from 0 to 1.

    Raises:
        UsageError: The policy, the noise, the tasks or the assets are not what they have to be.
    """
    for task in tasks:
        keys = [
            EpisodeKey(suite=task.suite, task_id=task.task_id, init_id=init_id, seed=seed)
            for init_id in init_ids
        ]
        protocol = load(SuiteConfig, task.suite)
        with LiberoSim(task, assets=assets) as sim:
            try:
                playing = scripted_policy(policy, sim, noise)
            except NoSkillError as error:
                yield from (
                    Attempt(key=key, success=False, steps=0, phases=(), no_skill=str(error)) for key in keys
                )
                continue
            yield from (attempt(sim, playing, key, protocol) for key in keys)


def summary(done: Sequence[Attempt]) -> Mapping[str, Any]:
    """Successes by suite and task, mean steps of the successes, and which initial states failed."""
    return {suite: _suite_summary([a for a in done if a.key.suite == suite]) for suite in _suites(done)}


def _suites(done: Sequence[Attempt]) -> list[str]:
    return list(dict.fromkeys(a.key.suite for a in done))


def _suite_summary(done: Sequence[Attempt]) -> dict[str, Any]:
    task_ids = dict.fromkeys(a.key.task_id for a in done)
    return {**_counts(done), "tasks": {t: _counts([a for a in done if a.key.task_id == t]) for t in task_ids}}


def _counts(done: Sequence[Attempt]) -> dict[str, Any]:
    steps = [a.steps for a in done if a.success]
    reasons = sorted({a.no_skill for a in done if a.no_skill})
    return {
        "successes": len(steps),
        "episodes": len(done),
        "mean_steps": round(statistics.mean(steps), 1) if steps else None,
        "max_steps": max(steps, default=None),
        "failed": [str(a.key) for a in done if not a.success],
        **({"no_skill": reasons} if reasons else {}),
    }
