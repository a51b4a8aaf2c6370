"""`python -m benchmarks.second_start`: speed-up of a command by the compilation cache.

Runs a small `python -m eval.bench` in processes, in turns: with an empty cache, then with the cache that this
run left. An uncounted run comes first, so that files are in the page cache for both.
"""

import argparse
import dataclasses
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import record
from eval.bench.ratios import paired_ratio
from oxygen.model.compile_cache import CACHE_VARIABLE


def command(policy: str, output: Path) -> list[str]:
    """The smallest run that compiles and runs all of an engine's programs."""
    what = ["--policy", policy, "--random-weights", "--modes", "unified"]
    least = ["--text-tokens", "2", "--tokens-per-frame", "1", "--repetitions", "1", "--queries", "1"]
    return [sys.executable, "-m", "eval.bench", *what, *least, "--output", str(output)]


def measure(start: Sequence[str], scratch: Path, *, turns: int) -> dict[str, Any]:
    """Seconds of the command `start` without and with compiled programs, and their ratio.

    Raises:
        subprocess.CalledProcessError: The command failed.
        RuntimeError: The command left no compiled programs in the cache.
    """
    _seconds(start, scratch / "uncounted")
    first, second, kept = [], [], []
    for turn in range(turns):
        cache = scratch / f"turn_{turn}"
        first.append(_seconds(start, cache))
        kept = [path.stat().st_size for path in cache.rglob("*") if path.is_file()]
        if not kept:
            raise RuntimeError(f"{' '.join(start)} has kept no compiled programs in {CACHE_VARIABLE}={cache}")
        second.append(_seconds(start, cache))
    return {
        "first_start_s": [round(seconds, 2) for seconds in first],
        "second_start_s": [round(seconds, 2) for seconds in second],
        "first_start_s_p50": round(statistics.median(first), 2),
        "second_start_s_p50": round(statistics.median(second), 2),
        "first_over_second": dataclasses.asdict(paired_ratio(first, second)),
        "files_kept": len(kept),
        "bytes_kept": sum(kept),
    }


def _seconds(start: Sequence[str], cache: Path) -> float:
    """Wall time of a process, with its compiled programs in `cache`."""
    environment = {**os.environ, CACHE_VARIABLE: str(cache)}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)  # would override ours
    began = time.perf_counter()
    subprocess.run(start, check=True, env=environment, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.second_start", description=__doc__)
    parser.add_argument("--policy", default="tiny", help="a built-in size of the model; default: tiny")
    parser.add_argument("--turns", type=int, default=6, help="pairs of starts; default: 6")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/second_start.json"))
    options = parser.parse_args()
    if options.turns < 1:
        parser.error(f"--turns {options.turns}: at least 1")
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        measured = measure(command(options.policy, scratch / "rows.jsonl"), scratch, turns=options.turns)
    record("second_start", {"policy": options.policy, **measured}, options.output)


if __name__ == "__main__":
    main()
