"""A policy in a Ray actor, which answers the worlds of other actors in batches.

Imports no JAX itself, since worlds import this module for their handles.
"""

import contextlib
import math
import os
import queue
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eval.policies.base import LoadedPolicy
from eval.policies.served import IN_MESSAGES, EpisodeStart
from eval.policies.serving import PolicyServer
from eval.rollout.executors.ray_world import EpisodeLeft, UnknownEpisode

_SENT_FIELDS = ("interface", "horizon", "inputs", "writes_texts", "reports_work", "remark")
"""Fields of `LoadedPolicy` that are sent to the driver."""


class PolicyService:
    """A policy that answers worlds in batches."""

    def __init__(self, opener: Callable[[], Sequence[LoadedPolicy]], worlds: int) -> None:
        self._opener = opener
        self._worlds = worlds
        self._opening = threading.Lock()
        self._sent: list[Mapping[str, Any]] = []
        self._asked: queue.SimpleQueue[tuple[int, Any, Callable[[object], None]]] = queue.SimpleQueue()

    def opened(self) -> list[Mapping[str, Any]]:
        """Open the policy if needed; the fields of each variant's `LoadedPolicy`."""
        with self._opening:
            if not self._sent:
                policies = self._opener()
                server = PolicyServer(policies, [IN_MESSAGES] * self._worlds)
                threading.Thread(target=self._answer, args=(server,), daemon=True).start()
                self._sent = [{name: getattr(each, name) for name in _SENT_FIELDS} for each in policies]
        return self._sent

    def ask(self, world: int, message: Any) -> Any:
        """Answer a world."""
        self.opened()
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._asked.put((world, message, answers.put))
        return answers.get()

    def _answer(self, server: PolicyServer) -> None:
        """Answer all worlds; runs in its own thread."""
        playing: set[int] = set()
        patience_s = math.inf
        try:
            while True:
                self._receive(server, playing, patience_s)
                patience_s = server.poll()
        except BaseException:  # noqa: BLE001 - process boundary: worlds must not wait for ever
            traceback.print_exc()
            os._exit(1)

    def _receive(self, server: PolicyServer, playing: set[int], patience_s: float) -> None:
        """Wait for a message, then handle all that are queued."""
        with contextlib.suppress(queue.Empty):
            timeout_s = None if patience_s == math.inf else patience_s
            self._handle(server, playing, *self._asked.get(timeout=timeout_s))
            while True:
                self._handle(server, playing, *self._asked.get_nowait())

    def _handle(
        self,
        server: PolicyServer,
        playing: set[int],
        world: int,
        message: Any,
        answer: Callable[[object], None],
    ) -> None:
        if isinstance(message, EpisodeLeft):
            playing.discard(world)
            server.job_ended(world)
            answer(None)
        elif isinstance(message, EpisodeStart):
            playing.add(world)
            server.handle(world, message, answer)
            answer(None)
        elif world in playing:
            server.handle(world, message, answer)
        else:
            answer(UnknownEpisode())
