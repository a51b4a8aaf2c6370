"""Policies as the rollout sees them: one protocol, and an adapter for each kind of policy."""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from configs.load import load
from configs.schema import LanguageTaskConfig, PolicyConfig, RunConfig
from oxygen import config as model_configs
from oxygen import tokenizer as tokenizers
from oxygen.config import Pi05Config
from oxygen.language import LanguageTask
from oxygen.policy import EngineConfig, OxyGenPolicy, create_policy
from oxygen.reply import Reply, Tail
from oxygen.scheduler import Mode
from sim_envs.experts.controls import Noop, ScriptedPolicy
from sim_envs.experts.policies import scripted_policy
from sim_envs.libero.sim import LiberoSim
from sim_envs.world import EpisodeKey, Observation, World

PROMPT_TEMPLATE = "<bos>{language}\\n"
"""The prompt as the policy reads it; `oxygen.transforms.prompt_tokens` writes it."""


class Policy(Protocol):
    """Who acts. One object serves all episodes of a run, one after the other."""

    @property
    def inputs(self) -> Mapping[str, Any]:
        """How it is shown the world (prompt template, cameras): part of the protocol."""

    def reset(self, world: World, key: EpisodeKey) -> None:
        """Begin an episode; whatever was left of the one before is dropped."""

    def infer(self, observation: Observation) -> Reply:
        """Answer one query."""

    def finish(self) -> Tail:
        """End the episode: cancel the texts still under way, and count them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cast:
    """Who acts and what is wanted of them, by their presets."""

    policy: PolicyConfig
    tasks: tuple[LanguageTaskConfig, ...]


def read_cast(config: RunConfig) -> Cast:
    """The presets that a run's configuration names.

    Raises:
        UsageError: No such policy or language task.
    """
    tasks = tuple(load(LanguageTaskConfig, name) for name in config.language_tasks)
    return Cast(policy=load(PolicyConfig, config.policy), tasks=tasks)


def open_policy(cast: Cast, config: RunConfig) -> Policy:
    """The policy, ready to act. A served one compiles its programs here, which takes seconds."""
    if cast.policy.kind == "oxygen":
        model = model_configs.preset(cast.policy.model or cast.policy.name)
        return Served(_build(cast, model, config), model.cameras)
    return Scripted(cast.policy.kind)


class Served:
    """A vision-language-action model behind the engine."""

    def __init__(self, policy: OxyGenPolicy, cameras: Sequence[str]) -> None:
        self._policy = policy
        self._cameras = tuple(cameras)

    @property
    def inputs(self) -> Mapping[str, Any]:
        """What the model is shown: openpi's prompt for LIBERO, without the state; no masked cameras."""
        return {"prompt": PROMPT_TEMPLATE, "cameras": list(self._cameras), "absent_cameras": "dropped"}

    def reset(self, world: World, key: EpisodeKey) -> None:
        """Begin an episode. The model is shown nothing of the world but its observations."""
        del world
        self._policy.reset(key.digest())

    def infer(self, observation: Observation) -> Reply:
        """Answer one query."""
        return self._policy.infer(
            {"images": observation.images, "state": observation.state, "prompt": observation.language}
        )

    def finish(self) -> Tail:
        """End the episode."""
        return self._policy.finish()


class Scripted:
    """A scripted expert or control. It says nothing, and the mode changes nothing for it."""

    inputs: Mapping[str, Any] = {"privileged_state": True}

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._policy: ScriptedPolicy = Noop()

    def reset(self, world: World, key: EpisodeKey) -> None:
        """Begin an episode. An expert is bound to the simulator it reads."""
        assert isinstance(world, LiberoSim), "the scripted policies read LIBERO's simulator"
        self._policy = scripted_policy(self._kind, world)
        self._policy.reset(key)

    def infer(self, observation: Observation) -> Reply:
        """Answer one query."""
        del observation
        began = time.perf_counter()
        actions = self._policy.query()
        milliseconds = 1e3 * (time.perf_counter() - began)
        timings = {"action": milliseconds, "frame": milliseconds}
        return Reply(actions=actions, timings_ms=timings, born=(), finished=(), dropped=(), tokens=0)

    def finish(self) -> Tail:
        """End the episode."""
        return Tail(cancelled=0, requests=(), reply=None)


def _build(cast: Cast, model: Pi05Config, config: RunConfig) -> OxyGenPolicy:
    places = _texts_in_progress(cast.tasks, config.tokens_per_frame)
    return create_policy(
        model,
        weights=cast.policy.weights_seed or 0,
        tokenizer=tokenizers.tiny(),
        tasks=[LanguageTask(**task.model_dump()) for task in cast.tasks],
        engine=EngineConfig(
            mode=Mode(config.mode), tokens_per_frame=config.tokens_per_frame, slots=places, rows=places
        ),
    )


def _texts_in_progress(tasks: Sequence[LanguageTaskConfig], tokens_per_frame: int) -> int:
    """The most texts that can be under way at once when every frame decodes `tokens_per_frame` of each."""
    lives = ((math.ceil(task.max_tokens / tokens_per_frame), task.every_queries) for task in tasks)
    return max(1, sum(math.ceil(frames / period) + 1 for frames, period in lives))
