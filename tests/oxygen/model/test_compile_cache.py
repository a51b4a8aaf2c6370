"""Compiled programs outlive the process; their options are for GPUs and give way to the user's."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from contracts.errors import UsageError
from eval.records import provenance
from oxygen.model.compile_cache import GPU, compiler_options, describe_compilation, use_compile_cache

_SETTINGS = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    from jax.experimental.compilation_cache import compilation_cache

    monkeypatch.delenv("XLA_FLAGS", raising=False)
    before = {name: jax.config.values[name] for name in _SETTINGS}
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture
def events():
    """What JAX tells of its work."""
    told = []
    note = lambda event, **_: told.append(event)  # noqa: E731
    jax.monitoring.register_event_listener(note)
    yield told
    jax.monitoring.unregister_event_listener(note)


def test_a_program_is_kept_and_found_again(monkeypatch, tmp_path, events):
    def compile_it():
        jax.jit(lambda x: x * 3 + 1).lower(jax.ShapeDtypeStruct((7,), jnp.float32)).compile()

    def programs():
        """But for when they were last used."""
        return {path.name for path in folder.iterdir() if not path.name.endswith("-atime")}

    monkeypatch.setenv("OXYGEN_COMPILE_CACHE", str(tmp_path))
    folder = use_compile_cache()
    compile_it()
    kept = programs()
    assert len(kept) == 1
    jax.clear_caches()
    events.clear()
    compile_it()
    assert events.count("/jax/compilation_cache/cache_hits") == 1
    assert "/jax/compilation_cache/cache_misses" not in events
    assert programs() == kept


def test_the_folder_is_the_users_choice(monkeypatch, tmp_path):
    monkeypatch.setenv("OXYGEN_COMPILE_CACHE", str(tmp_path / "mine"))
    assert use_compile_cache().parent == tmp_path / "mine"
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    assert use_compile_cache() == Path(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jax_disable_jit", True),
        ("jax_default_prng_impl", "rbg"),
        ("jax_random_seed_offset", 3),
        ("jax_threefry_partitionable", False),
        ("jax_default_matmul_precision", "bfloat16"),
    ],
)
def test_a_setting_of_jax_that_breaks_the_engine_or_changes_its_numbers_is_one_line(name, value):
    before = jax.config.values[name]
    jax.config.update(name, value)
    try:
        with pytest.raises(UsageError, match=rf"{name.upper()}={value}: .*; unset it"):
            use_compile_cache()
    finally:
        jax.config.update(name, before)


def test_a_variable_that_stops_every_program_is_named(monkeypatch):
    monkeypatch.setenv("JAX_TRANSFER_GUARD", "disallow")
    said = r"^JAX does not start \(.*transfer.*\): correct or unset .*JAX_TRANSFER_GUARD=disallow"
    with jax.transfer_guard("disallow"), pytest.raises(UsageError, match=said):
        use_compile_cache()


def test_they_are_for_gpus_alone_give_way_to_xla_flags_and_are_recorded_with_the_hardware(monkeypatch):
    assert compiler_options("gpu") == GPU
    assert not compiler_options("cpu")
    name, *others = GPU
    for flag in ("--{}=false", "--{}", "--xla_dump_to=/tmp --{}=0"):
        monkeypatch.setenv("XLA_FLAGS", flag.format(name))
        assert compiler_options("gpu").keys() == set(others)
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/tmp")
    described = describe_compilation("gpu")
    assert described["variables"].pop("JAX_PLATFORMS") == "cpu"
    assert "JAX_COMPILATION_CACHE_DIR" not in described["variables"]
    assert (described["flags"], described["options"]) == ("--xla_dump_to=/tmp", dict(GPU))
    assert provenance.hardware()["xla"]["options"] == {}


@pytest.mark.parametrize("package", ["oxygen", "configs"])
def test_xla_keeps_its_remarks_to_itself_unless_the_user_wants_them(package):
    told = f"import {package}, os, sys; print(os.environ['TF_CPP_MIN_LOG_LEVEL'], 'jax' in sys.modules)"
    for given, level in ({}, "3"), ({"TF_CPP_MIN_LOG_LEVEL": "0"}, "0"):
        without = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
        done = subprocess.run(
            [sys.executable, "-c", told], env=without | given, capture_output=True, text=True, check=True
        )
        assert done.stdout == f"{level} False\n"
