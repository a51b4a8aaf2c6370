"""The policy for any number of robots in one batch: observations in, actions and finished texts out."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from configs.errors import UsageError
from configs.latency import ActionPrefix
from oxygen.model.guidance import Guidance
from oxygen.model.inputs import ModelInput, batched
from oxygen.policy.reply import EpisodeEnd, Reply
from oxygen.policy.session import Session
from oxygen.robots.tokenizer import Tokenizer
from oxygen.robots.transforms import Transform
from oxygen.serving.engine import Engine, EngineStep
from oxygen.serving.engine_config import EngineConfig, check_serves, sizes_for
from oxygen.serving.language import LanguageTask, tokenized
from oxygen.serving.runner import Runner
from oxygen.serving.scheduler import Mode, Scheduler
from oxygen.serving.second_process import RemoteTextDecoder
from oxygen.serving.text_decoder import LocalTextDecoder, TextDecoder
from oxygen.typing import Float64
from oxygen.weights.adapter import AdapterSource
from oxygen.weights.weights_source import Loadable, required

Observations = Sequence[Mapping[str, Any] | None]
"""One for each robot; None for a robot without a query."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyParts:
    """The components of a policy, independent of the engine configuration.

    Attributes:
        runner: Its compiled programs.
        tokenizer: The vocabulary the weights were trained with.
        tasks: The language tasks.
        transform: Conversion of observations and actions.
        weights: Loads the weights in another process; None if not possible.
        adapter: Loads the runner's adapter, likewise; None without one.
    """

    runner: Runner
    tokenizer: Tokenizer
    tasks: tuple[LanguageTask, ...]
    transform: Transform
    weights: Loadable | None
    adapter: AdapterSource | None = None


class VectorPolicy:
    """π0.5 for several robots, with texts beside their actions.

    Robots share one batch for actions, and one KV pool and decode batch for texts. Actions are equal to the
    bit in every mode, and a robot's actions and texts do not depend on the other robots, its slot or the
    engine step. With several robots this needs a single prompt bucket, as `create_vector_policy` compiles:
    otherwise the longest prompt would change the padding, and the last bits, of all. The last bits of a
    text's logits depend on the decode batch size (`EngineConfig.rows` in mode `unified`, smaller in others),
    so texts of two modes may differ where two tokens are almost equally likely.

    A query is one `act`, which returns the actions as soon as they are ready, then one `complete`, which
    returns the reply. In modes `unified` and `parallel`, texts are decoded while the caller does something
    else in between; in the others, in `complete`.

    Independent robots (`EngineConfig.independent`) run different episodes at their own pace: which of them
    have a query in one step does not affect their replies.

    Attributes:
        parts: The components of the policy.
        engine: How it is served.
        runner: Its compiled programs, without episode state.
        transform: Conversion of the robots' observations and actions.
    """

    def __init__(self, parts: PolicyParts, engine: EngineConfig) -> None:
        check_serves(engine, parts.runner.sizes)
        self.parts, self.engine = parts, engine
        self.runner, self.transform = parts.runner, parts.transform
        tasks = [tokenized(task, parts.tokenizer) for task in parts.tasks]
        scheduler = Scheduler(
            mode=engine.mode,
            tasks=tasks,
            slots=engine.slots,
            rows=engine.rows,
            robots=engine.robots,
            independent=engine.independent,
        )
        self._engine = Engine(parts.runner, scheduler, _text_decoder(parts, engine), engine.budget)
        several = engine.independent and engine.robots > 1
        self._alone = sizes_for(engine.alone, tasks) if several else None
        self._sessions = [self._new_session(robot) for robot in range(engine.robots)]
        self._delivered_s = 0.0

    @property
    def compiles_after_warm_up(self) -> int:
        """Compilations since the policy's programs were ready, in all its processes; should stay 0."""
        return self.runner.compiles_after_warm_up + self._engine.compiles_in_second_process

    def with_engine(self, engine: EngineConfig) -> "VectorPolicy":
        """The same policy with another engine configuration, sharing weights and compiled programs.

        Raises:
            UsageError: `engine` exceeds the compiled programs.
        """
        return VectorPolicy(self.parts, engine)

    def with_tasks(self, tasks: Sequence[LanguageTask], engine: EngineConfig) -> "VectorPolicy":
        """The same policy with other language tasks, sharing weights, prefill and denoise programs.

        Fork and decode programs are compiled again if their shapes change.

        Raises:
            UsageError: `engine` has another number of robots.
        """
        sizes = sizes_for(engine, [tokenized(task, self.parts.tokenizer) for task in tasks])
        if sizes.robots != self.runner.sizes.robots:
            raise UsageError(
                f"robots is {sizes.robots}; the programs were compiled for {self.runner.sizes.robots}"
            )
        runner = (
            self.runner if sizes == self.runner.sizes else self.runner.resized(sizes, self.runner.adapter)
        )
        return VectorPolicy(dataclasses.replace(self.parts, runner=runner, tasks=tuple(tasks)), engine)

    def reset(self, robot: int, episode_seed: int, first_query: int = 0) -> None:
        """Start an episode of a robot: cancel its requests, count its request ids from 0.

        The noise of its actions is a function of the lowest 64 bits of the seed and the query's number.

        Args:
            robot: The robot.
            episode_seed: The seed.
            first_query: Number of its next query; above 0 to resume an episode.
        """
        self._complete()
        self._engine.reset(robot, episode_seed % 2**64)
        self._sessions[robot] = self._new_session(robot, first_query)

    def act(self, observations: Observations) -> tuple[Float64[np.ndarray, "horizon action"] | None, ...]:
        """Return the actions of a query of each robot, in the robot's units, as soon as they are ready.

        Args:
            observations: For each robot `images` (camera to uint8 [height, width, 3]), `state` (finite
                numbers) and `prompt`; None for a robot without a query. With `action_prefix` (a
                `configs.action_prefix.ActionPrefix`), the new chunk is guided towards the last one, which
                is still being executed.

        Raises:
            UsageError: An observation is incomplete or invalid, or the previous query has not been completed.
        """
        if any(session.is_open for session in self._sessions):
            raise UsageError("the previous query is not complete; call complete() after every act()")
        arrived_s = time.perf_counter()
        inputs, guidance = self._inputs(observations), self._guidance(observations)
        queries = {
            robot: session.queries
            for robot, session in enumerate(self._sessions)
            if observations[robot] is not None
        }
        ready_s = time.perf_counter()
        step = self._engine.act(inputs, queries, arrived_s=arrived_s, guidance=guidance)
        chunks = tuple(
            self.transform.outputs(chunk) if robot in queries else None
            for robot, chunk in enumerate(step.actions)
        )
        self._delivered_s = time.perf_counter()
        for robot in queries:
            guided = guidance is not None and bool(guidance.guides[robot])
            timings_ms = _timings_ms(step, ready_s, self._delivered_s, guided=guided)
            prompt_cut = self._prompt_cut(observations[robot], int(inputs.length[robot]))
            self._sessions[robot].begin_query(step.actions[robot], timings_ms, prompt_cut)
        return chunks

    def acted_ms(self, robot: int) -> Mapping[str, float]:
        """Stage times of a robot's last query until its actions; see `Reply.timings_ms`."""
        return self._sessions[robot].acted_ms

    def complete(self) -> tuple[Reply | None, ...]:
        """Wait for the texts of the current queries; None for a robot without a query."""
        self._complete()
        return tuple(session.take_reply() for session in self._sessions)

    def finish(self, robot: int) -> EpisodeEnd:
        """End a robot's episode: complete its query and cancel its active requests."""
        self._complete()
        return self._sessions[robot].end(self._engine.cancel(robot), self.compiles_after_warm_up)

    def close(self) -> None:
        """End the second process of mode `parallel`, if any."""
        self._engine.close()

    def _complete(self) -> None:
        texts = self._engine.complete(delivered_s=self._delivered_s)
        if texts is not None:
            for session in self._sessions:
                session.add(texts)

    def _guidance(self, observations: Observations) -> Guidance | None:
        """Guidance from the observations' `action_prefix`; None if there is none."""
        prefixes: list[ActionPrefix | None] = [
            None if one is None else one.get("action_prefix") for one in observations
        ]
        if not any(prefixes):
            return None
        if not self.engine.guided:
            raise UsageError("an observation has an `action_prefix`; serve the policy with `guided=True`")
        nothing = Guidance.none((1, self.runner.config.horizon, self.runner.config.action_dim))
        return Guidance.stacked(
            [
                session.guidance(prefix) if prefix else nothing
                for session, prefix in zip(self._sessions, prefixes, strict=True)
            ]
        )

    def _prompt_cut(self, observation: Mapping[str, Any] | None, kept: int) -> int:
        """Tokens cut from a prompt, of which `kept` are left."""
        if observation is None or kept < self.runner.config.max_prompt:
            return 0
        return self.transform.prompt_length(observation, self.parts.tokenizer) - kept

    def _new_session(self, robot: int, first_query: int = 0) -> Session:
        names = [task.name for task in self.parts.tasks]
        tokenizer = self.parts.tokenizer
        return Session(robot, names, tokenizer, alone=self._alone, first_query=first_query)

    def _inputs(self, observations: Observations) -> ModelInput:
        if len(observations) != len(self._sessions) or not any(one is not None for one in observations):
            raise UsageError(
                f"{len(observations)} observations for {len(self._sessions)} robots: give one for each, None "
                "for a robot without a query, and at least one"
            )
        config, tokenizer = self.runner.config, self.parts.tokenizer
        return batched(
            [None if one is None else self.transform.inputs(one, tokenizer, config) for one in observations],
            config,
        )


def _timings_ms(step: EngineStep, ready_s: float, delivered_s: float, *, guided: bool) -> dict[str, float]:
    seconds = {
        "preprocess": ready_s - step.arrived_s,
        "prefill": step.prefilled_s - step.started_s,
        "guided_denoise" if guided else "denoise": step.actions_ready_s - step.prefilled_s,
        "action": delivered_s - step.arrived_s,
    }
    return {stage: 1e3 * duration for stage, duration in seconds.items()}


def _text_decoder(parts: PolicyParts, engine: EngineConfig) -> TextDecoder | None:
    if engine.mode is Mode.ACTIONS or not parts.tasks:
        return None
    if engine.mode is not Mode.PARALLEL:
        return LocalTextDecoder(parts.runner)
    sizes = dataclasses.replace(parts.runner.sizes, guided=False)  # it computes no actions
    return RemoteTextDecoder(parts.runner.config, required(parts.weights), sizes, parts.adapter)
