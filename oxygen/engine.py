"""A frame: plan it, run it, commit it. Actions first; what language the frame affords follows behind them."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np

from oxygen.kv_pool import Texts
from oxygen.pi05 import Prefix
from oxygen.plan import Birth, Committed, Plan, Request, Stretch
from oxygen.runner import Birthing, ModelInput, Runner
from oxygen.scheduler import Scheduler
from oxygen.typing import Float32


@dataclasses.dataclass(frozen=True, kw_only=True)
class Acted:
    """A frame whose actions are there, while its language may still be on its way.

    Attributes:
        plan: What was planned.
        actions: The chunk, normalised as the model draws it.
        begun: When the work began, in seconds of the engine's clock.
        prefilled: When the prefix was ready.
        acted: When the actions were on the host.
        ended_at: Of requests that were run to their end already: when that was.
    """

    plan: Plan
    actions: Float32[np.ndarray, "horizon action"]
    begun: float
    prefilled: float
    acted: float
    ended_at: Mapping[int, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settled:
    """A frame that is over.

    Attributes:
        plan: What was planned.
        committed: What it brought.
        ended_at: When each of the requests that ended was known to have, by request id.
    """

    plan: Plan
    committed: Committed
    ended_at: Mapping[int, float]


class Engine:
    """Serves one stream of queries with a runner's programs, as a scheduler plans it."""

    def __init__(
        self,
        runner: Runner,
        scheduler: Scheduler,
        suffixes: Sequence[Sequence[int]],
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self._suffixes = suffixes
        self._clock = clock
        self._pool, self._texts = runner.empty()
        self._in_flight: Acted | None = None

    def act(self, seen: ModelInput, *, seed: int, query: int) -> Acted:
        """Run a frame until its actions are on the host and its language is on its way.

        Prefill and denoise are queued together and timed by their own buffers. Language is queued once the
        actions are there, so that it cannot delay them, not even by the host's work of queueing it. Stretches
        that run to the end have done so when this returns; others decode on, until `settle` reads them back.
        """
        plan = self._scheduler.plan(query)
        begun = self._clock()
        prefix = self._runner.prefill(seen)
        actions = self._runner.denoise(prefix, [seed], [query])
        actions.copy_to_host_async()
        jax.block_until_ready(prefix.k[-1])
        prefilled = self._clock()
        chunk = np.asarray(actions)[0]
        acted = self._clock()
        ended_at: dict[int, float] = {}
        for stretch in plan.stretches:
            ended_at |= self._speak(stretch, self._runner.prefill(seen) if stretch.own_prefill else prefix)
        self._in_flight = Acted(
            plan=plan, actions=chunk, begun=begun, prefilled=prefilled, acted=acted, ended_at=ended_at
        )
        return self._in_flight

    def settle(self) -> Settled:
        """Wait for the language of the frame that has acted, and commit it."""
        frame = self._in_flight
        assert frame is not None, "settle() follows act()"
        self._in_flight = None
        committed = self._scheduler.commit(self._written(frame.plan))
        now = self._clock()
        ended_at = {ended.request_id: frame.ended_at.get(ended.request_id, now) for ended in committed.ended}
        return Settled(plan=frame.plan, committed=committed, ended_at=ended_at)

    def reset(self) -> None:
        """Begin an episode. Whatever is in progress is forgotten; the pool is kept as it is."""
        self._in_flight = None
        self._scheduler.reset()

    def cancel(self) -> tuple[Request, ...]:
        """Give up all requests in progress and return them."""
        return self._scheduler.cancel()

    def _speak(self, stretch: Stretch, prefix: Prefix) -> dict[int, float]:
        """Queue a stretch's births and decode steps; returns when requests ended, where known.

        Texts that run to their end are watched one step behind, so that the device never waits for the host.
        """
        self._begin(stretch, prefix)
        ended_at: dict[int, float] = {}
        for _ in range(stretch.steps):
            before = self._texts
            self._pool, self._texts = self._runner.decode(
                stretch.rows, self._pool, self._texts, batch=self._runner.sizes.rows[-1]
            )
            if stretch.to_the_end and self._all_ended(stretch, before, ended_at):
                return ended_at
        if stretch.to_the_end:
            self._all_ended(stretch, self._texts, ended_at)
        return ended_at

    def _all_ended(self, stretch: Stretch, texts: Texts, ended_at: dict[int, float]) -> bool:
        """Note in `ended_at` which requests have ended by now, and say whether that is all of them."""
        written = _read(texts, stretch.rows)
        for birth in stretch.births:
            if birth.request_id not in ended_at and self._scheduler.finished(birth.slot, written[birth.slot]):
                ended_at[birth.request_id] = self._clock()
        return len(ended_at) == len(stretch.births)

    def _begin(self, stretch: Stretch, prefix: Prefix) -> None:
        size = self._runner.sizes.births
        for start in range(0, len(stretch.births), size):
            births = stretch.births[start : start + size]
            forked = self._runner.births([self._birthing(birth) for birth in births])
            self._pool, self._texts = self._runner.fork(prefix, forked, self._pool, self._texts)

    def _birthing(self, birth: Birth) -> Birthing:
        return Birthing(
            slot=birth.slot,
            parent=0,
            suffix=self._suffixes[birth.task],
            seed=0,
            query=0,
            task=birth.task,
        )

    def _written(self, plan: Plan) -> Mapping[int, Sequence[int]]:
        rows = [slot for stretch in plan.stretches for slot in stretch.rows]
        return _read(self._texts, rows) if rows else {}


def _read(texts: Texts, slots: Sequence[int]) -> dict[int, list[int]]:
    """What has been written in some slots so far: one small array, waited for."""
    written = np.asarray(texts.written)
    return {slot: [int(token) for token in written[slot] if token >= 0] for slot in slots}
