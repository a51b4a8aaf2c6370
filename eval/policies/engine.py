"""A vision-language-action model behind the serving engine, as the rollout sees it."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from configs.interface import Interface
from configs.schema import PolicyConfig, RunConfig
from eval.policies.base import OpenPolicy, PolicyRow
from eval.policies.language_tasks import language_task
from eval.policies.resolved import ResolvedPolicy
from oxygen.model.compile_cache import use_compile_cache
from oxygen.policy.factory import create_vector_policy
from oxygen.policy.reply import Reply, Tail
from oxygen.policy.vector_policy import VectorPolicy
from oxygen.robots import tokenizer as tokenizers
from oxygen.robots.transforms import Transform, embodiment, of_checkpoint, untrained
from oxygen.serving.budget import Budget, Deadline, FixedTokens
from oxygen.serving.engine_config import EngineConfig, ample_slots
from oxygen.serving.language import LanguageTask
from oxygen.serving.scheduler import Mode
from oxygen.weights import fetch
from oxygen.weights import load as load_weights
from sim_envs.world import EpisodeKey, Observation


def open_engine(
    resolved: ResolvedPolicy, variants: Sequence[RunConfig], *, worlds: int = 1
) -> list[OpenPolicy]:
    """The policy in every variant, which differ in how they are served alone: a model is loaded once.

    Prefill and denoise are compiled once, what decodes for every number of tokens per frame and every rate
    of texts by itself: so a variant is served as if it were the only one.

    Args:
        resolved: The policy and its texts.
        variants: The runs. Their batch size is the same.
        worlds: How many episodes it is in at once. They are divided into groups of the variants' batch size.

    Raises:
        UsageError: Its checkpoint is not to be had, or not its own.
    """
    use_compile_cache()
    interface = resolved.interface
    assert interface is not None, "only a policy with a model is served"
    transform = _transform(resolved.policy, variants[0])
    first: VectorPolicy | None = None
    opened: dict[int, OpenPolicy] = {}
    for sharing in _sharing_programs(variants):
        group = [variants[place] for place in sharing]
        speaking = next((variant for variant in group if variant.mode != "actions"), group[0])
        tasks = [language_task(task) for task in resolved.tasks_of(speaking)]
        engine = engine_for(tasks, [speaking, *group])
        like = first.with_tasks(tasks, engine) if first else _build(resolved, transform, tasks, engine, group)
        first = first or like
        served = _Served(like, worlds=worlds)
        for place, variant in zip(sharing, group, strict=True):
            of_this = dataclasses.replace(engine, mode=Mode(variant.mode), budget=_budget(variant))
            opened[place] = _opened(served.by(of_this), interface, transform.embodiment.prompt.template)
    return [opened[place] for place in range(len(variants))]


class _Served:
    """A policy's groups in every variant that shares its programs."""

    def __init__(self, like: VectorPolicy, *, worlds: int) -> None:
        self._unused: VectorPolicy | None = like
        self._like = like
        self._worlds = worlds
        self._made: dict[EngineConfig, list[EnginePolicy]] = {}

    def by(self, engine: EngineConfig) -> "list[EnginePolicy]":
        """A group for so many worlds as there are rows; one world is in one variant at a time, and shares."""
        if self._worlds == 1 and engine in self._made:
            return self._made[engine]
        count = math.ceil(self._worlds / engine.robots)
        self._made[engine] = [EnginePolicy(self._new(engine)) for _ in range(count)]
        return self._made[engine]

    def _new(self, engine: EngineConfig) -> VectorPolicy:
        if self._unused is not None and self._unused.engine == engine:
            unused, self._unused = self._unused, None
            return unused
        return self._like.with_engine(engine)


def _sharing_programs(variants: Sequence[RunConfig]) -> list[list[int]]:
    """The places of the variants that are served by the same programs. Those without texts fit any."""
    shared: dict[tuple[int, int | None], list[int]] = {}
    silent = []
    for place, variant in enumerate(variants):
        if variant.mode == "actions":
            silent.append(place)
        else:
            shared.setdefault((variant.tokens_per_frame, variant.text_every), []).append(place)
    first, *others = shared.values() or [[]]
    return [sorted([*silent, *first]), *others]


class EnginePolicy:
    """A vision-language-action model behind the engine, in the episodes of a batch."""

    def __init__(self, policy: VectorPolicy) -> None:
        self._policy = policy

    @property
    def rows(self) -> int:
        """The robots of the batch."""
        return self._policy.engine.robots

    def reset(self, row: int, key: EpisodeKey) -> None:
        """Begin an episode."""
        self._policy.reset(row, key.digest())

    def act(self, observations: Mapping[int, Observation]) -> dict[int, np.ndarray]:
        """Answer queries with their actions."""
        seen = [_shown(observations.get(row)) for row in range(self.rows)]
        return {row: chunk for row, chunk in enumerate(self._policy.act(seen)) if chunk is not None}

    def settle(self) -> dict[int, Reply]:
        """Wait for the language of the queries."""
        return {row: reply for row, reply in enumerate(self._policy.settle()) if reply is not None}

    def finish(self, row: int) -> Tail:
        """End an episode."""
        return self._policy.finish(row)


def _shown(observation: Observation | None) -> dict[str, Any] | None:
    if observation is None:
        return None
    return {
        "images": observation.images,
        "state": observation.state,
        "prompt": observation.language,
        "action_prefix": observation.action_prefix,
    }


def _opened(groups: Sequence[EnginePolicy], interface: Interface, prompt: str) -> OpenPolicy:
    """The policy for a run. It is shown nothing of a world but its observations."""
    cameras = list(interface.observation.camera_names)
    return OpenPolicy(
        interface=interface,
        horizon=interface.horizon,
        inputs={"prompt": prompt, "cameras": cameras, "absent_cameras": "dropped"},
        in_world=lambda *_: PolicyRow(groups[0], 0, interface),
        groups=groups,
        reports_work=True,
    )


def engine_for(tasks: Sequence[LanguageTask], variants: Sequence[RunConfig]) -> EngineConfig:
    """How the first variant is served, on programs with room for all of them.

    With a fixed number of tokens per frame every text under way has a row. With a deadline a frame may decode
    fewer, and texts have to wait: then there are slots for them to do so, and the scheduler's rules say who.
    The robots of a batch are in episodes of their own, and none decides what another one says.
    """
    first = variants[0]
    robots = first.batch_size
    rows = _texts_in_progress(tasks, first.tokens_per_frame)
    waiting = any(each.deadline_ms is not None for each in variants)
    slots = ample_slots(tasks=len(tasks), rows=rows) if waiting else rows
    return EngineConfig(
        mode=Mode(first.mode),
        budget=_budget(first),
        slots=robots * slots,
        rows=robots * rows,
        robots=robots,
        independent=robots > 1,
        guided=any(each.overlap == "rtc" for each in variants),
    )


def _build(
    resolved: ResolvedPolicy,
    transform: Transform,
    tasks: Sequence[LanguageTask],
    engine: EngineConfig,
    variants: Sequence[RunConfig],
) -> VectorPolicy:
    preset, config = resolved.policy, variants[0]
    model = dataclasses.replace(resolved.model, dtype=config.dtype or resolved.model.dtype)
    trained = _is_trained(preset, config)
    loader = functools.partial(load_weights, str(preset.weights), model)
    return create_vector_policy(
        model,
        weights=loader if trained else preset.weights_seed,
        tokenizer=tokenizers.load(str(preset.tokenizer)) if trained else tokenizers.tiny(),
        tasks=tasks,
        engine=engine,
        transform=transform,
    )


def _transform(preset: PolicyConfig, config: RunConfig) -> Transform:
    """The robot's way in and out: with the checkpoint's statistics, or without any for random weights."""
    robot = embodiment(str(preset.embodiment))
    if not _is_trained(preset, config):
        return untrained(robot)
    return of_checkpoint(robot, fetch(preset.norm_stats or str(preset.weights)))


def _is_trained(preset: PolicyConfig, config: RunConfig) -> bool:
    return preset.weights is not None and not config.random_weights


def _budget(config: RunConfig) -> Budget:
    return (
        FixedTokens(config.tokens_per_frame) if config.deadline_ms is None else Deadline(config.deadline_ms)
    )


def _texts_in_progress(tasks: Sequence[LanguageTask], tokens_per_frame: int) -> int:
    """The most texts that can be under way at once when every frame decodes `tokens_per_frame` of each."""
    frames = {task.name: math.ceil(task.max_tokens / tokens_per_frame) for task in tasks}
    return max(1, sum(task.arrivals.within(frames[task.name]) for task in tasks))
