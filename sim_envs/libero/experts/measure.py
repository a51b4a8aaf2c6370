"""Plays scripted policies under a suite's published protocol and counts successes."""

import contextlib
import dataclasses
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from configs.load import load
from configs.motion import Drift, Shuttle
from configs.schema import SuiteConfig
from sim_envs.job_queue import JobQueue
from sim_envs.libero.assets import AssetSet
from sim_envs.libero.experts.expert import Expert
from sim_envs.libero.experts.policies import scripted_policy
from sim_envs.libero.experts.skills import NoSkillError
from sim_envs.libero.sim import LiberoSim
from sim_envs.libero.tasks import LiberoTask, get_task
from sim_envs.scripted.policy import ScriptedPolicy
from sim_envs.worker_process import WorkerConnection
from sim_envs.workers import LostJob, run_in_workers
from sim_envs.world import EpisodeKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt:
    """Result of one episode.

    Attributes:
        key: The episode.
        success: Whether the goal held within the step limit.
        steps: Control steps taken.
        phases: First step and name of each phase of the expert; empty for other policies.
        no_skill: Why the expert cannot do the task; empty if it can.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttemptPlayer:
    """Plays a scripted policy, here or in a worker, in the simulator of one task at a time.

    Attributes:
        policy: Name of a scripted policy.
        assets: What the tasks are built from.
        noise: The expert's noise, from 0 to 1.
        motion: How what is to be grasped moves.
    """

    policy: str
    assets: AssetSet
    noise: float
    motion: Shuttle | Drift | None = None

    @contextlib.contextmanager
    def open(self, connection: WorkerConnection | None = None) -> Iterator[Callable[[EpisodeKey], Attempt]]:
        """Plays episodes. One of a task that the expert has no skill for is a failure that says why."""
        del connection
        with contextlib.ExitStack() as simulator:
            loaded: dict[LiberoTask, tuple[LiberoSim, ScriptedPolicy | NoSkillError]] = {}

            def play(key: EpisodeKey) -> Attempt:
                task = get_task(key.suite, key.task_id)
                if task not in loaded:
                    simulator.close()
                    loaded.clear()
                    sim = simulator.enter_context(LiberoSim(task, assets=self.assets, motion=self.motion))
                    loaded[task] = sim, self._policy(sim)
                sim, policy = loaded[task]
                if isinstance(policy, NoSkillError):
                    return Attempt(key=key, success=False, steps=0, phases=(), no_skill=str(policy))
                return attempt(sim, policy, key, load(SuiteConfig, key.suite))

            yield play

    def _policy(self, sim: LiberoSim) -> ScriptedPolicy | NoSkillError:
        try:
            return scripted_policy(self.policy, sim, self.noise)
        except NoSkillError as error:
            return error


def attempts(
    player: AttemptPlayer,
    tasks: Iterable[LiberoTask],
    init_ids: Sequence[int],
    *,
    seed: int,
    workers: int = 1,
) -> Iterator[Attempt]:
    """Play one episode per task and initial state, yielding them in this order.

    Args:
        player: Plays them.
        tasks: Which tasks, of one or several suites.
        init_ids: Which of each task's initial states.
        seed: Of every episode.
        workers: Processes that play.

    Raises:
        UsageError: The policy, the noise, the tasks or the assets are not what they have to be.
        RuntimeError: An episode has ended two workers.
    """
    keys = [
        EpisodeKey(suite=task.suite, task_id=task.task_id, init_id=init_id, seed=seed)
        for task in tasks
        for init_id in init_ids
    ]
    if workers == 1:
        with player.open() as play:
            yield from map(play, keys)
        return
    queue = JobQueue(keys, task=lambda key: (key.suite, key.task_id), episode=lambda key: key)
    done: dict[EpisodeKey, Attempt] = {}
    waiting = iter(keys)
    expected = next(waiting, None)
    with contextlib.closing(run_in_workers(player, queue, workers=workers, check=lambda: None)) as ended:
        for key, result in ended:
            if isinstance(result, LostJob):
                raise RuntimeError(f"{key} has ended two processes: {result.reason}")  # noqa: TRY004
            done[key] = result
            while expected in done:
                yield done.pop(expected)
                expected = next(waiting, None)


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
