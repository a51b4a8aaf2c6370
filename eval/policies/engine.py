"""Policies as the rollout sees them: one protocol, and an adapter for each kind of policy."""

import dataclasses
import functools
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float64

from configs.load import load
from configs.schema import LanguageTaskConfig, PolicyConfig, RunConfig
from configs.specs import compare
from eval.policies.language_tasks import language_task
from eval.policies.names import Wanted, check_learnt, read_policy, wanted_texts
from eval.policies.oracle import Oracle
from oxygen.model import config as model_configs
from oxygen.model.compile_cache import use_compile_cache
from oxygen.model.config import Pi05Config
from oxygen.policy.policy import EngineConfig, OxyGenPolicy, create_policy
from oxygen.policy.reply import Reply, Tail
from oxygen.robots import tokenizer as tokenizers
from oxygen.robots.transforms import Embodiment, Transform, embodiment, of_checkpoint, untrained
from oxygen.serving.budget import Budget, Deadline, FixedTokens
from oxygen.serving.engine_config import ample_slots
from oxygen.serving.language import LanguageTask
from oxygen.serving.scheduler import Mode
from oxygen.weights import fetch
from oxygen.weights import load as load_weights
from sim_envs.experts.controls import HORIZON, Noop, ScriptedPolicy
from sim_envs.experts.policies import scripted_policy
from sim_envs.libero.conventions import LIBERO_INTERFACE
from sim_envs.libero.sim import LiberoSim
from sim_envs.world import EpisodeKey, Observation, World

Actions = Float64[np.ndarray, "horizon action"]


class Policy(Protocol):
    """Who acts. One object serves all episodes of a run, one after the other."""

    @property
    def inputs(self) -> Mapping[str, Any]:
        """How it is shown the world (prompt template, cameras): recorded beside the protocol."""

    def reset(self, world: World, key: EpisodeKey) -> None:
        """Begin an episode; whatever was left of the one before is dropped."""

    def act(self, observation: Observation) -> Actions:
        """Answer a query with its actions, as soon as they exist."""

    def settle(self) -> Reply:
        """The rest of the query: texts and timings."""

    def finish(self) -> Tail:
        """End the episode: cancel the texts still under way, and count them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cast:
    """Who acts and what is wanted of them, by their presets.

    Attributes:
        policy: Who acts.
        wanted: The language tasks by name.
        tasks: The same as their presets.
    """

    policy: PolicyConfig
    wanted: Wanted
    tasks: tuple[LanguageTaskConfig, ...]

    @property
    def horizon(self) -> int:
        """The number of actions that a query is answered with."""
        return _model(self.policy).horizon if self.policy.kind == "oxygen" else HORIZON

    def remark_on(self, arms: Sequence[RunConfig]) -> str | None:
        """What a person should know of the texts before the first episode, in one line, if any arm speaks."""
        return self.wanted.remark if any(arm.mode != "actions" for arm in arms) else None


def read_cast(config: RunConfig) -> Cast:
    """The presets that a run's configuration names; where it names no language tasks, those of its policy.

    Raises:
        UsageError: No such policy or language task, one that the policy has not learnt, or a policy whose
            conventions are not LIBERO's.
    """
    policy = read_policy(config.policy)
    wanted = wanted_texts(policy, config)
    tasks = tuple(load(LanguageTaskConfig, name) for name in wanted.names)
    check_learnt(policy, tasks)
    if policy.kind == "oxygen":
        _model(policy)
        check_conventions(policy.name, policy.embodiment)
    return Cast(policy=policy, wanted=wanted, tasks=tasks)


def check_conventions(policy: str, robot: str) -> None:
    """Refuse a policy of a robot that means something else by its numbers than LIBERO's.

    Args:
        policy: The policy's name, for the message.
        robot: The name of its embodiment.

    Raises:
        UsageError: Says what differs, or that there is no such embodiment.
    """
    compare(dataclasses.replace(embodiment(robot).interface, name=policy), LIBERO_INTERFACE)


def open_policy(cast: Cast, config: RunConfig) -> Policy:
    """The policy, ready to act. A served one is loaded and compiled here, which takes seconds.

    Raises:
        UsageError: Its checkpoint is not to be had, or not its own.
    """
    return open_policies(cast, [config])[0]


def open_policies(cast: Cast, arms: Sequence[RunConfig]) -> list[Policy]:
    """The policy for every arm, which differ in their modes alone: a model is loaded and compiled once.

    Raises:
        UsageError: Its checkpoint is not to be had, or not its own.
    """
    if cast.policy.kind != "oxygen":
        return [_scripted(cast, arm) for arm in arms]
    use_compile_cache()
    first = _served(cast, arms)
    return [first, *(first.served_as(arm) for arm in arms[1:])]


class Served:
    """A vision-language-action model behind the engine."""

    def __init__(self, policy: OxyGenPolicy, robot: Embodiment) -> None:
        self._policy = policy
        self._robot = robot

    @property
    def inputs(self) -> Mapping[str, Any]:
        """What the model is shown, and that absent cameras are dropped rather than masked."""
        cameras = list(self._robot.interface.observation.camera_names)
        return {"prompt": self._robot.prompt.template, "cameras": cameras, "absent_cameras": "dropped"}

    def served_as(self, config: RunConfig) -> "Served":
        """The same model served in another mode, by the very same compiled programs."""
        engine = dataclasses.replace(self._policy.engine, mode=Mode(config.mode), budget=_budget(config))
        return Served(self._policy.served(engine), self._robot)

    def reset(self, world: World, key: EpisodeKey) -> None:
        """Begin an episode. The model is shown nothing of the world but its observations."""
        del world
        self._policy.reset(key.digest())

    def act(self, observation: Observation) -> Actions:
        """Answer a query with its actions."""
        return self._policy.act(
            {"images": observation.images, "state": observation.state, "prompt": observation.language}
        )

    def settle(self) -> Reply:
        """The rest of the query."""
        return self._policy.settle()

    def finish(self) -> Tail:
        """End the episode."""
        return self._policy.finish()


class Scripted:
    """A scripted expert or control. Among the modes only `actions` changes anything for it: it is silent."""

    inputs: Mapping[str, Any] = {"privileged_state": True}

    def __init__(self, kind: str, oracle: Oracle, *, noise: float = 0.0) -> None:
        self._kind = kind
        self._noise = noise
        self._oracle = oracle
        self._policy: ScriptedPolicy = Noop()
        self._reply = Reply(timings_ms={})

    def reset(self, world: World, key: EpisodeKey) -> None:
        """Begin an episode. An expert is bound to the simulator it reads."""
        assert isinstance(world, LiberoSim), "the scripted policies read LIBERO's simulator"
        self._policy = scripted_policy(self._kind, world, self._noise)
        self._policy.reset(key)
        self._oracle.reset(world, key)

    def act(self, observation: Observation) -> Actions:
        """Answer a query with its actions."""
        del observation
        began = time.perf_counter()
        actions = self._policy.query()
        milliseconds = 1e3 * (time.perf_counter() - began)
        requested, finished = self._oracle.speak()
        timings = {"action": milliseconds, "frame": milliseconds}
        self._reply = Reply(timings_ms=timings, requested=requested, finished=finished)
        return actions

    def settle(self) -> Reply:
        """The rest of the query: its texts are about the state in which the actions were asked for."""
        return self._reply

    @property
    def intended(self) -> Float64[np.ndarray, "horizon 7"]:
        """What it held right in the state of the last query: its actions without noise."""
        return self._policy.intended

    def finish(self) -> Tail:
        """End the episode."""
        return Tail()


def engine_for(tasks: Sequence[LanguageTask], arms: Sequence[RunConfig]) -> EngineConfig:
    """How the first arm is served, on programs with room for all of them.

    With a fixed number of tokens per frame every text under way has a row. With a deadline a frame may decode
    fewer, and texts have to wait: then there are slots for them to do so, and the scheduler's rules say who.
    """
    first = arms[0]
    rows = _texts_in_progress(tasks, first.tokens_per_frame)
    waiting = any(arm.deadline_ms is not None for arm in arms)
    slots = ample_slots(tasks=len(tasks), rows=rows) if waiting else rows
    return EngineConfig(mode=Mode(first.mode), budget=_budget(first), slots=slots, rows=rows)


def _scripted(cast: Cast, config: RunConfig) -> Scripted:
    speaks = cast.policy.speaks == "truth" and config.mode != "actions"
    return Scripted(cast.policy.kind, Oracle(cast.tasks if speaks else ()))


def _model(policy: PolicyConfig) -> Pi05Config:
    return model_configs.preset(policy.model or policy.name)


def _served(cast: Cast, arms: Sequence[RunConfig]) -> Served:
    config = arms[0]
    model = _model(cast.policy)
    model = dataclasses.replace(model, dtype=config.dtype or model.dtype)
    transform = _transform(cast.policy, config)
    return Served(_build(cast, model, transform, arms), transform.embodiment)


def _build(cast: Cast, model: Pi05Config, transform: Transform, arms: Sequence[RunConfig]) -> OxyGenPolicy:
    preset, config = cast.policy, arms[0]
    tasks = [language_task(task) for task in cast.tasks]
    trained = _is_trained(preset, config)
    loader = functools.partial(load_weights, str(preset.weights), model)
    return create_policy(
        model,
        weights=loader if trained else preset.weights_seed,
        tokenizer=tokenizers.load(str(preset.tokenizer)) if trained else tokenizers.tiny(),
        tasks=tasks,
        engine=engine_for(tasks, arms),
        transform=transform,
    )


def _transform(preset: PolicyConfig, config: RunConfig) -> Transform:
    """The robot's way in and out: with the checkpoint's statistics, or without any for random weights."""
    robot = embodiment(preset.embodiment)
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
