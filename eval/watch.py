"""`oxygen-eval watch RUN`: the report of a run, live."""

import socket
import sys
from pathlib import Path

from cyclopts import App

from configs.cli import run_app
from configs.console import visible_text
from contracts.errors import UsageError

app = App(name="oxygen-eval watch")


@app.default
def main(run: Path, /, *, port: int = 8100) -> None:
    """Show the report of a run in the browser while it goes on, with progress and pictures of its worlds.

    Serves this machine alone until Ctrl-C. The page outlives the run and follows it when it is resumed.

    Args:
        run: Folder of a run, which may not exist yet. The other variants of its evaluation are shown, too.
        port: The port at 127.0.0.1; 0 for a free one.
    """
    from aiohttp import web  # slow, as are statistics; --help needs none

    from eval.report.watch_server import HOST, LiveReport

    if not 0 <= port < 2**16:
        raise UsageError(f"--port is {port}: give 0 to {2**16 - 1}")
    served = LiveReport(run).app()
    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        raise UsageError(
            f"cannot listen at {HOST}, port {port} ({error.strerror}); "
            "give another --port, or 0 for a free one"
        ) from None
    address = f"http://{HOST}:{listening.getsockname()[1]}/"
    awaited = "" if run.is_dir() else ", which does not exist yet"
    sys.stdout.write(f"{visible_text(str(run))}{awaited}: {address} (Ctrl-C ends the page, not the run)\n")
    sys.stdout.flush()
    web.run_app(served, sock=listening, print=None, access_log=None, shutdown_timeout=1.0)


if __name__ == "__main__":
    run_app(app)
