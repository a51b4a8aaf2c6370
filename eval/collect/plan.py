"""The episodes to play for demonstrations, and their identity."""

import dataclasses
from typing import Any

from configs.collection import CollectConfig
from configs.errors import UsageError
from configs.schema import RunConfig
from eval.records.protocol import NO_ASSETS
from eval.rollout.plan import TaskPlan, make_plan
from sim_envs.world import EpisodeKey


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class DemonstrationKey:
    """The identity of a demonstration. Datasets are ordered by it.

    Attributes:
        suite: Name of the task suite.
        task_id: Index of the task in it.
        init_id: Index of the stored initial state, or the number of a sampled one.
        seed: Seed of the environment and of all noise.
        assets: Name of the asset set.
        digest: Digest of its files.
        noise: Noise of the expert, 0 to 1.
    """

    suite: str
    task_id: int
    init_id: int
    seed: int
    assets: str
    digest: str
    noise: float

    def __str__(self) -> str:
        return f"{self.episode}.{self.digest}.{self.noise:g}"

    @property
    def episode(self) -> EpisodeKey:
        """The episode that is played."""
        return EpisodeKey(suite=self.suite, task_id=self.task_id, init_id=self.init_id, seed=self.seed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One episode to play."""

    plan: TaskPlan
    key: DemonstrationKey


def make_jobs(config: CollectConfig) -> tuple[Job, ...]:
    """The episodes of a configuration, in the order of their keys.

    Raises:
        UsageError: A suite, a task or an initial state does not exist, or is reserved for tests; or suites
            have different rates.
    """
    size = {} if config.image_size is None else {"camera_size": config.image_size}
    jobs = []
    for seed in config.seeds:
        for task in make_plan(run_config(config, seed), **size).tasks:
            assets = task.suite.assets or NO_ASSETS
            shared = {"assets": assets.name, "digest": assets.digest, "noise": config.expert_noise}
            keys = [DemonstrationKey(**dataclasses.asdict(episode), **shared) for episode in task.keys]
            jobs += [Job(plan=task, key=key) for key in keys]
    for job in jobs:
        kept, init_id = job.plan.protocol.test_init_ids, job.key.init_id
        if kept is not None and kept[0] <= init_id <= kept[1]:
            raise UsageError(
                f"init id {init_id}: {job.key.suite} reserves {kept[0]} to {kept[1]} for tests of policies; "
                f"give others, such as {kept[1] + 1}"
            )
    rates = {job.key.suite: frame_rate(job.plan) for job in jobs}
    if len(set(rates.values())) > 1:
        raise UsageError(
            f"the suites have different frames per second ({rates}): collect them into separate datasets"
        )
    return tuple(sorted(jobs, key=lambda job: job.key))


def run_config(config: CollectConfig, seed: int) -> RunConfig:
    """The run that plays the same episodes: in mode `actions`, unless the policy reads its own texts."""
    shared: Any = {
        name: getattr(config, name) for name in CollectConfig.model_fields if name in RunConfig.model_fields
    }
    how: Any = {"mode": "isolated"}
    if config.feedback is None:
        how = {"mode": "actions", "language_tasks": ()}
    return RunConfig(**how, seed=seed, video="none", **shared)


def learner_config(config: CollectConfig) -> RunConfig | None:
    """The run of the learner alone over the same episodes; None without a learner."""
    run = run_config(config, config.seeds[0])
    return run.model_copy(update={"policy": config.learner}) if config.learner else None


def frame_rate(plan: TaskPlan) -> float:
    """Frames (queries) per second of simulated time."""
    return plan.protocol.control_hz / plan.protocol.replan_steps
