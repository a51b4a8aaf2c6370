"""`python -m benchmarks.endurance`: thousands of queries of each mode; memory, drift and energy per query.

One robot, one text of N tokens per query, random weights and observations. Memory in use is read ten times at
equal distances. Energy is that of the device's own counter; it needs an NVIDIA GPU since Volta, and the
package nvidia-ml-py.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from benchmarks.record import record
from contracts.mode import Mode
from eval.bench.serving import Bench, PolicyRunner, find_model
from eval.bench.workloads import BenchConfiguration, Workload
from oxygen.model.compile_cache import use_compile_cache

_READINGS = 10
_TEXT_TOKENS, _TOKENS_PER_FRAME = 30, 1


def open_energy() -> tuple[Callable[[], float | None], str]:
    """Reads the joules that the first GPU has used so far, and their source; None, and why, without NVML."""
    try:
        import pynvml
    except ModuleNotFoundError:
        return lambda: None, "not measured: it needs the package nvidia-ml-py"
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    return lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(device) / 1e3, "NVML's energy counter"


def memory_in_use() -> tuple[int, str]:
    """Bytes in use on the device if its backend tells, else resident in this process; and which of them."""
    statistics_of_device = jax.local_devices()[0].memory_stats() or {}
    if "bytes_in_use" in statistics_of_device:
        return int(statistics_of_device["bytes_in_use"]), "device"
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), "process"


def endure(runner: PolicyRunner, each: int, energy_j: Callable[[], float | None]) -> dict[str, Any]:
    """Run a configuration's queries in ten parts of `each`; returns its memory, frames and energy."""
    frames: list[Sequence[float]] = []
    memory, memory_of = [], ""
    runner.run(each)  # fills the pipeline
    began, began_j = time.perf_counter(), energy_j()
    for _ in range(_READINGS):
        frames.append([query.frame_ms for query in runner.run(each)])
        used, memory_of = memory_in_use()
        memory.append(used)
    seconds, counted, ended_j = time.perf_counter() - began, each * _READINGS, energy_j()
    joules = None if began_j is None or ended_j is None else ended_j - began_j
    return {
        "mode": runner.configuration.mode.value,
        "tokens_per_frame": runner.configuration.tokens_per_frame,
        "queries": counted,
        "seconds": seconds,
        "frame_ms_p50_first_tenth": statistics.median(frames[0]),
        "frame_ms_p50_last_tenth": statistics.median(frames[-1]),
        "memory_bytes": memory,
        "memory_of": memory_of,
        "compiles_after_warm_up": runner.compiles_after_warm_up,
        "joules_per_query": None if joules is None else joules / counted,
        "mean_watts": None if joules is None else joules / seconds,
    }


def main() -> None:
    """Endure in each mode, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="small")
    parser.add_argument("--modes", nargs="+", type=Mode, choices=list(Mode), default=[Mode.UNIFIED])
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    use_compile_cache()
    model = find_model(options.policy, random_weights=True)
    each = max(1, options.queries // _READINGS)
    workload = Workload(
        denoise_steps=model.config.denoise_steps,
        text_tokens=_TEXT_TOKENS,
        repetitions=_READINGS,
        queries=each,
        warm_up_queries=each,
    )
    energy_j, energy = open_energy()
    bench, rows = Bench(model), []
    for mode in options.modes:
        k = _TOKENS_PER_FRAME if mode is Mode.UNIFIED else None
        with bench.prepare(workload, [BenchConfiguration(mode=mode, tokens_per_frame=k)]) as (runner,):
            rows.append(endure(runner, each, energy_j))
    row = {
        "benchmark": "endurance",
        "policy": model.name,
        "dtype": model.config.dtype,
        "device": jax.devices()[0].device_kind,
        "text_tokens": _TEXT_TOKENS,
        "energy": energy,
        "rows": rows,
    }
    record(row, options.output)


if __name__ == "__main__":
    main()
