"""`python -m benchmarks.kv_pool`: what the KV pool costs beside itself, and whether its size slows decoding.

Two pools, one four times as large, are written by the same programs in turns, at equal occupancy. Prints what
each compiled program holds beside its input, and the ratio of their times with its interval.
"""

import argparse
import dataclasses
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.record import record
from eval.bench.ratios import paired_ratio
from oxygen import pi05
from oxygen.config import preset
from oxygen.params import random_params
from oxygen.runner import Birthing, Runner, Sizes

TIMES_LARGER = 4
TURN = 5
"""Decode steps in a turn."""


class Pool:
    """A runner with some slots, of which the first are at work."""

    def __init__(self, weights: pi05.Weights, name: str, *, slots: int, rows: int, limit: int) -> None:
        sizes = Sizes(slots=slots, rows=(rows,), births=(1,), suffix=4, limit=limit)
        self.runner = Runner(preset(name), weights, sizes)
        self.rows = rows
        self._state = self.runner.empty()
        prefix = self.runner.prefill(self.runner.blank(self.runner.config.prompt_buckets[0]))
        for slot in range(rows):
            birth = Birthing(slot=slot, parent=0, suffix=(5, 6, 7), seed=slot, query=0, task=0)
            self._state = self.runner.fork(prefix, self.runner.births([birth]), *self._state)

    def turn(self) -> float:
        """Milliseconds of a decode step."""
        jax.block_until_ready(self._state)
        began = time.perf_counter()
        for _ in range(TURN):
            self._state = self.runner.decode(range(self.rows), *self._state, batch=self.rows)
        jax.block_until_ready(self._state)
        return 1e3 * (time.perf_counter() - began) / TURN

    def bytes(self) -> dict[str, Any]:
        """The pool's size, and what every program that writes it shares with its input or holds beside it."""
        shapes, _ = jax.eval_shape(self.runner.empty)
        compiled = self.runner._programs
        programs = {
            **{f"decode_{rows}": program for rows, program in compiled.decode.items()},
            **{f"fork_{prompt}_{births}": program for (prompt, births), program in compiled.fork.items()},
        }
        row: dict[str, Any] = {
            "pool": sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
        }
        for stage, program in programs.items():
            memory = program.memory_analysis()
            row[stage] = {
                "aliased": memory.alias_size_in_bytes,
                "temporary": memory.temp_size_in_bytes,
            }
        return row


def measure(name: str, *, rows: int, turns: int) -> dict[str, Any]:
    config = preset(name)
    weights = pi05.prepare(random_params(config, 0, config.dtype), config)
    limit = turns * TURN
    pools = [Pool(weights, name, slots=rows * times, rows=rows, limit=limit) for times in (1, TIMES_LARGER)]
    taken: list[list[float]] = [[], []]
    for turn in range(turns):
        for which in (0, 1) if turn % 2 else (1, 0):
            taken[which].append(pools[which].turn())
    small, large = taken
    return {
        "policy": name,
        "dtype": config.dtype,
        "requests": rows,
        "slots": [rows, TIMES_LARGER * rows],
        "bytes": [pool.bytes() for pool in pools],
        "decode_ms_p50": [round(float(np.median(of)), 3) for of in taken],
        "larger_over_smaller": dataclasses.asdict(paired_ratio(large, small)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="small")
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/kv_pool.json"))
    options = parser.parse_args()
    row = measure(options.policy, rows=options.requests, turns=options.turns)
    record("kv_pool", row, options.output)


if __name__ == "__main__":
    main()
