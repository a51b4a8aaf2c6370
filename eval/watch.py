"""`python -m eval.watch RUN`: a live page of a running evaluation."""

import asyncio
import sys
from pathlib import Path

from cyclopts import App

from configs.cli import run_app
from configs.errors import UsageError
from eval.report.plain_text import escape_control

app = App(name="python -m eval.watch")


@app.default
def main(run: Path, /, *, port: int = 8100) -> None:
    """Show a live page of a run in the browser: progress, success so far, pictures, latency, errors.

    Serves this machine alone until Ctrl-C. The page outlives the run and follows it when it is resumed.

    Args:
        run: Folder of a run. The other variants of its evaluation are shown, too.
        port: The port at 127.0.0.1; 0 for a free one.
    """
    from eval.report.watch_server import HOST, serve  # slow: statistics; --help needs none
    from eval.report.watching import WatchedEvaluation

    if not 0 <= port < 2**16:
        raise UsageError(f"--port is {port}: give 0 to {2**16 - 1}")
    evaluation = WatchedEvaluation(run)

    def started(at: int) -> None:
        sys.stdout.write(
            f"{escape_control(str(run))}: http://{HOST}:{at}/ (Ctrl-C ends the page, not the run)\n"
        )
        sys.stdout.flush()

    asyncio.run(serve(evaluation, port, started))


if __name__ == "__main__":
    run_app(app)
