"""Estimates how many actions of the current chunk are executed while the policy computes."""

from collections import deque

from configs.action_prefix import ActionPrefix
from eval.records.query_logs import ActionSpan, Latency
from eval.rollout.clock import Clock, TimedQuery
from eval.rollout.timeline import steps_in
from sim_envs.world import EpisodeKey

_RECENT = 10
"""Number of past queries; on a measured clock their longest latency is the estimate."""


class DelayEstimator:
    """Estimates the delay of a query, in control steps, when it is issued.

    Clocks that know the latency in advance give it. On a measured clock the estimate is the longest latency
    of the episode's last ten queries, as in real-time chunking (arXiv 2506.07339).
    """

    def __init__(self, clock: Clock, key: EpisodeKey, *, control_hz: float) -> None:
        self._clock = clock
        self._key = key
        self._control_hz = control_hz
        self._recent: deque[float] = deque(maxlen=_RECENT)

    def prefix(self, query: int, rest: ActionSpan | None) -> ActionPrefix | None:
        """Actions that are executed before the new chunk is available; None if there are none.

        Args:
            query: Number of the query.
            rest: The remaining actions of the current chunk.
        """
        if rest is None:
            return None
        if self._clock.knows_latency_in_advance:
            guided = TimedQuery(key=self._key, index=query, act_ms=0.0, guided=True)
            expected_ms = self._clock.latency(guided).actions_ms
        else:
            expected_ms = max(self._recent)
        delay = min(steps_in(expected_ms, self._control_hz), rest.steps)
        return ActionPrefix(first=rest.first, delay=delay) if delay else None

    def note(self, latency: Latency) -> None:
        """Record the latency of a query."""
        self._recent.append(latency.actions_ms)
