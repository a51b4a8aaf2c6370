"""Policy servers without a model: openpi's, and `oxygen-eval serve`."""

import contextlib
import dataclasses
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from threading import Thread
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from contracts.episode import EpisodeKey
from contracts.interface import Interface
from contracts.mode import Mode
from contracts.observation import Observation
from contracts.text import EpisodeEnd, Reply
from eval.policies.base import LoadedPolicy
from eval.policies.websocket import open_websocket
from oxygen.robots.conventions import LIBERO
from oxygen.server.msgpack_numpy import pack, unpack
from sim_envs.fake import FakeWorld
from tests.eval.doubles import text_finished
from tests.oxygen.server.server_thread import declaration

ACTIONS = np.arange(70, dtype=np.float32).reshape(10, 7)
KEY = EpisodeKey(suite="libero_object", task_id=4, init_id=3, seed=7)


def actions(query: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"actions": ACTIONS}


class OpenpiServer:
    """Metadata first, then an answer for every query, and tracebacks as text; in a thread until it is closed.

    Args:
        answer: What a query is answered with: a map, or bytes or a text that are sent as they are. What it
            raises is sent as a traceback.
        metadata: What a client is greeted with, or bytes or a text, or None for no greeting.
        port: To come back at.
        closes: Code and reason with which connections are closed at once.
    """

    def __init__(
        self,
        answer: Callable[[Mapping[str, Any]], Any] = actions,
        *,
        metadata: Any = None,
        port: int = 0,
        closes: tuple[int, str] | None = None,
        **options: Any,
    ) -> None:
        self.queries: list[Mapping[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.connections: list[ServerConnection] = []
        self._answer = answer
        self._metadata = {} if metadata is None else metadata
        self._closes = closes
        self._server = serve(self._serve, "127.0.0.1", port, compression=None, max_size=None, **options)
        self.port = self._server.socket.getsockname()[1]
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def opened(
        self, *, modes: Sequence[Mode] = (), worlds: int = 1, **kwargs: Any
    ) -> contextlib.closing[LoadedPolicy]:
        """Its policy with these arguments, until it is left. It is there at once."""
        options = {"modes": modes, "worlds": worlds, "notify": pytest.fail}
        return contextlib.closing(open_websocket(self.url, kwargs, **options))

    def play(
        self, *queries: int, observation: Observation | None = None, **how: Any
    ) -> list[tuple[list[tuple[np.ndarray, Reply]], EpisodeEnd]]:
        """Episodes of so many queries: the actions and the reply of each, and the end."""
        observation, episodes = observation or FakeWorld().observe(), []
        with self.opened(**how) as policy:
            acting = policy.in_world(None, None)
            for count in queries:
                acting.reset(KEY)
                answers = [(acting.act(observation), acting.complete()) for _ in range(count)]
                episodes.append((answers, acting.finish()))
        return episodes

    def __enter__(self) -> "OpenpiServer":
        return self

    def stop(self) -> None:
        """Accept no more connections."""
        self._server.socket.close()

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        for connection in self.connections:
            connection.close()
        self._thread.join()

    def _serve(self, connection: ServerConnection) -> None:
        self.connections.append(connection)
        self.headers.append(connection.request.headers)
        if self._closes is not None:
            connection.close(*self._closes)
            return
        if self._metadata is not ...:
            connection.send(_framed(self._metadata))
        try:
            while True:
                self._reply(connection)
        except ConnectionClosed:
            pass

    def _reply(self, connection: ServerConnection) -> None:
        query = unpack(connection.recv())
        self.queries.append(query)
        began = time.perf_counter()
        try:
            answer = self._answer(query)
        except ArithmeticError:
            connection.send(traceback.format_exc())
            connection.close(1011, "Internal server error. Traceback included in previous frame.")
            return
        if isinstance(answer, Mapping):
            infer_ms = 1e3 * (time.perf_counter() - began)
            answer = {"server_timing": {"infer_ms": infer_ms}, **answer}
        connection.send(_framed(answer))


def _framed(message: Any) -> bytes | str:
    return message if isinstance(message, bytes | str) else pack(message)


SERVED_ACTIONS = np.linspace(-1, 1, 70).reshape(10, 7)
"""Of `oxygen-eval serve`."""


def served_metadata(interface: Interface = LIBERO, **changes: Any) -> dict[str, Any]:
    """What the server sends first."""
    declared = declaration(interface, model="tiny", weights_sha256="0" * 64).metadata()["oxygen_eval"]
    return {"oxygen_eval": {**declared, **changes}}


def served_text(query: int, **changes: Any) -> dict[str, Any]:
    """A text about a query that takes until the next one, as it is sent."""
    given = dataclasses.asdict(text_finished(query, after_ms=3.0))
    return {**given, "query": given.pop("requested_query"), **changes}


def served_answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """A text is requested in every query, and finished 3 ms after the next one's arrival."""
    about = request["oxygen_eval"]
    if about.get("poll"):
        query = about["query"]
        asked = {"task": "narration", "request_id": query, "query": query}
        return {
            "texts": [served_text(query - 1)] if query else [],
            "oxygen_eval": {"requested": [asked], "dropped": [], "tokens": 3},
            "server_timing": {"action": 0.5, "decode": 4.0, "frame": 4.5},
        }
    timing = {"queue": 0.0625, "prefill": 0.25, "denoise": 0.125, "action": 0.5, "infer_ms": 0.03125}
    return {"actions": SERVED_ACTIONS, "texts": [], "oxygen_eval": {"tokens": 0}, "server_timing": timing}


def serving(reply: Any = served_answer, interface: Interface = LIBERO, **declared: Any) -> OpenpiServer:
    """A server in a thread."""
    return OpenpiServer(reply, metadata=served_metadata(interface, **declared))
