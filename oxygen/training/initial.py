"""Parameters to begin training with, when there is no checkpoint to begin from."""

import math

import numpy as np

from oxygen.model.config import Pi05Config
from oxygen.model.params import Shape, nested, shapes, standard_normal
from oxygen.typing import Float32, Params


def initial_params(config: Pi05Config, seed: int) -> Params:
    """Random parameters fit for training, in float32: each a function of the seed and its own path alone.

    Matrices keep the size of what passes through them, those that write into the residual stream are smaller
    the more layers there are, and every norm begins as one that only normalises. The action expert's gates
    begin open: with them shut, as where a trained trunk is given an expert, its layers would learn nothing
    until the gates have.
    """
    return nested({path: _drawn(path, shape, config, seed) for path, shape in shapes(config).items()})


def _drawn(path: str, shape: Shape, config: Pi05Config, seed: int) -> Float32[np.ndarray, "..."]:
    if "norm" in path.lower() and not path.endswith("kernel"):
        return _of_a_norm(path, shape)
    if path.endswith("bias"):
        return np.zeros(shape, np.float32)
    return standard_normal(seed, path, shape) * np.float32(_deviation(path, shape, config))


def _of_a_norm(path: str, shape: Shape) -> Float32[np.ndarray, "..."]:
    """A norm that only normalises: Gemma's scales are offsets from one, SigLIP's are not."""
    values = np.zeros(shape, np.float32)
    if path.endswith("Dense_0/bias"):  # of an adaRMS norm: scale, shift and gate side by side
        values[..., 2 * shape[-1] // 3 :] = 1.0
    elif "/img/" in path and path.endswith("scale"):
        values += 1.0
    return values


def _deviation(path: str, shape: Shape, config: Pi05Config) -> float:
    if path.endswith("pos_embedding"):
        return 0.1
    if "norm" in path:  # how the flow's time turns the norms
        return 0.1 / math.sqrt(shape[-2])
    if path.endswith("input_embedding"):
        return 1.0 / math.sqrt(shape[-1])
    if path.endswith("action_out_proj/kernel"):
        return 0.1 / math.sqrt(shape[-2])
    return _residual_share(path, config) / math.sqrt(_fan_in(path, shape))


def _fan_in(path: str, shape: Shape) -> int:
    if path.endswith("embedding/kernel") or "/stem/" in path:
        return math.prod(shape[:3])
    if "attn_vec_einsum" in path:
        return math.prod(shape[-3:-1])
    if path.endswith("out/kernel"):  # SigLIP's attention: [layer, head, dim, width]
        return math.prod(shape[-3:-1])
    if path.endswith(("query/kernel", "key/kernel", "value/kernel")):
        return shape[-3]
    return shape[-2]


def _residual_share(path: str, config: Pi05Config) -> float:
    """By how much smaller a matrix is whose product is added to the stream of tokens in every layer."""
    if path.endswith(("attn_vec_einsum/w", "attn_vec_einsum_1/w", "mlp/linear", "mlp_1/linear")):
        return 1.0 / math.sqrt(2.0 * config.trunk.depth)
    if "encoderblock" in path and path.endswith(("out/kernel", "Dense_1/kernel")):
        return 1.0 / math.sqrt(2.0 * config.siglip.depth)
    return 1.0
