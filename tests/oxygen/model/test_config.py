"""Configurations check themselves; attention is the softmax of every head over what each query may see."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from configs.errors import UsageError
from oxygen.model import gemma
from oxygen.model.config import PI05_LIBERO, TINY


@pytest.mark.parametrize(("length", "bucket"), [(1, 32), (32, 32), (33, 64), (129, 200), (200, 200)])
def test_a_prompt_goes_into_the_smallest_bucket(length, bucket):
    assert PI05_LIBERO.bucket(length) == bucket


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        (TINY, {"dtype": "float16"}, "unknown dtype 'float16'"),
        (TINY, {"expert": dataclasses.replace(TINY.expert, depth=5)}, "depth is 4 in the trunk and 5"),
        (TINY, {"image_size": 113}, "113 is not a multiple of patch 16"),
        (TINY, {"noise_scale": 1.5}, "noise scale is 1.5; give 0 to 1"),
        (TINY.trunk, {"num_kv_heads": 3}, "4 query heads cannot be shared among 3"),
        (TINY.siglip, {"width": 130}, "130 is not a multiple of its 4 heads"),
        (TINY.siglip, {"patch": 14, "stem": (8, 24)}, "give a multiple of 4"),
    ],
)
def test_configurations_that_cannot_be_are_refused(part, changes, message):
    with pytest.raises(UsageError, match=message):
        dataclasses.replace(part, **changes)


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
