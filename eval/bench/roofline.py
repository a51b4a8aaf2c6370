"""Every stage by itself against its floor: the time its arithmetic or its memory traffic takes at least."""

import dataclasses
import functools
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
class Stage:
    """A stage's cost, its floor and its time.

    Attributes:
        name: `siglip` and `trunk` make up `prefill`; `decode N` is one token for each of N texts.
        flops: Operations it needs.
        bytes: Bytes that it must move.
        floor_ms: The least time it can take.
        bound: What sets the floor: `compute` or `memory`.
        measured_ms: What it took; None for a part that is no program by itself.
    """

    name: str
    flops: float
    bytes: float
    floor_ms: float
    bound: str
    measured_ms: float | None

    @property
    def over_floor(self) -> float | None:
        """How many times its floor it took."""
        return None if self.measured_ms is None else self.measured_ms / self.floor_ms


def needed(config: Pi05Config, sizes: ProgramSizes, prompt: int) -> dict[str, Cost]:
    """What each stage needs, for prompts padded to `prompt` tokens and texts half written."""
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
        "fork": costs.fork(config, prefix=prefix, suffix=sizes.suffix - 1, births=sizes.forks[-1]),
        **{f"decode {rows}": costs.decode(config, context=context, rows=rows) for rows in sizes.rows},
    }


def stages(needs: Mapping[str, Cost], peaks: Peaks, times: StageTimes, siglip_ms: float) -> list[Stage]:
    """Each stage's need beside its time."""
    measured = {
        "siglip": siglip_ms,
        "prefill": times.prefill,
        "denoise": times.denoise,
        "guided denoise": times.guided_denoise,
        "fork": times.fork,
        **{f"decode {rows}": ms for rows, ms in times.decode.items()},
    }
    return [_stage(name, cost, peaks, measured.get(name)) for name, cost in needs.items()]


def _stage(name: str, cost: Cost, peaks: Peaks, measured_ms: float | None) -> Stage:
    compute = cost.flops / peaks.flops_per_s >= cost.bytes / peaks.bytes_per_s
    return Stage(
        name=name,
        flops=cost.flops,
        bytes=cost.bytes,
        floor_ms=peaks.floor_ms(cost),
        bound="compute" if compute else "memory",
        measured_ms=measured_ms,
    )


def siglip_ms(config: Pi05Config, weights: Weights, inputs: ModelInput, *, calls: int) -> float:
    """Median milliseconds of the vision tower and the prompt's embedding, compiled by themselves."""
    program = jax.jit(functools.partial(_embed, config))
    jax.block_until_ready(program(weights, inputs.images, inputs.prompt))
    taken = []
    for _ in range(calls):
        began = time.perf_counter()
        jax.block_until_ready(program(weights, inputs.images, inputs.prompt))
        taken.append(1e3 * (time.perf_counter() - began))
    return sorted(taken)[len(taken) // 2]


def _embed(config: Pi05Config, weights: Weights, images: jax.Array, prompt: jax.Array) -> jax.Array:
    return pi05.embed_prefix(weights, config, images, prompt)
