"""A frame: see, act, and say what the frame affords. Actions first; language follows behind them."""

import dataclasses
import time
from collections.abc import Callable, Mapping

import jax
import numpy as np

from oxygen.budget import Budget, DecodeCosts
from oxygen.plan import Committed, Identity, Plan, Request
from oxygen.runner import ModelInput, Runner
from oxygen.scheduler import Scheduler
from oxygen.typing import Float32
from oxygen.voice import Turn, Voice, batch_of


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
        before: The frame before, if it had not been settled.
    """

    plan: Plan
    actions: Float32[np.ndarray, "robot horizon action"]
    begun: float
    prefilled: float
    acted: float
    afforded: Afforded
    before: Settled | None


class Engine:
    """Serves the queries of some robots with a runner's programs, as a scheduler plans it."""

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
        self._in_flight: Acted | None = None

    def act(self, seen: ModelInput, asked: Mapping[int, Asked], *, came: float) -> Acted:
        """Run a frame until its actions are on the host and its language is on its way.

        Prefill and denoise are queued at once. While the device is at it, the host reads back and commits the
        frame before (whose tokens have mostly been there for long), and plans this frame's language. That is
        queued once the actions are there, so that it cannot delay them, not even by the host's work of
        queueing it. Texts that run to their end have ended when this returns; the others decode on.

        Args:
            seen: What the robots see; a padded row for those that sit out.
            asked: The queries of those that take part.
            came: When these came in, in seconds of the engine's clock; the deadline counts from there.
        """
        seeds, queries = self._padded(asked)
        begun = self._clock()
        prefix = self._runner.prefill(seen)
        actions = self._runner.denoise(prefix, seeds, queries)
        actions.copy_to_host_async()
        before = self.settle()
        plan = self._scheduler.plan({robot: query.query for robot, query in asked.items()})
        turn = Turn(seen=seen, seeds=seeds, plan=plan)
        self._voice.begin(turn)
        jax.block_until_ready(prefix.k[-1])
        prefilled = self._clock()
        chunk = np.asarray(actions)
        acted = self._clock()
        afforded = self._afforded(plan, spent_ms=1e3 * (acted - came))
        self._voice.go_on(turn, prefix, afforded.steps)
        self._in_flight = Acted(
            plan=plan,
            actions=chunk,
            begun=begun,
            prefilled=prefilled,
            acted=acted,
            afforded=afforded,
            before=before,
        )
        return self._in_flight

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
            note = self._costs.took if heard.waited else self._costs.took_at_most
            note(frame.afforded.batch, frame.afforded.steps, 1e3 * (heard.at - frame.acted))
        committed = self._scheduler.commit(heard.written)
        ended = [ended.identity for ended in committed.ended]
        return Settled(
            plan=frame.plan,
            committed=committed,
            first_at={**dict.fromkeys(committed.first, heard.at), **heard.first_at},
            ended_at={**dict.fromkeys(ended, heard.at), **heard.ended_at},
            at=heard.at,
        )

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

    def _afforded(self, plan: Plan, *, spent_ms: float) -> Afforded:
        for stretch in plan.stretches:
            if not stretch.to_the_end:
                batch = batch_of(stretch, self._runner.sizes)
                steps = self._budget.steps(batch=batch, spent_ms=spent_ms, costs=self._costs)
                return Afforded(steps=min(steps, stretch.steps), batch=batch)
        return Afforded(steps=0, batch=0)
