"""Checks that worker processes fit into memory."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from configs.errors import UsageError

WORLD_MB = 500.0
"""Memory of a worker process with one world, megabytes."""


def check_memory(workers: int, *, option: str, each_mb: float) -> None:
    """Check that the workers fit into memory.

    Args:
        workers: Number of workers.
        option: The option that sets it, for the message.
        each_mb: Megabytes per worker.

    Raises:
        UsageError: They do not fit; the message says how many do.
    """
    available = available_mb()
    if workers * each_mb > available:
        raise UsageError(
            f"{option} {workers}: worlds take about {each_mb:.0f} MB each, and {available:.0f} MB of memory "
            f"are available; give {max(1, int(available // each_mb))} or less"
        )


def available_mb() -> float:
    """Available memory in megabytes, within the cgroup's limit; infinite if unknown."""
    bounds = [*_lines_of("/proc/meminfo", "MemAvailable:", unit=1024)]
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        bounds += [most - now for most in _lines_of(limit, "", unit=1) for now in _lines_of(used, "", unit=1)]
    return min(bounds, default=float("inf")) / 1e6


def _lines_of(path: str, head: str, *, unit: int) -> Iterator[float]:
    """The numbers in a system file on lines that begin with `head`, in bytes; none if it does not exist."""
    with contextlib.suppress(OSError), Path(path).open(encoding="ascii") as lines:
        for line in lines:
            words = line.removeprefix(head).split()
            if line.startswith(head) and words and words[0].isdigit():
                yield float(words[0]) * unit
