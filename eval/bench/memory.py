"""Memory use of a configuration: by its compiled programs, and as measured."""

import dataclasses
import multiprocessing
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from oxygen.serving.runner import Runner

_LANGUAGE = ("prefill", "fork", "decode")
"""Name prefixes of the programs that the second process of mode `parallel` runs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """Memory use of one configuration, in bytes.

    Attributes:
        by_program: Arguments (weights and pool included), results and temporary arrays of each program;
            bytes that a result shares with an argument count once. None if the backend does not report them.
        second_process: Peak resident memory of the second process of mode `parallel`; None without one, and
            where the system does not report it.
        peak: Peak use since this process began, by any configuration: of the device if its backend reports
            it, else of this process plus `second_process`.
        peak_of: `device` or `process`.
    """

    by_program: Mapping[str, int] | None
    second_process: int | None
    peak: int
    peak_of: str


def required_bytes(by_program: Mapping[str, int] | None, *, in_two_processes: bool) -> int | None:
    """Bytes of the largest program, since programs run one after the other.

    Args:
        by_program: Bytes of each program; None if unknown.
        in_two_processes: Whether one process runs prefill, fork and decode, and another one prefill
            and denoise, each with its own weights: then the largest of either are added.
    """
    if by_program is None:
        return None
    if not in_two_processes:
        return max(by_program.values())
    language = [size for name, size in by_program.items() if name.startswith(_LANGUAGE)]
    actions = [size for name, size in by_program.items() if name in ("prefill", "denoise")]
    return max(language) + max(actions)


def bytes_by_program(
    runner: Runner, *, bucket: int, new_requests: int, batch: int | None
) -> dict[str, int] | None:
    """Bytes of each program of a configuration; see `MemoryUse.by_program`.

    Args:
        runner: Holds the programs.
        bucket: Length of the padded prompt, in tokens.
        new_requests: Texts started in one fork.
        batch: Texts decoded in one step; None if none are.
    """
    compiled = runner.programs
    programs = {"prefill": compiled.prefill[bucket], "denoise": compiled.denoise[bucket]}
    if batch is not None:
        programs |= {"fork": compiled.fork[bucket, new_requests], f"decode_{batch}": compiled.decode[batch]}
    memory: dict[str, Any] = {name: program.memory_analysis() for name, program in programs.items()}
    if any(each is None for each in memory.values()):
        return None
    return {
        name: each.argument_size_in_bytes
        + each.temp_size_in_bytes
        + each.output_size_in_bytes
        - each.alias_size_in_bytes
        for name, each in memory.items()
    }


def memory_use(by_program: Mapping[str, int] | None, *, in_two_processes: bool) -> MemoryUse:
    """Memory use of a configuration whose processes are still running."""
    second = _peak_of_children() if in_two_processes else None
    peak, peak_of = _peak()
    added = second if second is not None and peak_of == "process" else 0
    return MemoryUse(by_program=by_program, second_process=second, peak=peak + added, peak_of=peak_of)


def _peak() -> tuple[int, str]:
    """Peak bytes in use, and whether of the `device` or of the `process`."""
    statistics = jax.local_devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in statistics:
        return int(statistics["peak_bytes_in_use"]), "device"
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "process"


def _peak_of_children() -> int | None:
    """Peak resident memory of this process's children, from Linux's `VmHWM`."""
    peaks = []
    for child in multiprocessing.active_children():
        try:
            status = Path(f"/proc/{child.pid}/status").read_text(encoding="utf-8")
        except OSError:
            return None
        found = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
        peaks += [1024 * kilobytes for kilobytes in found]
    return sum(peaks) if peaks else None
