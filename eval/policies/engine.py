"""A vision-language-action model behind the serving engine, as the rollout sees it."""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from configs.interface import Interface
from configs.schema import PolicyConfig, RunConfig
from eval.policies.base import OpenPolicy
from eval.policies.language_tasks import language_task
from eval.policies.resolved import ResolvedPolicy
from oxygen.model.compile_cache import use_compile_cache
from oxygen.model.config import Pi05Config
from oxygen.policy.policy import EngineConfig, OxyGenPolicy, create_policy
from oxygen.policy.reply import Reply, Tail
from oxygen.robots import tokenizer as tokenizers
from oxygen.robots.transforms import Transform, embodiment, of_checkpoint, untrained
from oxygen.serving.budget import Budget, Deadline, FixedTokens
from oxygen.serving.engine_config import ample_slots
from oxygen.serving.language import LanguageTask
from oxygen.serving.scheduler import Mode
from oxygen.weights import fetch
from oxygen.weights import load as load_weights
from sim_envs.world import EpisodeKey, Observation


def open_engine(resolved: ResolvedPolicy, variants: Sequence[RunConfig]) -> list[OpenPolicy]:
    """The policy in every variant, which differ in their modes alone: a model is loaded and compiled once.

    Raises:
        UsageError: Its checkpoint is not to be had, or not its own.
    """
    use_compile_cache()
    first = _served(resolved, variants)
    served = [first, *(first.served_as(variant) for variant in variants[1:])]
    return [policy.opened() for policy in served]


class EnginePolicy:
    """A vision-language-action model behind the engine."""

    def __init__(self, policy: OxyGenPolicy, interface: Interface, prompt: str) -> None:
        self._policy = policy
        self.interface = interface
        self._prompt = prompt

    def opened(self) -> OpenPolicy:
        """The policy for a run. It is shown nothing of a world but its observations."""
        cameras = list(self.interface.observation.camera_names)
        return OpenPolicy(
            interface=self.interface,
            horizon=self.interface.horizon,
            inputs={"prompt": self._prompt, "cameras": cameras, "absent_cameras": "dropped"},
            in_world=lambda *_: self,
            reports_work=True,
        )

    def served_as(self, config: RunConfig) -> "EnginePolicy":
        """The same model served in another mode, by the very same compiled programs."""
        engine = dataclasses.replace(self._policy.engine, mode=Mode(config.mode), budget=_budget(config))
        return EnginePolicy(self._policy.served(engine), self.interface, self._prompt)

    def reset(self, key: EpisodeKey) -> None:
        """Begin an episode."""
        self._policy.reset(key.digest())

    def act(self, observation: Observation) -> np.ndarray:
        """Answer a query with its actions."""
        return self._policy.act(
            {"images": observation.images, "state": observation.state, "prompt": observation.language}
        )

    def settle(self) -> Reply:
        """Wait for the language of the query."""
        return self._policy.settle()

    def finish(self) -> Tail:
        """End the episode."""
        return self._policy.finish()


def engine_for(tasks: Sequence[LanguageTask], variants: Sequence[RunConfig]) -> EngineConfig:
    """How the first variant is served, on programs with room for all of them.

    With a fixed number of tokens per frame every text under way has a row. With a deadline a frame may decode
    fewer, and texts have to wait: then there are slots for them to do so, and the scheduler's rules say who.
    """
    first = variants[0]
    rows = _texts_in_progress(tasks, first.tokens_per_frame)
    waiting = any(each.deadline_ms is not None for each in variants)
    slots = ample_slots(tasks=len(tasks), rows=rows) if waiting else rows
    return EngineConfig(mode=Mode(first.mode), budget=_budget(first), slots=slots, rows=rows)


def _served(resolved: ResolvedPolicy, variants: Sequence[RunConfig]) -> EnginePolicy:
    config, interface = variants[0], resolved.interface
    assert interface is not None, "only a policy with a model is served"
    model = dataclasses.replace(resolved.model, dtype=config.dtype or resolved.model.dtype)
    transform = _transform(resolved.policy, config)
    policy = _build(resolved, model, transform, variants)
    return EnginePolicy(policy, interface, transform.embodiment.prompt.template)


def _build(
    resolved: ResolvedPolicy, model: Pi05Config, transform: Transform, variants: Sequence[RunConfig]
) -> OxyGenPolicy:
    preset, config = resolved.policy, variants[0]
    tasks = [language_task(task) for task in resolved.tasks]
    trained = _is_trained(preset, config)
    loader = functools.partial(load_weights, str(preset.weights), model)
    return create_policy(
        model,
        weights=loader if trained else preset.weights_seed,
        tokenizer=tokenizers.load(str(preset.tokenizer)) if trained else tokenizers.tiny(),
        tasks=tasks,
        engine=engine_for(tasks, variants),
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
