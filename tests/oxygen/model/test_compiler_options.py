"""The options of the serving programs are known to XLA, for GPUs alone, and give way to the user's."""

import jax
import jax.numpy as jnp
import pytest

from eval.records import provenance
from oxygen.model.compiler_options import GPU, compiler_options, describe_compilation


@pytest.fixture(autouse=True)
def no_flags(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)


def test_the_installed_compiler_knows_every_option():
    program = jax.jit(lambda x: x + 1).lower(jnp.float32(0))
    assert program.compile(compiler_options=dict(GPU))(jnp.float32(1)) == 2
    with pytest.raises(jax.errors.JaxRuntimeError, match="No such compile option"):
        program.compile(compiler_options={"xla_gpu_nonsense": True})


@pytest.mark.parametrize("flag", ["--{}=false", "--{}", "--xla_dump_to=/tmp --{}=0"])
def test_they_are_for_gpus_alone_and_give_way_to_xla_flags(monkeypatch, flag):
    assert compiler_options("gpu") == GPU
    assert not compiler_options("cpu")
    name, *others = GPU
    monkeypatch.setenv("XLA_FLAGS", flag.format(name))
    assert compiler_options("gpu").keys() == set(others)


def test_they_are_recorded_with_the_hardware(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/tmp")
    assert describe_compilation("gpu") == {"flags": "--xla_dump_to=/tmp", "options": dict(GPU)}
    assert provenance.hardware()["xla"] == {"flags": "--xla_dump_to=/tmp", "options": {}}
