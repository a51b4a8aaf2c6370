"""Minimum arithmetic and memory traffic of each stage of a π0.5, by formula from its sizes.

Counts matrix products, attention included, at two operations per multiply-add, and the bytes that must pass
between memory and processor: every weight once per program (once per step in loops, since a step's weights do
not stay in a cache), and the keys and values that are read and written. Does not count norms, rotary
embeddings, softmax and activations, which are small in comparison.
"""

import dataclasses

from oxygen.model.config import GemmaConfig, Pi05Config

BYTES = {"float32": 4, "bfloat16": 2}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """Operations and bytes of a stage."""

    flops: float
    bytes: float

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(flops=self.flops + other.flops, bytes=self.bytes + other.bytes)

    def __mul__(self, times: int) -> "Cost":
        return Cost(flops=self.flops * times, bytes=self.bytes * times)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Peaks:
    """Peak arithmetic and bandwidth of a device.

    Attributes:
        flops_per_s: Dense matrix products in the compute type, operations per second.
        bytes_per_s: Memory traffic, reads and writes together.
        source: The source of both.
    """

    flops_per_s: float
    bytes_per_s: float
    source: str

    def floor_ms(self, cost: Cost) -> float:
        """Minimum milliseconds of a stage: the longer of arithmetic and traffic, which overlap at best."""
        return 1e3 * max(cost.flops / self.flops_per_s, cost.bytes / self.bytes_per_s)


def siglip(config: Pi05Config, *, images: int) -> Cost:
    """The vision tower on `images` images, its head included."""
    size, tokens = config.siglip, config.tokens_per_image
    block = 4 * size.width**2 + 2 * size.width * size.mlp_dim
    matrices = size.depth * block + size.width * config.trunk.width
    stages = _patch_embeddings(config)
    attention = 4 * tokens**2 * size.width * size.depth
    embedding = sum(2 * weights * squares for weights, squares in stages)
    return Cost(
        flops=images * (2 * matrices * tokens + embedding + attention),
        bytes=BYTES[config.dtype] * (matrices + sum(weights for weights, _ in stages)),
    )


def _patch_embeddings(config: Pi05Config) -> list[tuple[int, int]]:
    """Weights of each stage of the patch embedding, and the patches of an image it is applied to."""
    size, stages = config.siglip, []
    patch, channels, side = size.patch >> len(size.stem), 3, config.image_size
    for width in (*size.stem, size.width):
        side //= patch
        stages.append((patch**2 * channels * width, side**2))
        patch, channels = 2, width
    return stages


def trunk_pass(config: Pi05Config, *, tokens: int, robots: int) -> Cost:
    """A pass of the trunk over `tokens` tokens of each robot, with full attention."""
    return _trunk(config, _layers(config.trunk), config.trunk.depth, tokens, robots)


def trunk_prefill(config: Pi05Config, *, tokens: int, robots: int) -> Cost:
    """A prefill: as `trunk_pass`, with only keys and values of the last layer."""
    gemma = config.trunk
    weights = _layers(gemma) - _unused_by_prefix(gemma)
    return _trunk(config, weights, gemma.depth - 1, tokens, robots)


def _trunk(config: Pi05Config, weights: int, attending: int, tokens: int, robots: int) -> Cost:
    gemma = config.trunk
    attention = 4 * tokens**2 * gemma.num_heads * gemma.head_dim * attending
    return Cost(
        flops=robots * (2 * weights * tokens + attention),
        bytes=BYTES[config.dtype] * (weights + robots * tokens * _kv(gemma)),
    )


def denoise(config: Pi05Config, *, prefix: int, robots: int) -> Cost:
    """All steps of the flow, with the adaRMS vectors precomputed at load."""
    gemma, tokens = config.expert, config.horizon
    attention = 4 * tokens * (prefix + tokens) * gemma.num_heads * gemma.head_dim * gemma.depth
    ends = 2 * config.action_dim * gemma.width
    step = Cost(
        flops=robots * (2 * (_layers(gemma) + ends) * tokens + attention),
        bytes=BYTES[config.dtype] * (_layers(gemma) + ends + robots * prefix * _kv(gemma)),
    )
    return step * config.denoise_steps


def guided_denoise(config: Pi05Config, *, prefix: int, robots: int) -> Cost:
    """All steps of guided denoising, with a backward pass as expensive as the forward pass.

    It needs no gradients of weights, keys and values.
    """
    return denoise(config, prefix=prefix, robots=robots) * 2


def decode(config: Pi05Config, *, context: int, rows: int) -> Cost:
    """One token for each of `rows` texts that follow `context` tokens."""
    gemma = config.trunk
    embedding = config.vocab_size * gemma.width
    attention = 4 * context * gemma.num_heads * gemma.head_dim * gemma.depth
    return Cost(
        flops=rows * (2 * (_layers(gemma) + embedding) + attention),
        bytes=BYTES[config.dtype] * (_layers(gemma) + embedding + rows * context * _kv(gemma)),
    )


def fork(config: Pi05Config, *, prefix: int, suffix: int, requests: int) -> Cost:
    """Prefill of `suffix` tokens after the prefix, and the prefix's copy into `requests` slots."""
    gemma = config.trunk
    attention = 4 * suffix * (prefix + suffix) * gemma.num_heads * gemma.head_dim * (gemma.depth - 1)
    copied = requests * (2 * prefix + suffix) * _kv(gemma)
    weights = _layers(gemma) - _unused_by_prefix(gemma) if suffix else 0
    return Cost(
        flops=requests * (2 * weights * suffix + attention), bytes=BYTES[config.dtype] * (weights + copied)
    )


def _layers(gemma: GemmaConfig) -> int:
    """Weights in the matrices of all layers of an expert."""
    attention = gemma.width * gemma.head_dim * 2 * (gemma.num_heads + gemma.num_kv_heads)
    return gemma.depth * (attention + 3 * gemma.width * gemma.mlp_dim)


def _unused_by_prefix(gemma: GemmaConfig) -> int:
    """Weights of the last layer except those of keys and values."""
    keys_and_values = 2 * gemma.width * gemma.num_kv_heads * gemma.head_dim
    return _layers(gemma) // gemma.depth - keys_and_values


def _kv(gemma: GemmaConfig) -> int:
    """Size of one token in the KV cache: keys and values of all layers."""
    return 2 * gemma.depth * gemma.num_kv_heads * gemma.head_dim
