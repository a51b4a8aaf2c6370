"""`python -m benchmarks.kv_pool`: memory overhead of the KV pool, and how its size affects decoding time.

The same programs write pools of several sizes in turns, at equal occupancy. Prints the memory of each
compiled program beside its input, and the ratios of their times with intervals. On a CPU a decode step reads
the pool in place if at least half of the slots are occupied, else slot by slot. So the sizes are the smallest
and the largest pool that is read either way; the ratios are within each way, and end to end.
"""

import argparse
import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.record import record
from eval.bench.aggregation import paired_ratio
from oxygen.model import pi05
from oxygen.model.config import Pi05Config, preset
from oxygen.model.params import random_params
from oxygen.serving.requests import Request
from oxygen.serving.runner import ProgramSizes, Runner

TURN = 5
"""Decode steps in a turn."""


class Pool:
    """A runner with some slots, of which the first are at work."""

    def __init__(
        self, config: Pi05Config, weights: pi05.Weights, *, slots: int, rows: int, limit: int
    ) -> None:
        sizes = ProgramSizes(slots=slots, rows=(rows,), forks=(1,), suffix=4, limit=limit)
        self.runner = Runner(config, weights, sizes)
        self.rows = rows
        self._state = self.runner.empty()
        prefix = self.runner.prefill(self.runner.blank(self.runner.config.prompt_buckets[0]))
        for slot in range(rows):
            request = Request(slot=slot, robot=0, suffix=(5, 6, 7), seed=slot, query=0, task=0)
            self._state = self.runner.fork(prefix, self.runner.new_requests([request]), *self._state)

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
        compiled = self.runner.programs
        programs = {
            **{f"decode_{rows}": program for rows, program in compiled.decode.items()},
            **{f"fork_{prompt}_{batch}": program for (prompt, batch), program in compiled.fork.items()},
        }
        row: dict[str, Any] = {
            "pool": sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
        }
        for stage, program in programs.items():
            memory = program.memory_analysis()
            row[stage] = memory and {
                "aliased": memory.alias_size_in_bytes,
                "temporary": memory.temp_size_in_bytes,
            }
        return row


def pool_sizes(requests: int) -> tuple[int, int, int, int]:
    """Pool sizes in slots: n, 2n - 1, 2n and 4n, for n requests.

    Half of the second are occupied, since the pool has a spare slot, and less than half of the third.
    """
    return requests, 2 * requests - 1, 2 * requests, 4 * requests


def growth(taken: Mapping[int, Sequence[float]], requests: int) -> dict[str, Any]:
    """Ratio of a step's time in a larger pool to that in a smaller one: in place, slot by slot, end to end.

    Args:
        taken: Time of a step in each turn, by pool size.
        requests: Texts decoded in a step.
    """
    least, crowded, sparse, most = pool_sizes(requests)
    pairs = {"where_it_lies": (crowded, least), "slot_by_slot": (most, sparse), "end_to_end": (most, least)}
    return {
        name: {
            "slots": [smaller, larger],
            "larger_over_smaller": dataclasses.asdict(paired_ratio(taken[larger], taken[smaller])),
        }
        for name, (larger, smaller) in pairs.items()
    }


def measure(config: Pi05Config, weights: pi05.Weights, *, requests: int, turns: int) -> dict[str, Any]:
    """Times and memory of decoding `requests` texts at once, in every size of pool."""
    pools = {
        slots: Pool(config, weights, slots=slots, rows=requests, limit=turns * TURN)
        for slots in pool_sizes(requests)
    }
    taken: dict[int, list[float]] = {slots: [] for slots in pools}
    for turn in range(turns):
        for slots in sorted(pools, reverse=turn % 2 == 1):
            taken[slots].append(pools[slots].turn())
    return {
        "requests": requests,
        "slots": list(pools),
        "bytes": [pool.bytes() for pool in pools.values()],
        "decode_ms_p50": [round(float(np.median(of)), 3) for of in taken.values()],
        "growth": growth(taken, requests),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="small")
    parser.add_argument("--requests", type=int, nargs="+", default=[8, 30], help="at least 2; default: 8 30")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/kv_pool.json"))
    options = parser.parse_args()
    if min(options.requests) < 2 or options.turns < 1:
        parser.error("--requests: at least 2, --turns: at least 1")
    config = preset(options.policy)
    weights = pi05.prepare(random_params(config, 0, config.dtype), config)
    measured = [measure(config, weights, requests=n, turns=options.turns) for n in options.requests]
    record("kv_pool", {"policy": config.name, "dtype": config.dtype, "measured": measured}, options.output)


if __name__ == "__main__":
    main()
