"""Slow stages on standard error."""

import contextlib
import contextvars
import sys
import time
from collections.abc import Iterator
from multiprocessing import parent_process

_SILENT = contextvars.ContextVar("silent", default=False)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Print no stages meanwhile."""
    before = _SILENT.set(True)
    try:
        yield
    finally:
        _SILENT.reset(before)


@contextlib.contextmanager
def stage(what: str) -> Iterator[None]:
    """Print a description and the elapsed time: on a terminal as it passes, elsewhere at the end."""
    if _SILENT.get():
        yield
        return
    from rich.live import Live  # slow: --help needs none
    from rich.text import Text

    from configs.console import TextConsole

    began, console = time.perf_counter(), TextConsole(stderr=True)

    def line() -> Text:
        return Text(f"{what} ... {time.perf_counter() - began:.1f} s")

    # Processes that this one started share its terminal, and would overwrite its line.
    is_live = console.is_terminal and not console.is_dumb_terminal and parent_process() is None
    if is_live:
        shares = sys.stdout.isatty()  # then what is printed meanwhile goes above the line
        with Live(console=console, get_renderable=line, refresh_per_second=10, redirect_stdout=shares):
            yield
        return
    sys.stderr.write(f"{what} ... ")
    sys.stderr.flush()
    try:
        yield
    except BaseException:
        sys.stderr.write("\n")  # an error has a line of its own
        raise
    sys.stderr.write(f"{time.perf_counter() - began:.1f} s\n")
    sys.stderr.flush()
