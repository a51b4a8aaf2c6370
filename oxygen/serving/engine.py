"""A frame: see, act, and say what the frame affords. Actions first; language follows behind them."""

import dataclasses
import time
from collections.abc import Callable, Mapping

import jax
import numpy as np

from oxygen.model.pi05 import Prefix
from oxygen.serving.budget import Budget, DecodeCosts, RunningMean
from oxygen.serving.plan import Committed, Identity, Plan, Request
from oxygen.serving.runner import ModelInput, Runner
from oxygen.serving.scheduler import Scheduler
from oxygen.serving.voice import Heard, Turn, Voice, batch_of
from oxygen.typing import Array, Float32


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """A robot's query: its episode's 64-bit seed and the query's number."""

    seed: int
    query: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settled:
    """A frame that is over.

    Attributes:
        plan: What was planned.
        committed: What it brought.
        first_at: When the first token of a request was known, in seconds of the engine's clock.
        ended_at: When a request was known to have ended.
        at: When all was known.
    """

    plan: Plan
    committed: Committed
    first_at: Mapping[Identity, float]
    ended_at: Mapping[Identity, float]
    at: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Afforded:
    """The decode steps of a frame whose texts do not run to their end, and the size of their batch."""

    steps: int
    batch: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Acted:
    """A frame whose actions are there, while its language may still be on its way.

    Attributes:
        plan: What was planned.
        actions: Every robot's chunk, normalised as the model draws it.
        begun: When the work began, in seconds of the engine's clock.
        prefilled: When the prefix was ready.
        acted: When the actions were on the host.
        afforded: What was queued behind them.
    """

    plan: Plan
    actions: Float32[np.ndarray, "robot horizon action"]
    begun: float
    prefilled: float
    acted: float
    afforded: Afforded


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Queued:
    """A frame that the device is at."""

    turn: Turn
    prefix: Prefix
    actions: Array
    came: float
    begun: float
    afforded: Afforded


class Engine:
    """Serves the queries of some robots with a runner's programs, as a scheduler plans it.

    A frame is one `begin`, one `act` and one `finish`, in this order; `settle` is the end of it, or the next
    frame's `begin`.
    """

    def __init__(
        self,
        runner: Runner,
        scheduler: Scheduler,
        voice: Voice,
        budget: Budget,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self._voice = voice
        self._budget = budget
        self._clock = clock
        self._costs = DecodeCosts()
        self._acting_ms = RunningMean()
        self._queued: _Queued | None = None
        self._in_flight: Acted | None = None

    def begin(self, seen: ModelInput, asked: Mapping[int, Asked], *, came: float) -> Settled | None:
        """Queue a frame: prefill, denoise, then what language it affords. Waits for nothing of it.

        While the device is at the prefix, the host reads back and commits the frame before (whose tokens have
        mostly been there for long), plans this frame's language and queues it behind the actions. The device
        takes things in this order, so language cannot delay the actions; and queueing it costs the host time
        that it would else spend waiting for them. (Where host and device are the same cores, some of that
        time is the actions'.)

        Args:
            seen: What the robots see; a padded row for those that sit out.
            asked: The queries of those that take part.
            came: When these came in, in seconds of the engine's clock; the deadline counts from there.

        Returns:
            The frame before, if it had not been settled.
        """
        seeds, queries = self._padded(asked)
        begun = self._clock()
        prefix = self._runner.prefill(seen)
        actions = self._runner.denoise(prefix, seeds, queries)
        actions.copy_to_host_async()
        before = self.settle()
        plan = self._scheduler.plan({robot: query.query for robot, query in asked.items()})
        turn = Turn(seen=seen, seeds=seeds, plan=plan)
        afforded = self._afforded(plan, came)
        self._voice.begin(turn, prefix, afforded.steps)
        self._queued = _Queued(
            turn=turn, prefix=prefix, actions=actions, came=came, begun=begun, afforded=afforded
        )
        return before

    def act(self) -> Acted:
        """Wait until the actions of the frame that has begun are on the host; its language is on its way."""
        queued = self._queued
        assert queued is not None, "begin() comes before act()"
        jax.block_until_ready(queued.prefix.k[-1])
        prefilled = self._clock()
        chunk = np.asarray(queued.actions)
        acted = self._clock()
        self._acting_ms.add(1e3 * (acted - queued.came))
        self._in_flight = Acted(
            plan=queued.turn.plan,
            actions=chunk,
            begun=queued.begun,
            prefilled=prefilled,
            acted=acted,
            afforded=queued.afforded,
        )
        return self._in_flight

    def finish(self) -> None:
        """Let the texts that run to their end do so; the others decode on when this returns."""
        queued, self._queued = self._queued, None
        assert queued is not None, "act() comes before finish()"
        self._voice.finish(queued.turn, queued.prefix)

    def drain(self) -> None:
        """Wait until the language of the frame that has acted is done; it is read back later."""
        if self._in_flight is not None:
            self._voice.drain()

    def settle(self) -> Settled | None:
        """Wait for the language of the frame that has acted, and commit it; None if none is in flight."""
        frame = self._in_flight
        if frame is None:
            return None
        self._in_flight = None
        heard = self._voice.heard()
        if frame.afforded.steps:
            self._note_cost(frame, heard)
        committed = self._scheduler.commit(heard.written)
        ended = [ended.identity for ended in committed.ended]
        return Settled(
            plan=frame.plan,
            committed=committed,
            first_at={**dict.fromkeys(committed.first, heard.at), **heard.first_at},
            ended_at={**dict.fromkeys(ended, heard.at), **heard.ended_at},
            at=heard.at,
        )

    def _note_cost(self, frame: Acted, heard: Heard) -> None:
        """What the frame's decode steps took; where nobody was there when they were over, at most."""
        batch, steps = frame.afforded.batch, frame.afforded.steps
        if heard.decoded_at is None:
            self._costs.took_at_most(batch, steps, 1e3 * (heard.at - frame.acted))
        else:
            self._costs.took(batch, steps, 1e3 * (heard.decoded_at - frame.acted))

    def reset(self, robot: int) -> None:
        """Begin an episode of a robot. Its requests are forgotten; the pool is kept as it is."""
        self._scheduler.reset(robot)

    def cancel(self, robot: int) -> tuple[Request, ...]:
        """Give up a robot's requests in progress and return them."""
        return self._scheduler.cancel(robot)

    def _padded(self, asked: Mapping[int, Asked]) -> tuple[list[int], list[int]]:
        """Seeds and queries of all robots; 0 for those that sit out."""
        nobody = Asked(seed=0, query=0)
        of_all = [asked.get(robot, nobody) for robot in range(self._runner.sizes.robots)]
        return [query.seed for query in of_all], [query.query for query in of_all]

    def _afforded(self, plan: Plan, came: float) -> Afforded:
        for stretch in plan.stretches:
            if not stretch.to_the_end:
                batch = batch_of(stretch, self._runner.sizes)
                spent_ms = max(1e3 * (self._clock() - came), self._acting_ms.value or 0.0)
                steps = self._budget.steps(batch=batch, spent_ms=spent_ms, costs=self._costs)
                return Afforded(steps=min(steps, stretch.steps), batch=batch)
        return Afforded(steps=0, batch=0)
