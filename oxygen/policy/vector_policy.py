"""The policy for any number of robots: observations in, actions and finished texts out, in one batch."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from configs.errors import UsageError
from oxygen.model.config import Pi05Config
from oxygen.policy.reply import Answer, Reply, Tail
from oxygen.policy.robot import Query, Robot
from oxygen.robots.tokenizer import Tokenizer
from oxygen.robots.transforms import Seen, Transform
from oxygen.serving.engine import Asked, Engine, Settled
from oxygen.serving.engine_config import EngineConfig, check_serves
from oxygen.serving.language import LanguageTask, stop_token
from oxygen.serving.runner import ModelInput, Runner
from oxygen.serving.scheduler import Mode, Scheduler, Wanted
from oxygen.serving.second_process import Recipe, RemoteVoice
from oxygen.serving.voice import LocalVoice, Silence, Suffix, Voice
from oxygen.serving.work_clock import WorkClock
from oxygen.weights.source_of import Loadable, required

Observations = Sequence[Mapping[str, Any] | None]
"""One for each robot; None for a robot that sits out."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """What a policy is made of, however it is served.

    Attributes:
        runner: Its compiled programs.
        tokenizer: The vocabulary the weights were trained with.
        tasks: The texts wanted beside actions.
        suffixes: What asks for them.
        transform: The robot's way in and out.
        weights: How another process loads the weights; None if it cannot.
    """

    runner: Runner
    tokenizer: Tokenizer
    tasks: tuple[LanguageTask, ...]
    suffixes: tuple[Suffix, ...]
    transform: Transform
    weights: Loadable | None


class VectorPolicy:
    """π0.5 for several robots, narrating and remembering beside their actions.

    All act in one batch, and their texts share one pool and one batch. Actions are the same bits however it
    is served, and what a robot does and says is the same in any company, slot and frame. For several robots
    that takes programs of one prompt bucket, as `create_vector_policy` compiles them: of more, the longest
    prompt of all would decide to how many positions each is padded, and so the last bits. The scores of a
    text depend in theirs on the size of the batch it is decoded in (`EngineConfig.rows` in mode `unified`,
    fewer in the others): so texts of two modes may differ where two tokens score almost alike.

    `infer` answers a query of each in one go. Robots that want their actions before the language of the query
    is done call `act` and move; the replies come with the next `act`, or with `settle`.
    """

    def __init__(self, parts: Parts, engine: EngineConfig) -> None:
        check_serves(engine, parts.runner.sizes)
        self._parts = parts
        self._engine_config = engine
        self._clock = WorkClock()
        self._voice = _voice(parts, engine)
        self._engine = Engine(parts.runner, _scheduler(parts, engine), self._voice, engine.budget)
        self._robots = [self._new_robot(robot, 0) for robot in range(engine.robots)]

    @property
    def engine(self) -> EngineConfig:
        """How the policy is served."""
        return self._engine_config

    @property
    def parts(self) -> Parts:
        """What it is made of."""
        return self._parts

    @property
    def runner(self) -> Runner:
        """Its compiled programs, which hold no state of an episode."""
        return self._parts.runner

    @property
    def transform(self) -> Transform:
        """The robots' way in and out; its embodiment says what the numbers mean."""
        return self._parts.transform

    @property
    def compiles_after_warm_up(self) -> int:
        """Compilations since the policy's programs were ready, in all its processes; should stay 0."""
        return self.runner.compiles_after_warm_up + self._voice.compiles_after_warm_up

    def served(self, engine: EngineConfig) -> "VectorPolicy":
        """The same policy served otherwise, on the same weights and the very same compiled programs.

        Raises:
            UsageError: `engine` wants more than the programs were compiled for.
        """
        return VectorPolicy(self._parts, engine)

    def reset(self, robot: int, episode_seed: int) -> None:
        """Begin an episode of a robot: its requests are gone, its queries and request ids count from 0.

        The noise of its actions is a function of the lowest 64 bits of the seed and the query's number.
        """
        self._finish_frame()
        self._engine.reset(robot)
        self._robots[robot] = self._new_robot(robot, episode_seed)

    def act(self, observations: Observations) -> tuple[Answer | None, ...]:
        """Answer a query of each robot with its actions, as soon as they are there.

        Args:
            observations: Of each robot `images` (camera to uint8 [height, width, 3]), `state` (finite
                numbers) and `prompt`; None for one that sits out.

        Raises:
            UsageError: An observation lacks something, or holds what the policy cannot take.
        """
        with self._clock as came:
            seen = self._model_input(observations)
            asked = {
                robot.index: Asked(seed=robot.seed, query=robot.next_query)
                for robot, given in zip(self._robots, observations, strict=True)
                if given is not None
            }
            ready = time.perf_counter()
            before = self._engine.begin(seen, asked, came=came)
            if before is not None:
                self._note(before)
            frame = self._engine.act()
            chunks = {robot: self.transform.outputs(frame.actions[robot]) for robot in asked}
            acted = time.perf_counter()
            self._engine.finish()
            return tuple(
                self._answer(
                    robot,
                    Query(actions=chunks[robot.index], came=came, ready=ready, acted=acted, frame=frame),
                )
                if robot.index in asked
                else None
                for robot in self._robots
            )

    def drain(self) -> None:
        """Wait until the language of the queries answered by `act` is done, and leave its replies for later.

        A loop that does this before each `act` measures its own period: every query begins on an idle device.
        """
        self._engine.drain()

    def settle(self) -> tuple[Reply | None, ...]:
        """Wait for the language of the queries answered by `act`; the replies that are owed."""
        self._finish_frame()
        return tuple(robot.owed() for robot in self._robots)

    def infer(self, observations: Observations) -> tuple[Reply | None, ...]:
        """Answer a query of each robot: `act` and `settle` in one."""
        self.act(observations)
        return self.settle()

    def finish(self, robot: int) -> Tail:
        """End a robot's episode: give up the requests that are outstanding, and say which."""
        self._finish_frame()
        return self._robots[robot].tail(self._engine.cancel(robot), self.compiles_after_warm_up)

    def close(self) -> None:
        """End the second process of mode `parallel`; the other modes have none."""
        self._voice.close()

    def _answer(self, robot: Robot, query: Query) -> Answer:
        answer = Answer(actions=query.actions, before=robot.owed())
        robot.acted(query)
        return answer

    def _finish_frame(self) -> None:
        with self._clock:
            settled = self._engine.settle()
            if settled is not None:
                self._note(settled)

    def _note(self, settled: Settled) -> None:
        """Tell every robot what came of a frame."""
        texts = {
            ended.identity: self._parts.tokenizer.decode(ended.tokens).strip()
            for ended in settled.committed.ended
        }
        for robot in self._robots:
            robot.settled(settled, texts)

    def _new_robot(self, index: int, seed: int) -> Robot:
        return Robot(index, seed, tuple(task.name for task in self._parts.tasks), self._clock)

    def _model_input(self, observations: Observations) -> ModelInput:
        """What all robots see, padded to the bucket of the longest prompt; those that sit out see black."""
        config = self.runner.config
        if len(observations) != len(self._robots) or not any(given is not None for given in observations):
            raise UsageError(
                f"{len(observations)} observations for {len(self._robots)} robots: give one for each, None "
                "for a robot that sits out, and not for all"
            )
        seen = [
            None if given is None else self.transform.inputs(given, self._parts.tokenizer, config)
            for given in observations
        ]
        return _batched(seen, config)


def _batched(seen: Sequence[Seen | None], config: Pi05Config) -> ModelInput:
    robots, side = len(seen), config.image_size
    images = np.zeros((robots, len(config.cameras), side, side, 3), np.uint8)
    length = np.ones((robots,), np.int32)
    for robot, one in enumerate(seen):
        if one is not None:
            images[robot], length[robot] = one.images, len(one.tokens)
    prompt = np.zeros((robots, config.bucket(int(length.max()))), np.int32)
    for robot, one in enumerate(seen):
        if one is not None:
            prompt[robot, : len(one.tokens)] = one.tokens
    return ModelInput(images=images, prompt=prompt, length=length)


def _scheduler(parts: Parts, engine: EngineConfig) -> Scheduler:
    wanted = [
        Wanted(
            arrivals=task.arrivals,
            max_tokens=task.max_tokens,
            priority=task.priority,
            stop_token=stop_token(task, parts.tokenizer),
        )
        for task in parts.tasks
    ]
    return Scheduler(mode=engine.mode, wanted=wanted, limits=engine.limits())


def _voice(parts: Parts, engine: EngineConfig) -> Voice:
    if engine.mode is Mode.ACTIONS or not parts.tasks:
        return Silence()
    if engine.mode is not Mode.PARALLEL:
        return LocalVoice(parts.runner, parts.suffixes)
    return RemoteVoice(
        Recipe(
            config=parts.runner.config,
            weights=required(parts.weights),
            sizes=parts.runner.sizes,
            suffixes=parts.suffixes,
        )
    )
