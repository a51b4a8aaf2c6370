"""Serves the report of a run to this machine alone, and rebuilds it while the run goes on and a page is open.

Files are served from a mapping by name: a request cannot name any other file.
"""

import asyncio
import contextlib
import datetime as dt
import math
import mimetypes
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from configs.paths import is_locked
from contracts.errors import UsageError, pluralize
from eval.records.reader import RunRecords, require_runs
from eval.records.schema import RunFolder
from eval.report.pages.reported_runs import ReportedRun, read_runs
from eval.report.pages.run_report import report_files
from eval.report.pages.site import escape_control

HOST = "127.0.0.1"
_EVERY_S, _SHARE = 1.0, 0.1
"""Interval at which records are checked, and the largest share of the time spent on rebuilding the report."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class LiveReport:
    """The report of a run and of the other variants of its evaluation, from the current records."""

    def __init__(self, run: Path) -> None:
        """Build the report; a run that does not exist yet is awaited.

        Raises:
            UsageError: It is not a run, or cannot be read.
        """
        self._run = run
        self._runs: list[ReportedRun] = []
        self._files: dict[str, bytes | Path] = {}
        self._problem = self._version = ""
        self._records: object = None
        self._began: tuple[float, int] | None = None  # time and episodes when a going run was first seen
        self._due = 0.0
        self.refresh()
        if self._problem and run.exists():
            raise UsageError(self._problem)

    def app(self) -> web.Application:
        """The application that serves the report."""
        app = web.Application(middlewares=[_local_only])
        app.on_response_prepare.append(_add_headers)
        app.add_routes([web.get("/live", self._live), web.get("/{name:.*}", self._file)])
        return app

    def refresh(self) -> None:
        """Rebuild the report if the records have changed. A read error is shown instead."""
        try:
            folders = _variants(self._run)
            files = (path for each in folders for path in (each.manifest_path, each.episodes_path))
            stats = [path.stat() for path in files if path.exists()]
            stamps = [(each.st_ino, each.st_size, each.st_mtime_ns) for each in stats]
            records = stamps, [(each.path, is_locked(each.path)) for each in folders]
            if records == self._records:
                return
            version = str(time.time_ns())
            runs, refused = read_runs([RunRecords(each) for each in folders])
            self._files = dict(report_files(runs, refused, live=version))
            self._runs, self._version, self._records, self._problem = runs, version, records, ""
        except (OSError, UsageError) as error:
            self._problem, self._records = str(error), None

    async def _refresh_if_due(self) -> None:
        if (began := time.monotonic()) < self._due:
            return
        self._due = math.inf  # other requests do not wait
        try:
            await asyncio.to_thread(self.refresh)
        finally:
            now = time.monotonic()
            self._due = now + max(_EVERY_S, (now - began) / _SHARE)

    async def _live(self, _: web.Request) -> web.Response:
        """What changes more often than the report: progress, and the pictures of running episodes."""
        await self._refresh_if_due()
        playing = [
            {"name": f"{label}: {path.stem}", "picture": f"{name}?at={changed}"}
            for name, (label, path, changed) in self._pictures().items()
        ]
        state = {"version": self._version, "problem": self._problem, "playing": playing, **self._progress()}
        return web.json_response(escape_control(state))

    async def _file(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"] or "index.html"
        if name == "index.html" and not self._files:
            await self._refresh_if_due()
            problem, again = f"{escape_control(self._problem)}\n", {"Refresh": f"{_EVERY_S:g}"}
            return web.Response(text=problem, headers=again)
        content = self._files.get(name)
        if content is None and name.startswith("live/"):
            content = self._pictures().get(name, (None, None))[1]
        if content is None:
            raise web.HTTPNotFound
        if isinstance(content, Path):
            return web.FileResponse(content)
        kind = mimetypes.guess_type(name)[0] or "text/plain"
        return web.Response(body=content, content_type=kind, charset="utf-8")

    def _pictures(self) -> dict[str, tuple[str, Path, int]]:
        """Label, file and time of each running episode's picture, without those of a killed attempt."""
        found = {}
        for number, run in enumerate(self._runs):
            if run.identity.status == "running":
                latest = [run.manifest, *run.manifest.get("attempts", ())][-1]
                began = dt.datetime.fromisoformat(latest["started"])
                for path in sorted((run.folder.path / "queries").glob("*.jpg")):
                    with contextlib.suppress(FileNotFoundError):  # the episode has ended
                        if (changed := path.stat().st_mtime_ns) >= 1e9 * began.timestamp():
                            found[f"live/{number}/{path.name}"] = run.label, path, changed
        return found

    def _progress(self) -> dict[str, Any]:
        """The state in words, with the time left at the pace since a going run was first seen."""
        recorded = sum(len(run.episodes) for run in self._runs)
        planned = sum(run.identity.n_planned for run in self._runs)
        statuses = {run.identity.status for run in self._runs} - {"complete"}
        status = next((each for each in ("stopped", "running", *statuses) if each in statuses), "complete")
        words = f"{status.capitalize()}: {recorded} of {pluralize(planned, 'episode')} recorded"
        now = time.time()
        self._began = (self._began or (now, recorded)) if status == "running" else None
        if self._began is not None and recorded > self._began[1]:
            seconds = (planned - recorded) * (now - self._began[0]) / (recorded - self._began[1])
            words += f", about {dt.timedelta(seconds=round(seconds))} left"
        elif status not in ("running", "complete"):
            words += "; the same command with --resume completes it"
        return {"words": f"{words}.", "recorded": recorded, "planned": planned}


def _variants(run: Path) -> list[RunFolder]:
    """The variants of the run's evaluation that have begun.

    Raises:
        UsageError: It is not a run.
    """
    found = require_runs([run])
    if found[0].folder.path != run:
        raise UsageError(f"{run} is a folder of runs; give one of them, such as {found[-1].folder.path}")
    here, names = run.resolve(), found[0].identity.variants
    beside = [RunFolder(here.parent / Path(name).name) for name in names]
    return (
        [each for each in beside if each.manifest_path.exists()] if here.name in names else [found[0].folder]
    )


@web.middleware
async def _local_only(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Reject requests with another host name, as of a page that uses DNS rebinding."""
    if request.host.rsplit(":", 1)[0].lower() not in (HOST, "localhost"):
        raise web.HTTPForbidden(text=f"only for http://{HOST}\n")
    return await handler(request)


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
