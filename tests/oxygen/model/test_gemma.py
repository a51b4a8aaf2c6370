"""Attention: the softmax of every head over what each query may see, however rows and heads are batched."""

import jax.numpy as jnp
import numpy as np
import pytest

from oxygen.model import gemma

BATCH, QUERIES, HEADS, DIM, POSITIONS = 3, 4, 6, 8, 21


def plain(q, k, v, mask):
    """Softmax attention of one row, head by head, in double precision."""
    heads_of_each, out = q.shape[1] // k.shape[1], np.empty_like(q)
    for head in range(q.shape[1]):
        logits = q[:, head] @ k[:, head // heads_of_each].T
        weights = np.where(mask, np.exp(logits - logits.max(axis=-1, keepdims=True)), 0.0)
        out[:, head] = weights / weights.sum(axis=-1, keepdims=True) @ v[:, head // heads_of_each]
    return out


@pytest.mark.parametrize("kv_heads", [1, 2, 3])
@pytest.mark.parametrize("queries", [1, QUERIES], ids=["a mask for all queries", "a mask for each"])
def test_every_head_attends_to_what_its_row_may_see(kv_heads, queries):
    rng = np.random.default_rng(0)
    q = rng.standard_normal((BATCH, QUERIES, HEADS, DIM))
    k, v = rng.standard_normal((2, BATCH, POSITIONS, kv_heads, DIM))
    mask = rng.random((BATCH, queries, POSITIONS)) < 0.6
    keys = gemma.KeyValues(
        k=jnp.asarray(k, jnp.float32), v=jnp.asarray(v, jnp.float32), mask=jnp.asarray(mask)
    )
    heads = np.asarray(gemma.attention(jnp.asarray(q, jnp.float32), keys))
    for row in range(BATCH):
        np.testing.assert_allclose(heads[row], plain(q[row], k[row], v[row], mask[row]), atol=1e-5)
