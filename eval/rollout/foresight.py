"""What a policy can be told of the actions that are executed while it computes."""

from collections import deque

from configs.action_prefix import ActionPrefix
from eval.records.timing import Latency
from eval.rollout.clock import Call, Clock
from eval.rollout.timeline import ActionSpan, steps_in
from sim_envs.world import EpisodeKey

_RECENT = 10
"""Queries whose latency counts where a clock can only measure it."""


class Foresight:
    """Tells, as a query is issued, how many old actions will have been executed when its actions come.

    Clocks that know a query's latency beforehand are asked. Where it can only be measured, it is expected to
    be the longest of the episode's last ten, as in real-time chunking (arXiv 2506.07339).
    """

    def __init__(self, clock: Clock, key: EpisodeKey, *, control_hz: float) -> None:
        self._clock = clock
        self._key = key
        self._control_hz = control_hz
        self._recent: deque[float] = deque(maxlen=_RECENT)

    def prefix(self, query: int, rest: ActionSpan | None) -> ActionPrefix | None:
        """What goes on until the actions of a query come; None if they come at once, or nothing is left.

        Args:
            query: Its number.
            rest: What is left of the chunk that is executed.
        """
        if rest is None:
            return None
        delay = min(steps_in(self._expected_ms(query), self._control_hz), rest.steps)
        return ActionPrefix(first=rest.first, delay=delay) if delay else None

    def note(self, latency: Latency) -> None:
        """A query has taken so long."""
        self._recent.append(latency.actions_ms)

    def _expected_ms(self, query: int) -> float:
        """How long its actions will take if they are guided."""
        if not self._clock.foresees:
            return max(self._recent)
        return self._clock.latency(Call(key=self._key, query=query, act_ms=0.0, guided=True)).actions_ms
