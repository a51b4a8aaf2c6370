"""The policy that an evaluation loop or a robot talks to: observations in, actions and finished texts out."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from configs.errors import UsageError
from oxygen.config import Pi05Config
from oxygen.engine import Acted, Engine, Settled
from oxygen.language import LanguageTask, TextBorn, TextFinished
from oxygen.params import random_params
from oxygen.pi05 import Weights, consume, prepare
from oxygen.plan import Ended, Plan
from oxygen.reply import Reply, Tail
from oxygen.runner import ModelInput, Runner, Sizes
from oxygen.scheduler import Arrivals, Limits, Mode, Scheduler
from oxygen.tokenizer import Tokenizer
from oxygen.transforms import LIBERO, Transform, untrained
from oxygen.typing import Float64, Params

__all__ = ["EngineConfig", "OxyGenPolicy", "Reply", "Tail", "create_policy"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """How a policy is served.

    Attributes:
        mode: How language is scheduled beside the actions.
        tokens_per_frame: In mode `unified`, decode steps in a query.
        slots: Requests that can be alive at once; the memory of the KV pool is proportional to it.
        rows: Requests decoded in one batch; others wait in their slots.
    """

    mode: Mode = Mode.UNIFIED
    tokens_per_frame: int = 5
    slots: int = 12
    rows: int = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Asked:
    """A query in progress: when it came in, when its input was ready, and its frame."""

    begun: float
    ready: float
    frame: Acted


class OxyGenPolicy:
    """π0.5 for one robot, narrating and remembering beside its actions.

    `infer` answers a query in one go. A robot that wants its actions before the language of the query is done
    calls `act`, moves, and calls `settle` before the next query.
    """

    def __init__(
        self,
        runner: Runner,
        tokenizer: Tokenizer,
        tasks: Sequence[LanguageTask],
        engine: EngineConfig,
        transform: Transform,
    ) -> None:
        for field, most in (("slots", runner.sizes.slots), ("rows", runner.sizes.rows[-1])):
            wanted = getattr(engine, field)
            if wanted > most:
                raise UsageError(f"{field} is {wanted}; the programs take {most} at most")
        self._runner = runner
        self._tokenizer = tokenizer
        self._tasks = tuple(tasks)
        self._transform = transform
        self._engine_config = engine
        self._engine = _engine(runner, tokenizer, self._tasks, engine)
        self.reset(0)

    @property
    def engine(self) -> EngineConfig:
        """How the policy is served."""
        return self._engine_config

    @property
    def transform(self) -> Transform:
        """The robot's way in and out; its embodiment says what the numbers mean."""
        return self._transform

    @property
    def compiles_after_warm_up(self) -> int:
        """Compilations in this process since the policy's programs were ready; should stay 0."""
        return self._runner.compiles_after_warm_up

    def served(self, engine: EngineConfig) -> "OxyGenPolicy":
        """The same policy served otherwise, on the same weights and the very same compiled programs.

        Raises:
            UsageError: `engine` wants more slots or rows than the programs were compiled for.
        """
        return OxyGenPolicy(self._runner, self._tokenizer, self._tasks, engine, self._transform)

    def reset(self, episode_seed: int) -> None:
        """Begin an episode: requests of the last one are gone, queries and request ids count from 0.

        The flow's noise is a function of the lowest 64 bits of the seed and the query's number.
        """
        self._engine.reset()
        self._seed = episode_seed % 2**64
        self._query = 0
        self._asked: _Asked | None = None
        self._worked_s = 0.0
        self._born_at_s: dict[int, float] = {}

    def infer(self, observation: Mapping[str, Any]) -> Reply:
        """Answer a query: `act` and `settle` in one.

        Args:
            observation: `images` (camera to uint8 [height, width, 3]), `state` (finite numbers), `prompt`.

        Raises:
            UsageError: The observation lacks something, or holds what the policy cannot take.
        """
        self.act(observation)
        return self.settle()

    def act(self, observation: Mapping[str, Any]) -> Float64[np.ndarray, "horizon action"]:
        """Answer a query with its actions, as soon as they are there; see `infer`."""
        if self._asked is not None:
            raise UsageError("a query is still in progress; settle() it before the next act() or infer()")
        begun = time.perf_counter()
        seen = self._model_input(observation)
        ready = time.perf_counter()
        frame = self._engine.act(seen, seed=self._seed, query=self._query)
        self._asked = _Asked(begun=begun, ready=ready, frame=frame)
        return self._restored(frame)

    def settle(self) -> Reply:
        """Wait for the language of the query that `act` has answered, and tell what it brought."""
        asked = self._asked
        if asked is None:
            raise UsageError("no query is in progress; act() comes before settle()")
        self._asked = None
        settled = self._engine.settle()
        end = time.perf_counter()
        reply = self._reply(asked, settled, end)
        self._worked_s += end - asked.begun
        self._query += 1
        return reply

    def finish(self) -> Tail:
        """End the episode: give up the requests that are outstanding, and say which."""
        reply = None if self._asked is None else self.settle()
        requests = tuple(
            TextBorn(
                task=self._tasks[request.task].name, request_id=request.request_id, query=request.born_query
            )
            for request in self._engine.cancel()
        )
        return Tail(cancelled=len(requests), requests=requests, reply=reply)

    def _model_input(self, observation: Mapping[str, Any]) -> ModelInput:
        config = self._runner.config
        seen = self._transform.inputs(observation, self._tokenizer, config)
        length = len(seen.tokens)
        prompt = np.zeros((1, config.bucket(length)), np.int32)
        prompt[0, :length] = seen.tokens
        return ModelInput(images=seen.images[None], prompt=prompt, length=np.full((1,), length, np.int32))

    def _restored(self, frame: Acted) -> Float64[np.ndarray, "horizon action"]:
        return self._transform.outputs(frame.actions)

    def _reply(self, asked: _Asked, settled: Settled, end: float) -> Reply:
        plan, frame = settled.plan, asked.frame
        for _, request_id in plan.born:
            self._born_at_s[request_id] = self._worked_s
        milliseconds = {
            "preprocess": asked.ready - asked.begun,
            "prefill": frame.prefilled - frame.begun,
            "denoise": frame.acted - frame.prefilled,
            "action": frame.acted - asked.begun,
            "decode": end - frame.acted,
            "frame": end - asked.begun,
        }
        return Reply(
            actions=self._restored(frame),
            timings_ms={stage: 1e3 * seconds for stage, seconds in milliseconds.items()},
            born=self._born(plan),
            finished=tuple(self._finished(asked, settled, ended) for ended in settled.committed.ended),
            dropped=self._dropped(plan),
            tokens=settled.committed.decoded,
        )

    def _born(self, plan: Plan) -> tuple[TextBorn, ...]:
        return tuple(
            TextBorn(task=self._tasks[task].name, request_id=request_id, query=plan.query)
            for task, request_id in plan.born
        )

    def _dropped(self, plan: Plan) -> tuple[TextBorn, ...]:
        return tuple(
            TextBorn(task=self._tasks[task].name, request_id=request_id, query=query)
            for task, request_id, query in plan.dropped
        )

    def _finished(self, asked: _Asked, settled: Settled, ended: Ended) -> TextFinished:
        before = self._worked_s - self._born_at_s.pop(ended.request_id)
        within = settled.ended_at[ended.request_id] - asked.begun
        return TextFinished(
            task=self._tasks[ended.task].name,
            request_id=ended.request_id,
            born_query=ended.born_query,
            finished_query=settled.plan.query,
            text=self._tokenizer.decode(ended.tokens).strip(),
            tokens=ended.decoded,
            reason="stop" if ended.stopped else "length",
            latency_ms=1e3 * (before + within),
        )


def _engine(
    runner: Runner, tokenizer: Tokenizer, tasks: Sequence[LanguageTask], engine: EngineConfig
) -> Engine:
    limits = Limits(slots=engine.slots, rows=engine.rows, tokens_per_frame=engine.tokens_per_frame)
    arrivals = [
        Arrivals(
            every_queries=task.every_queries,
            max_tokens=task.max_tokens,
            priority=task.priority,
            stop_token=tokenizer.eos,
        )
        for task in tasks
    ]
    scheduler = Scheduler(mode=engine.mode, arrivals=arrivals, limits=limits)
    return Engine(runner, scheduler, [tokenizer.encode(task.prompt) for task in tasks])


def create_policy(
    config: Pi05Config,
    *,
    weights: int | Params,
    tokenizer: Tokenizer,
    tasks: Sequence[LanguageTask] = (),
    engine: EngineConfig | None = None,
    transform: Transform | None = None,
) -> OxyGenPolicy:
    """Build a policy and compile its programs.

    Args:
        config: The model's sizes.
        weights: Parameters in openpi's layout, or the seed of random ones.
        tokenizer: The vocabulary the weights were trained with.
        tasks: The texts wanted beside actions. Mode `actions` leaves them alone.
        engine: Mode and sizes of the engine.
        transform: The robot's way in and out; LIBERO's, with its numbers as they are, if None.

    Raises:
        UsageError: The parts do not fit together.
    """
    engine = engine or EngineConfig()
    if tokenizer.vocab_size > config.vocab_size:
        raise UsageError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, {config.name} {config.vocab_size} embeddings"
        )
    transform = transform or untrained(LIBERO)
    transform.check_fits(config)
    suffixes = [tokenizer.encode(task.prompt) for task in tasks]
    for task, suffix in zip(tasks, suffixes, strict=True):
        if not suffix:
            raise UsageError(f"language task {task.name!r}: prompt {task.prompt!r} has no tokens")
    if engine.slots < len(tasks):
        raise UsageError(f"{engine.slots} slots for {len(tasks)} language tasks; each needs one at least")
    sizes = Sizes(
        slots=engine.slots,
        rows=(engine.rows,),
        births=max(1, len(tasks)),
        suffix=max([1, *map(len, suffixes)]),
        limit=max([1, *(task.max_tokens for task in tasks)]),
    )
    runner = Runner(config, _prepared(weights, config), sizes)
    policy = OxyGenPolicy(runner, tokenizer, tasks, engine, transform)
    _warm_up(policy, config, transform.norms.state.size)
    return policy


def _prepared(weights: int | Params, config: Pi05Config) -> Weights:
    """What the programs read. Random parameters are gone before compilation, which takes memory too."""
    if isinstance(weights, int):
        return consume(dict(random_params(config, weights, config.dtype)), config)
    return prepare(weights, config)


def _warm_up(policy: OxyGenPolicy, config: Pi05Config, state_size: int) -> None:
    """Go the whole way once, so that the first query pays for no import and no allocation."""
    black = np.zeros((2 * config.image_size, config.image_size, 3), np.uint8)
    images = dict.fromkeys(config.cameras, black)
    policy.infer({"images": images, "state": np.zeros(state_size), "prompt": ""})
    policy.finish()
    policy.reset(0)
