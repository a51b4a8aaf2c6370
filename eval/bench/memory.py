"""The most memory that was in use: the device's, where its backend tells, else the process's."""

import resource
import sys

import jax


def peak() -> tuple[int, str]:
    """Bytes, and of what: since the process began, so all contenders measured up to now share it."""
    statistics = jax.local_devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in statistics:
        return int(statistics["peak_bytes_in_use"]), "device"
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "process"
