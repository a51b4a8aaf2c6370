"""Roofline of each stage: minimum time by arithmetic and memory traffic (floor), and measured time."""

import dataclasses
import statistics
import time
from collections.abc import Mapping

import jax

from eval.bench import costs
from eval.bench.costs import Cost, Peaks
from eval.bench.schedule import StageTimes
from oxygen.model import pi05
from oxygen.model.config import Pi05Config
from oxygen.model.inputs import ModelInput
from oxygen.model.pi05 import Weights
from oxygen.serving.runner import ProgramSizes


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageCost:
    """A stage's cost, minimum time and measured time.

    Attributes:
        name: `siglip` and `trunk` make up `prefill`; `decode N` is one token for each of N texts.
        flops: Operations.
        bytes: Memory traffic.
        floor_ms: Minimum time.
        bound: Its bottleneck: `compute` or `memory`.
        measured_ms: Measured time; None for a part of a program.
    """

    name: str
    flops: float
    bytes: float
    floor_ms: float
    bound: str
    measured_ms: float | None

    @property
    def over_floor(self) -> float | None:
        """Measured time divided by minimum time."""
        return None if self.measured_ms is None else self.measured_ms / self.floor_ms


def stage_costs(config: Pi05Config, sizes: ProgramSizes, prompt: int) -> dict[str, Cost]:
    """The cost of each stage, for prompts padded to `prompt` tokens and half-decoded texts."""
    robots, prefix = sizes.robots, config.image_tokens + prompt
    context = prefix + sizes.suffix + sizes.limit // 2
    siglip = costs.siglip(config, images=robots * len(config.cameras))
    trunk = costs.trunk_prefill(config, tokens=prefix, robots=robots)
    return {
        "siglip": siglip,
        "trunk": trunk,
        "prefill": siglip + trunk,
        "denoise": costs.denoise(config, prefix=prefix, robots=robots),
        "guided denoise": costs.guided_denoise(config, prefix=prefix, robots=robots),
        "fork": costs.fork(config, prefix=prefix, suffix=sizes.suffix - 1, requests=sizes.forks[-1]),
        **{f"decode {rows}": costs.decode(config, context=context, rows=rows) for rows in sizes.rows},
    }


def stages(costs: Mapping[str, Cost], peaks: Peaks, times: StageTimes, siglip_ms: float) -> list[StageCost]:
    """Each stage's cost, floor and measured time."""
    measured = {
        "siglip": siglip_ms,
        "prefill": times.prefill,
        "denoise": times.denoise,
        "guided denoise": times.guided_denoise,
        "fork": times.fork,
        **{f"decode {rows}": ms for rows, ms in times.decode.items()},
    }
    return [
        StageCost(
            name=name,
            flops=cost.flops,
            bytes=cost.bytes,
            floor_ms=peaks.floor_ms(cost),
            bound="compute" if cost.flops / peaks.flops_per_s >= cost.bytes / peaks.bytes_per_s else "memory",
            measured_ms=measured.get(name),
        )
        for name, cost in costs.items()
    ]


def siglip_ms(config: Pi05Config, weights: Weights, inputs: ModelInput, *, calls: int) -> float:
    """Median milliseconds of the vision tower and the prompt's embedding, compiled alone."""
    program = jax.jit(lambda weights, images, prompt: pi05.embed_prefix(weights, config, images, prompt))
    jax.block_until_ready(program(weights, inputs.images, inputs.prompt))
    taken = []
    for _ in range(calls):
        began = time.perf_counter()
        jax.block_until_ready(program(weights, inputs.images, inputs.prompt))
        taken.append(1e3 * (time.perf_counter() - began))
    return statistics.median(taken)
