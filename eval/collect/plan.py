"""The episodes to play for demonstrations, and their identity."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

from configs.errors import UsageError
from configs.interface import Interface
from configs.schema import RunConfig
from configs.training import CollectConfig
from eval.records.protocol import NO_ASSETS
from eval.rollout.episode import EpisodeJob
from eval.rollout.plan import EpisodePlan, TaskPlan, make_plan
from sim_envs.world import EpisodeKey


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class DemonstrationKey:
    """The identity of a demonstration. Datasets are ordered by it."""

    suite: str  # name of the task suite
    task_id: int  # index of the task in it
    init_id: int  # index of the stored initial state, or the number of a sampled one
    seed: int  # seed of the environment and of all noise
    assets: str  # name of the asset set
    digest: str  # digest of its files
    noise: float  # noise of the expert, 0 to 1

    def __str__(self) -> str:
        episode = EpisodeKey(suite=self.suite, task_id=self.task_id, init_id=self.init_id, seed=self.seed)
        return f"{episode}.{self.digest}.{self.noise:g}"

    @classmethod
    def of(cls, episode: EpisodeKey, task: TaskPlan, config: CollectConfig) -> Self:
        """The demonstration of an episode that is played."""
        assets = task.suite.assets or NO_ASSETS
        shared = {"assets": assets.name, "digest": assets.digest, "noise": config.expert_noise}
        return cls(**dataclasses.asdict(episode), **shared)


def plans_by_seed(config: CollectConfig) -> list[EpisodePlan]:
    """The episodes of a configuration, one plan per seed.

    Raises:
        UsageError: A suite, a task or an initial state does not exist, or is reserved for tests; or suites
            have different interfaces, or images that cannot be stored as video.
    """
    size = {} if config.image_size is None else {"camera_size": config.image_size}
    plans = [make_plan(run_config(config, seed), **size) for seed in config.seeds]
    for task in plans[0].tasks:
        first, last = task.protocol.test_init_ids or (0, -1)
        for key in task.keys:
            if first <= key.init_id <= last:
                raise UsageError(
                    f"init id {key.init_id}: {key.suite} reserves {first} to {last} for tests of policies; "
                    f"give others, such as {last + 1}"
                )
    shared: dict[str, Any] = {}
    for name, suite in plans[0].suites.items():
        for part, value in conventions(suite.interface).items():
            if shared.setdefault(part, value) != value:
                raise UsageError(
                    f"{name} has {part} {value}, the suites before it {shared[part]}: collect them into "
                    "separate datasets"
                )
        for camera in suite.interface.observation.cameras:
            if config.images == "video" and any(side % 2 for side in camera.size or ()):
                raise UsageError(
                    f"camera {camera.name!r} of {name} has {camera}: video needs even numbers; give another "
                    "--image-size, or --images png"
                )
    return plans


def make_jobs(config: CollectConfig, plans: Sequence[EpisodePlan]) -> dict[EpisodeJob, DemonstrationKey]:
    """The episodes of all plans and their demonstrations, in the order of their keys."""
    keys = {
        EpisodeJob(variant=variant, task=number, key=key): DemonstrationKey.of(key, task, config)
        for variant, plan in enumerate(plans)
        for number, task in enumerate(plan.tasks)
        for key in task.keys
    }
    return dict(sorted(keys.items(), key=lambda item: item[1]))


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


def conventions(interface: Interface) -> dict[str, Any]:
    """The conventions of cameras, state and actions that all episodes of a dataset share, for its options."""
    observation, action = interface.observation, interface.action
    return {
        "cameras": [f"{camera.name}: {camera}" for camera in observation.cameras],
        "state": [*map(str, observation.state), f"rotation: {observation.rotation}"],
        "action": [*map(str, action.channels), *map(str, action.grippers), f"rotation: {action.rotation}"],
        "control_hz": action.control_hz,
    }


def frame_rate(plan: TaskPlan) -> float:
    """Frames (queries) per second of simulated time."""
    return plan.protocol.control_hz / plan.protocol.replan_steps
