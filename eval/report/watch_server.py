"""Serves the page of a running evaluation, to this machine alone.

The server reads the runs' folders and sends the page's data as a server-sent event whenever they change. It
also serves the page's own files, the runs' pictures and their report, and nothing else: links out of a run's
folder are not followed.
"""

import asyncio
import contextlib
import json
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from configs.errors import UsageError
from configs.signals import SIGNALS
from eval.records.following import inside
from eval.report.pages.run_report import REPORT
from eval.report.pages.site import page_file, render
from eval.report.watching import WatchedEvaluation

HOST = "127.0.0.1"
_LOCAL_NAMES = (HOST, "localhost")
_POLL_S = 0.5
"""Interval at which the runs' folders are read while a page is open."""
_QUIET_S = 15.0
"""Interval of keep-alive comments, which reveal closed connections."""
_MAX_PAGES = 32
_FILES = {
    "style.css": "text/css",
    "tables.js": "text/javascript",
    "plots.js": "text/javascript",
    "watch.js": "text/javascript",
    "vendor/uPlot.iife.min.js": "text/javascript",
    "vendor/uPlot.min.css": "text/css",
}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


async def serve(evaluation: WatchedEvaluation, port: int, started: Callable[[int], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; a second signal ends at once. See `WatchServer.run`."""
    server = WatchServer(evaluation)
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        server.stop()
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)

    for number in SIGNALS:
        loop.add_signal_handler(number, stop, number)
    await server.run(port, started=started)


class WatchServer:
    """Serves the page of an evaluation until it is stopped."""

    def __init__(self, evaluation: WatchedEvaluation) -> None:
        self._evaluation = evaluation
        self._stopping = asyncio.Event()
        self._reading = asyncio.Lock()
        self._read_at = -_POLL_S
        self._state = ""
        self._pages = 0

    def stop(self) -> None:
        """Stop serving. Call it in the event loop's thread."""
        self._stopping.set()

    async def run(self, port: int, *, started: Callable[[int], None]) -> None:
        """Serve until `stop()`.

        Args:
            port: The port; 0 for a free one.
            started: Called with the port when the server accepts connections.

        Raises:
            UsageError: The port is not available.
        """
        app = web.Application(middlewares=[_local_only])
        app.on_response_prepare.append(_add_headers)
        app.add_routes(
            [
                web.get("/", self._page),
                web.get("/events", self._events),
                web.get("/picture/{run:[0-9]{1,4}}/{name}", self._picture),
                web.get(f"/{REPORT}", _to_report),
                web.get(f"/{REPORT}/{{name:.*}}", self._report),
                web.get("/{name:.*}", _file),
            ]
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, HOST, port)
            try:
                await site.start()
            except OSError as error:
                raise UsageError(
                    f"cannot listen at {HOST}, port {port} ({error.strerror}); "
                    "give another --port, or 0 for a free one"
                ) from None
            started(runner.addresses[0][1])
            await self._stopping.wait()
        finally:
            await runner.cleanup()

    async def _page(self, _: web.Request) -> web.Response:
        page = render("watch.html.j2", {"title": self._evaluation.title})
        return web.Response(body=page, content_type="text/html", charset="utf-8")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if self._pages >= _MAX_PAGES:
            raise web.HTTPServiceUnavailable(text="too many pages are open\n")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self._pages += 1
        try:
            with contextlib.suppress(ConnectionError):  # the page was closed
                await self._send_states(response)
        finally:
            self._pages -= 1
        return response

    async def _send_states(self, response: web.StreamResponse) -> None:
        """Send the state whenever it has changed, until the server stops."""
        loop = asyncio.get_running_loop()
        sent, sent_at = "", loop.time()
        while not self._stopping.is_set():
            state = await self._current_state()
            if state != sent or loop.time() - sent_at >= _QUIET_S:
                event = f"data: {state}\n\n" if state != sent else ":\n\n"
                await response.write(event.encode())
                sent, sent_at = state, loop.time()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _POLL_S)

    async def _current_state(self) -> str:
        """The state as JSON, read at most once per interval for all pages."""
        loop = asyncio.get_running_loop()
        async with self._reading:
            if loop.time() - self._read_at >= _POLL_S:
                state = await asyncio.to_thread(self._evaluation.state)
                self._state, self._read_at = json.dumps(state, allow_nan=False), loop.time()
            return self._state

    async def _picture(self, request: web.Request) -> web.Response:
        """The latest picture of an episode."""
        runs, number = self._evaluation.runs, int(request.match_info["run"])
        folder = runs[number].folder.path if number < len(runs) else None
        path = _file_in(folder, "queries", request.match_info["name"])
        if path.suffix != ".jpg":
            raise web.HTTPNotFound
        try:
            return web.Response(body=path.read_bytes(), content_type="image/jpeg")
        except OSError:  # the episode has ended
            raise web.HTTPNotFound from None

    async def _report(self, request: web.Request) -> web.FileResponse:
        """A file of the report in the first run's folder."""
        folder = self._evaluation.runs[0].folder.path
        return web.FileResponse(_file_in(folder, REPORT, request.match_info["name"] or "index.html"))


@web.middleware
async def _local_only(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Reject requests with another host name, as of a page that uses DNS rebinding."""
    if request.host.rsplit(":", 1)[0].lower() not in _LOCAL_NAMES:
        raise web.HTTPForbidden(text=f"only for http://{HOST}\n")
    return await handler(request)


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


async def _to_report(_: web.Request) -> web.Response:
    raise web.HTTPFound(f"/{REPORT}/")


async def _file(request: web.Request) -> web.Response:
    """A file of the page itself."""
    name = request.match_info["name"]
    if name not in _FILES:
        raise web.HTTPNotFound
    return web.Response(body=page_file(name), content_type=_FILES[name], charset="utf-8")


def _file_in(run: Path | None, folder: str, name: str) -> Path:
    """A file in a folder of a run; HTTPNotFound if there is none, or it is elsewhere."""
    within = run and inside(run, folder)
    path = within and inside(within, name)
    if path is None or not path.is_file():
        raise web.HTTPNotFound
    return path
