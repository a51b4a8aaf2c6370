"""Merges the LoRA weights of openpi's fine-tuning into those that they adapt (its `models/lora.py`)."""

from collections.abc import Mapping

import numpy as np

from contracts.errors import UsageError
from oxygen.weights.formats import Checkpoint, Stored

_A, _B = "lora_a", "lora_b"


def adapted(tensors: Mapping[str, Stored]) -> dict[str, str]:
    """Maps an adapted weight to what stands before `lora_a` and `lora_b` in the names of its adapter.

    They are `q_einsum/w` with `q_einsum/lora_a`, and `linear` with `linear_lora_a`.
    """
    stems = [name.removesuffix(_A) for name in tensors if name.endswith(_A)]
    return {f"{stem}w" if stem.endswith("/") else stem.removesuffix("_"): stem for stem in stems}


def merged(checkpoint: Checkpoint, scale: float, source: str) -> Checkpoint:
    """The checkpoint with its LoRA weights merged; a UsageError if it has none, or one lacks its weight.

    `scale` is openpi's `alpha` over the rank, which only attention's adapters are scaled with; `source` names
    the checkpoint in errors.
    """
    tensors, stems = checkpoint.tensors, adapted(checkpoint.tensors)
    needed = [name for weight, stem in stems.items() for name in (weight, stem + _A, stem + _B)]
    if not stems:
        raise UsageError(f"{source} has no {_A} to merge; leave out --merge-lora")
    if lacking := [name for name in needed if name not in tensors]:
        raise UsageError(f"{source} lacks {lacking[0]}, which --merge-lora needs; fetch it again")
    for weight, stem in stems.items():
        *stack, rows, columns = tensors[weight].shape
        a, b = tensors[stem + _A].shape, tensors[stem + _B].shape
        if a[:-1] != (*stack, rows) or b != (*stack, a[-1], columns):
            raise UsageError(f"{source}: {stem}{_A} {list(a)} and {_B} {list(b)} do not fit {weight}")

    def read(name: str, out: np.ndarray) -> None:
        checkpoint.read(name, out)
        if (stem := stems.get(name)) is None:
            return
        a, b = (np.empty(tensors[stem + part].shape, np.float32) for part in (_A, _B))
        checkpoint.read(stem + _A, a)
        checkpoint.read(stem + _B, b)
        if "attn_vec_einsum" in name:  # openpi sums over the heads between the two products
            b = b.sum(axis=-3, keepdims=True)
        factor = np.float32(scale if "_einsum" in name and "gating" not in name else 1.0)
        for layer in range(len(out)):  # whole stacks would take twice their memory
            out[layer] = out[layer].astype(np.float32) + factor * (a[layer] @ b[layer])

    adapters = {stem + part for stem in stems.values() for part in (_A, _B)}
    return Checkpoint(tensors={name: t for name, t in tensors.items() if name not in adapters}, read=read)
