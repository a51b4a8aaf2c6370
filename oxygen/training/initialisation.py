"""Initial parameters for training from scratch."""

import math

import numpy as np

from oxygen.model.config import Pi05Config
from oxygen.model.params import Shape, nested, shapes, standard_normal
from oxygen.typing import Float32, Params


def initial_params(config: Pi05Config, seed: int) -> Params:
    """Random float32 parameters for training, each a function of the seed and its path alone.

    Matrices preserve variance, output projections into the residual stream shrink with depth, and norms start
    as the identity. The action expert's adaRMS gates start at 1: from openpi's initial 0 (meant for an expert
    added to a trained trunk) its layers get no gradient until the gates have moved.
    """
    return nested({path: _initial(path, shape, config, seed) for path, shape in shapes(config).items()})


def _initial(path: str, shape: Shape, config: Pi05Config, seed: int) -> Float32[np.ndarray, "..."]:
    if ("norm" in path.lower() and not path.endswith("kernel")) or path.endswith("bias"):
        values = np.zeros(shape, np.float32)
        if "norm" in path.lower() and path.endswith("Dense_0/bias"):  # adaRMS: scale, shift and gate
            values[..., 2 * shape[-1] // 3 :] = 1.0
        elif "norm" in path.lower() and "/img/" in path and path.endswith("scale"):
            values += 1.0  # Gemma stores scales as offsets from 1, SigLIP does not
        return values
    return standard_normal(seed, path, shape) * np.float32(_deviation(path, shape, config))


def _deviation(path: str, shape: Shape, config: Pi05Config) -> float:
    if path.endswith("pos_embedding"):
        return 0.1
    if "norm" in path or path.endswith(
        "action_out_proj/kernel"
    ):  # "norm": adaRMS modulation by the flow time
        return 0.1 / math.sqrt(shape[-2])
    if path.endswith("input_embedding"):
        return 1.0 / math.sqrt(shape[-1])
    fan_in = shape[-2]
    if path.endswith("embedding/kernel") or "/stem/" in path:
        fan_in = math.prod(shape[:3])
    elif "attn_vec_einsum" in path or path.endswith("out/kernel"):  # [layer, head, dim, width]
        fan_in = math.prod(shape[-3:-1])
    elif path.endswith(("query/kernel", "key/kernel", "value/kernel")):
        fan_in = shape[-3]
    into_residual = 1.0  # output projections shrink with depth
    if path.endswith(("attn_vec_einsum/w", "attn_vec_einsum_1/w", "mlp/linear", "mlp_1/linear")):
        into_residual = 1.0 / math.sqrt(2.0 * config.trunk.depth)
    elif "encoderblock" in path and path.endswith(("out/kernel", "Dense_1/kernel")):
        into_residual = 1.0 / math.sqrt(2.0 * config.siglip.depth)
    return into_residual / math.sqrt(fan_in)
