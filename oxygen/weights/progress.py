"""A progress bar on standard error, where somebody may be watching."""

import contextlib
import sys
from collections.abc import Callable, Iterator

Advance = Callable[[int], None]
"""Told how many bytes have come, from any thread; fewer than none if some have to come again."""


@contextlib.contextmanager
def progress(what: str, total: int) -> Iterator[Advance]:
    """Show the way to `total` bytes of `what` while the context lasts."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)
