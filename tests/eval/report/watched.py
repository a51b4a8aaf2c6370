"""A watched run for tests: the server in a thread, requests as they are written, and its events."""

import asyncio
import contextlib
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from eval.records.schema import RunFolder
from eval.report.watch_server import HOST, WatchServer
from eval.report.watching import WatchedEvaluation
from eval.rollout.live_picture import LivePicture
from tests.eval.factory import RunBuilder, key


class Watching:
    """Serves a run until the end of the `with` block, and keeps its events.

    Attributes:
        port: The server's port.
        events: The states that a page was sent, in order.
    """

    def __init__(self, run: Path, on_state: Callable[["Watching", dict[str, Any]], None] = lambda *_: None):
        self.port = 0
        self.events: list[dict[str, Any]] = []
        self._run, self._on_state = run, on_state
        self._started, self._arrived = threading.Event(), threading.Condition()
        self._threads = [threading.Thread(target=each) for each in (self._serve, self._listen)]

    def __enter__(self) -> "Watching":
        for thread in self._threads:
            thread.start()
        self.until(lambda state: True)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._server.stop)
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()

    def until(self, holds, timeout_s: float = 120.0) -> dict[str, Any]:
        """The newest state, as soon as something holds of it."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: self.events and holds(self.events[-1]), timeout_s), (
                self.events[-1:]
            )
            return self.events[-1]

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of a request for exactly this path."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=20)
        with contextlib.closing(connection):
            connection.putrequest("GET", path, skip_host="Host" in headers)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()

    def _serve(self) -> None:
        async def run() -> None:
            self._server = WatchServer(WatchedEvaluation(self._run))
            self._loop = asyncio.get_running_loop()
            await self._server.run(0, started=started)

        def started(port: int) -> None:
            self.port = port
            self._started.set()

        asyncio.run(run())

    def _listen(self) -> None:
        assert self._started.wait(120)
        connection = http.client.HTTPConnection(HOST, self.port, timeout=120)
        with contextlib.closing(connection):
            connection.request("GET", "/events")
            for state in _states(connection.getresponse()):
                self._on_state(self, state)
                with self._arrived:
                    self.events.append(state)
                    self._arrived.notify_all()


def _states(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    assert answer.headers["Content-Type"] == "text/event-stream"
    while line := answer.readline():
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))


def going_on(path: Path, **manifest) -> RunBuilder:
    return RunBuilder.at(path, status="running", **manifest)


def picture(run: Path, at=None) -> Path:
    path = RunFolder(run).picture_path(at or key())
    path.parent.mkdir(exist_ok=True)
    live = LivePicture(path)
    assert live.show({"image": np.zeros((8, 8, 3), np.uint8)})
    return path
