"""A policy server in a thread, for tests; and a double of the policy whose actions say what it was asked."""

import asyncio
import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from websockets.sync.client import ClientConnection, connect

from contracts.text import EpisodeEnd, Reply, Text, TextRequest
from oxygen.policy.vector_policy import VectorPolicy
from oxygen.robots import conventions
from oxygen.server.metadata import Declaration
from oxygen.server.msgpack_numpy import pack, unpack
from oxygen.server.robot import Batcher
from oxygen.server.websocket_server import ConnectionServer

HORIZON = 10


class EchoPolicy(VectorPolicy):
    """Its actions are (seed, query, state, …); a query's text finishes in it, and says its number."""

    def __init__(self, robots: int = 1, *, takes_s: float = 0.0) -> None:
        self.batches: list[int] = []
        self.fails: Exception | None = None
        self.fails_to_complete: Exception | None = None
        self.takes_s = takes_s
        self._seeds = [0] * robots
        self._queries = [0] * robots
        self._replies: dict[int, Reply] = {}

    def reset(self, robot: int, episode_seed: int, first_query: int = 0) -> None:
        self._seeds[robot], self._queries[robot] = episode_seed, first_query

    def act(self, observations: Mapping[int, Mapping[str, Any]]) -> Mapping[int, np.ndarray]:
        time.sleep(self.takes_s)
        if self.fails is not None:
            raise self.fails
        self.batches.append(len(observations))
        return {robot: self._acted(robot, one) for robot, one in observations.items()}

    def acted_ms(self, robot: int) -> Mapping[str, float]:
        return {"prefill": 1.0, "denoise": 2.0, "action": 4.0}

    def prompt_cut(self, robot: int) -> int:
        return 2 + robot

    def complete(self) -> Mapping[int, Reply]:
        if self.fails_to_complete is not None:
            raise self.fails_to_complete
        replies, self._replies = self._replies, {}
        return replies

    def finish(self, robot: int) -> EpisodeEnd:
        return EpisodeEnd(cancelled=1, reply=self._replies.pop(robot, None))

    def _acted(self, robot: int, observation: Mapping[str, Any]) -> np.ndarray:
        query = self._queries[robot]
        self._queries[robot] += 1
        which = {"task": "narration", "request_id": query}
        about = {"text": f"{observation['prompt']} {query}", "tokens": 3, "reason": "stop", "latency_ms": 5.0}
        text = Text(**which, **about, requested_query=query, finished_query=query)
        times, asked = {"action": 4.0, "decode": 1.0, "frame": 5.0}, TextRequest(**which, query=query)
        self._replies[robot] = Reply(timings_ms=times, requested=(asked,), finished=(text,), tokens=3)
        row = [self._seeds[robot] % 1000, query, observation["state"][0], *map(float, range(4))]
        return np.tile(np.array(row), (HORIZON, 1)) + 0.001 * np.arange(HORIZON)[:, None]


def declaration(interface=conventions.LIBERO, **changes: Any) -> Declaration:
    about = {
        "interface": dataclasses.replace(interface, name="echo", horizon=HORIZON),
        "horizon": HORIZON,
        "model": "echo",
        "mode": "unified",
        "language_tasks": ("narration",),
        "robots": 1,
    }
    return Declaration(**{**about, **changes})


class PolicyServerThread:
    """Serves in a thread until it is left; then drains, and fails if that takes long."""

    def __init__(
        self,
        policy: VectorPolicy | Callable[[int], VectorPolicy],
        declared: Declaration | None = None,
        *,
        robots: int = 1,
        batch_size: int | None = None,
        window_s: float = 0.0,
        **options: Any,
    ) -> None:
        self._open_policy = (lambda _: policy) if isinstance(policy, VectorPolicy) else policy
        self._declared, self._options = declared or declaration(), options
        self._batches = {"robots": robots, "batch_size": batch_size or robots, "window_s": window_s}
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.batcher = Batcher(self._open_policy, **self._batches)
        self._server = ConnectionServer(self.batcher, self._declared, **self._options)
        await self._server.run("127.0.0.1", 0, started=self._listens)

    def _listens(self, port: int) -> None:
        self.port = port
        self._started.set()

    def __enter__(self) -> "PolicyServerThread":
        self._thread.start()
        assert self._started.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._thread.join(30)
        assert not self._thread.is_alive(), "it has not ended"

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # its loop has ended already
            self._loop.call_soon_threadsafe(self._server.stop)

    def connect(self, path: str = "/", **options: Any) -> ClientConnection:
        """A connection that has said nothing."""
        url = f"ws://127.0.0.1:{self.port}{path}"
        return connect(url, compression=None, max_size=None, proxy=None, **options)

    def client(self, path: str = "/", **options: Any) -> "RawClient":
        return RawClient(self.connect(path, **options))


class RawClient:
    """openpi's client: metadata first, then one answer per request."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection.__enter__()
        self.metadata = unpack(connection.recv(timeout=30))

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.__exit__(None, None, None)

    def ask(self, request: Any) -> Any:
        """The answer, or the text of an error."""
        self.connection.send(request if isinstance(request, bytes | str) else pack(request))
        answer = self.connection.recv(timeout=60)
        return answer if isinstance(answer, str) else unpack(answer)


def request(number: int = 0, **changes: Any) -> dict[str, Any]:
    """An observation of LIBERO's robot in openpi's keys."""
    rng = np.random.default_rng(number)
    images = rng.integers(0, 256, (2, 64, 48, 3), np.uint8)
    return {
        "observation/image": images[0],
        "observation/wrist_image": images[1],
        "observation/state": rng.normal(size=8),
        "prompt": "put the mug on the plate",
        **changes,
    }
