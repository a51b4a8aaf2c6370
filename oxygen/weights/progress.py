"""A progress bar on standard error, if it is a terminal."""

import contextlib
import sys
from collections.abc import Callable, Iterator

Advance = Callable[[int], None]
"""Called with the number of new bytes, from any thread; negative if some must be downloaded again."""


@contextlib.contextmanager
def progress(what: str, total: int) -> Iterator[Advance]:
    """Show the progress of a download of `total` bytes."""
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
