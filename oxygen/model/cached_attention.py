"""Attention of the action tokens to the prefix's KV cache and to themselves, in several implementations.

They differ in rounding, so a policy uses `DEFAULT` on every device. `benchmarks.candidates` measures the
others.
"""

import dataclasses
from typing import Literal, TypeAlias

import flax.struct
import jax
import jax.numpy as jnp

from oxygen.model import gemma
from oxygen.typing import Array, Bool, Float, Leaf

Implementation: TypeAlias = Literal["matmul", "xla", "cudnn"]
"""`matmul`: matrix products over a transposed cache; others: `jax.nn.dot_product_attention`. `cudnn` needs a
GPU and bfloat16."""

DEFAULT: Implementation = "matmul"


@flax.struct.dataclass
class CachedLayer:
    """One layer's keys and values: the prefix, then padding, then the action tokens."""

    k: Leaf  # [batch, kv_head, dim, position] for `matmul`, else [batch, position, kv_head, dim]
    v: Leaf  # [batch, kv_head, position, dim] for `matmul`, else as `k`
    implementation: Implementation = flax.struct.field(pytree_node=False)  # the attention that reads it

    @classmethod
    def begin(
        cls,
        k: Float[Array, "batch position kv_head dim"],
        v: Float[Array, "batch position kv_head dim"],
        *,
        room: int,
        implementation: Implementation,
    ) -> "CachedLayer":
        """A prefix with `room` positions after it, of which the action tokens take the last."""
        if implementation == "matmul":
            k, v = (_with_room(leaf.transpose(0, 2, 1, 3), room, axis=2) for leaf in (k, v))
            return cls(k=k.transpose(0, 1, 3, 2), v=v, implementation=implementation)
        return cls(
            k=_with_room(k, room, axis=1), v=_with_room(v, room, axis=1), implementation=implementation
        )

    def attend(
        self,
        q: Float[Array, "batch query head dim"],
        k: Float[Array, "batch query kv_head dim"],
        v: Float[Array, "batch query kv_head dim"],
        mask: Bool[Array, "batch 1 position"],
    ) -> tuple[Float[Array, "batch query head dim"], "CachedLayer"]:
        """Write the action tokens' keys and values into the cache; attend to all that `mask` allows.

        Queries are scaled already.
        """
        if self.implementation == "matmul":
            before = self.k.shape[-1] - k.shape[1]
            all_k = self.k.at[..., before:].set(k.transpose(0, 2, 3, 1))
            all_v = self.v.at[:, :, before:].set(v.transpose(0, 2, 1, 3))
            heads = gemma.attention_transposed(q, all_k, all_v, mask)
        else:
            before = self.k.shape[1] - k.shape[1]
            all_k, all_v = self.k.at[:, before:].set(k), self.v.at[:, before:].set(v)
            seen = jnp.broadcast_to(mask[:, None], (len(q), 1, q.shape[1], mask.shape[-1]))
            heads = jax.nn.dot_product_attention(
                q, all_k, all_v, mask=seen, scale=1.0, implementation=self.implementation
            )
        return heads, dataclasses.replace(self, k=all_k, v=all_v)


def _with_room(leaf: Array, room: int, *, axis: int) -> Array:
    return jnp.pad(leaf, [(0, room if at == axis else 0) for at in range(leaf.ndim)])
