"""How much memory a configuration takes: by its compiled programs, and by what was in use."""

import dataclasses
import multiprocessing
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import jax
from jax.stages import Compiled

from oxygen.serving.runner import Runner

_LANGUAGE = ("prefill", "fork", "decode")
"""What the second process of mode `parallel` runs, by the beginning of a program's name."""


class MemoryAnalysis(Protocol):
    """What XLA says a compiled program holds, in bytes; of an alias, an argument and a result share them."""

    argument_size_in_bytes: int
    output_size_in_bytes: int
    alias_size_in_bytes: int
    temp_size_in_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """What is known of the memory of one configuration, in bytes.

    Attributes:
        by_program: What each program that it runs holds at once: arguments, weights and pool among them,
            results, and temporary arrays; what a result shares with an argument counts once. None where the
            backend does not tell.
        second_process: The most that the second process of mode `parallel` had in the host's memory; None
            without one, and where the system does not tell.
        peak: The most in use up to now: the device's, where its backend tells, else this process's and
            `second_process`. All configurations measured in this process share it.
        peak_of: `device` or `process`.
    """

    by_program: Mapping[str, int] | None
    second_process: int | None
    peak: int
    peak_of: str


def needed(by_program: Mapping[str, int] | None, *, in_two_processes: bool) -> int | None:
    """What the largest program takes, as they run one after the other.

    Args:
        by_program: What each takes; None where that is unknown.
        in_two_processes: Whether prefill, fork and decode run beside prefill and denoise, each process with
            weights of its own: then the largest of both count.
    """
    if by_program is None:
        return None
    if not in_two_processes:
        return max(by_program.values())
    language = [size for name, size in by_program.items() if name.startswith(_LANGUAGE)]
    actions = [size for name, size in by_program.items() if name in ("prefill", "denoise")]
    return max(language) + max(actions)


def by_program(runner: Runner, *, bucket: int, births: int, batch: int | None) -> dict[str, int] | None:
    """What each program of a configuration takes, in bytes; see `Memory`.

    Args:
        runner: Holds the programs.
        bucket: Tokens that the prompt is padded to.
        births: Texts begun in one fork.
        batch: Texts decoded in one step; None if none are.
    """
    compiled = runner.programs
    programs = {"prefill": compiled.prefill[bucket], "denoise": compiled.denoise[bucket]}
    if batch is not None:
        programs |= {"fork": compiled.fork[bucket, births], f"decode_{batch}": compiled.decode[batch]}
    held = {name: _held(analysis_of(program)) for name, program in programs.items()}
    known = {name: size for name, size in held.items() if size is not None}
    return known if len(known) == len(held) else None


def analysis_of(program: Compiled) -> MemoryAnalysis | None:
    """What a compiled program holds; None where the backend does not tell."""
    analysis: MemoryAnalysis | None = program.memory_analysis()
    return analysis


def in_use(by_program: Mapping[str, int] | None, *, in_two_processes: bool) -> Memory:
    """What a configuration takes, while its processes are still there."""
    second = _second_process() if in_two_processes else None
    peak, peak_of = _peak()
    beside = second if second is not None and peak_of == "process" else 0
    return Memory(by_program=by_program, second_process=second, peak=peak + beside, peak_of=peak_of)


def _held(analysis: MemoryAnalysis | None) -> int | None:
    if analysis is None:
        return None
    results = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    return analysis.argument_size_in_bytes + analysis.temp_size_in_bytes + results


def _peak() -> tuple[int, str]:
    """Bytes, and of what."""
    statistics = jax.local_devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in statistics:
        return int(statistics["peak_bytes_in_use"]), "device"
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "process"


def _second_process() -> int | None:
    """The most resident memory of this process's children, as Linux keeps it in `VmHWM`."""
    peaks = []
    for child in multiprocessing.active_children():
        try:
            status = Path(f"/proc/{child.pid}/status").read_text(encoding="utf-8")
        except OSError:
            return None
        found = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
        peaks += [1024 * kilobytes for kilobytes in found]
    return sum(peaks) if peaks else None
