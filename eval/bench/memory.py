"""Memory use of a configuration: by its compiled programs, and as measured."""

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


def program_bytes(runner: Runner, *, bucket: int, language: bool) -> dict[str, int] | None:
    """Bytes of each program of a configuration; None if the backend does not report them.

    They are of arguments (weights and pool included), results and temporary arrays; bytes that a result
    shares with an argument count once.

    Args:
        runner: Holds the programs.
        bucket: Length of the padded prompt, in tokens.
        language: Whether it decodes texts, in its largest batch.
    """
    compiled, sizes = runner.programs, runner.sizes
    programs = {"prefill": compiled.prefill[bucket], "denoise": compiled.denoise[bucket]}
    if language:
        programs["fork"] = compiled.fork[bucket, sizes.forks[-1]]
        programs[f"decode_{sizes.rows[-1]}"] = compiled.decode[sizes.rows[-1]]
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


def needed_bytes(by_program: Mapping[str, int] | None, *, in_two_processes: bool) -> int | None:
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


def peak_memory(*, in_two_processes: bool) -> dict[str, Any]:
    """The row's peaks, while all processes of its configuration are running."""
    second = _peak_of_children() if in_two_processes else None
    statistics = jax.local_devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in statistics:
        peak, peak_of = int(statistics["peak_bytes_in_use"]), "device"
    else:
        unit = 1 if sys.platform == "darwin" else 1024
        peak = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + (second or 0)
        peak_of = "process"
    return {"second_process_bytes": second, "peak_memory_bytes": peak, "peak_memory_of": peak_of}


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
