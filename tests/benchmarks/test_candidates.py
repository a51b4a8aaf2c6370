"""The alternatives to the serving programs: they compute the same, and compile for a GPU."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.candidates import COMPILATIONS, SERVED, decode_ragged, decode_runners, measure, stages
from eval.bench.serving import Bench, ModelUnderTest
from oxygen.model.compile_cache import GPU
from oxygen.serving import decode
from oxygen.serving.decode import Tokens
from oxygen.serving.kv_pool import KvLayer
from tests.oxygen.conftest import SMALL

_EXPERT = dataclasses.replace(SMALL.trunk, depth=1)
_CONFIG = dataclasses.replace(SMALL, trunk=_EXPERT, expert=_EXPERT, denoise_steps=2)


def test_every_stage_is_measured_as_it_is_served_and_a_cpus_alternatives_give_the_same_result():
    model = ModelUnderTest(name="small", config=_CONFIG, weights=0, weights_from="random", prompt_tokens=24)
    bench = Bench(model)
    runners = decode_runners(bench, model, [2], 4)
    weights = bench.weights(_CONFIG.denoise_steps)
    found = [row for stage in stages(runners, model) for row in measure(stage, weights, 2)]
    rows = {(row["stage"], row["alternative"]): row for row in found}
    served = {stage for stage, how in rows if how == SERVED}
    assert served == {"prefill", "denoise", "decode 2"}
    for stage in served:
        assert rows[stage, SERVED]["equal_bits"]
        assert len(rows[stage, SERVED]["ms"]) == 2
    attention, gathered = rows["denoise", "jax.nn attention"], rows["decode 2", "slots gathered first"]
    assert attention["difference"] < 1e-4
    assert gathered["equal_tokens"] == 1
    assert rows["decode 2", "int8 weights"]["equal_tokens"] > 0
    left_out = {how for (_, how), row in rows.items() if row.get("left_out") == "needs a GPU"}
    assert left_out == {"cuDNN attention", "Pallas, ragged", *COMPILATIONS}


@pytest.mark.parametrize("options", [GPU, *COMPILATIONS.values()])
def test_the_installed_compiler_knows_every_option(options):
    program = jax.jit(lambda x: x + 1).lower(jnp.float32(0))
    assert program.compile(compiler_options=dict(options or {}))(jnp.float32(1)) == 2
    with pytest.raises(jax.errors.JaxRuntimeError, match="No such compile option"):
        program.compile(compiler_options={"xla_gpu_nonsense": True})


def pool_and_tokens(*, kv_heads, heads, dim, positions, dtype):
    rng = np.random.default_rng(0)

    def drawn(*shape):
        return jnp.asarray(rng.standard_normal(shape), dtype)

    held = KvLayer(k=drawn(6, kv_heads, dim, positions), v=drawn(6, positions, kv_heads, dim))
    at = {"slot": [4, 0, 2], "position": [0, positions - 1, positions // 2]}
    return held, Tokens(
        **{name: jnp.asarray(values, jnp.int32) for name, values in at.items()},
        q=drawn(3, 1, heads, dim),
        k=drawn(3, 1, kv_heads, dim),
        v=drawn(3, 1, kv_heads, dim),
    )


@pytest.mark.parametrize(
    ("kv_heads", "heads", "positions", "dtype"),
    [
        (2, 8, 48, "float32"),
        pytest.param(1, 8, 208, "float32", marks=pytest.mark.slow),
        pytest.param(1, 4, 592, "bfloat16", marks=pytest.mark.slow),
    ],
)
def test_the_ragged_kernel_equals_attention_in_place(kv_heads, heads, positions, dtype):
    work = pool_and_tokens(kv_heads=kv_heads, heads=heads, dim=16, positions=positions, dtype=dtype)
    expected, held = jax.jit(decode.decode_in_place)(*work)
    found, held_too = jax.jit(functools.partial(decode_ragged, interpret=True))(*work)
    rounding = 1e-5 if dtype == "float32" else 2e-2
    np.testing.assert_allclose(
        np.asarray(found, np.float32), np.asarray(expected, np.float32), atol=rounding, rtol=rounding
    )
    assert held.k.tobytes() == held_too.k.tobytes()


def test_the_ragged_kernel_is_lowered_for_a_gpu_at_full_size():
    work = pool_and_tokens(kv_heads=1, heads=8, dim=256, positions=592, dtype="bfloat16")
    lowered = jax.jit(decode_ragged).trace(*work).lower(lowering_platforms=("cuda",))
    assert "triton" in lowered.as_text()
