"""Compiled programs outlive the process."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from oxygen.model.compile_cache import use_compile_cache

_SETTINGS = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


@pytest.fixture(autouse=True)
def as_before():
    from jax.experimental.compilation_cache import compilation_cache

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

    def note(event, **_):
        told.append(event)

    jax.monitoring.register_event_listener(note)
    yield told
    jax.monitoring.unregister_event_listener(note)


def test_a_program_is_kept_and_found_again(tmp_path, events):
    def compile_it():
        jax.jit(lambda x: x * 3 + 1).lower(jax.ShapeDtypeStruct((7,), jnp.float32)).compile()

    folder = use_compile_cache(tmp_path)
    compile_it()
    kept = programs_in(folder)
    assert len(kept) == 1
    jax.clear_caches()
    events.clear()
    compile_it()
    assert events.count("/jax/compilation_cache/cache_hits") == 1
    assert "/jax/compilation_cache/cache_misses" not in events
    assert programs_in(folder) == kept


def programs_in(folder):
    """But for when they were last used."""
    return {path.name for path in folder.iterdir() if not path.name.endswith("-atime")}


def test_the_folder_is_the_users_choice(monkeypatch, tmp_path):
    monkeypatch.setenv("OXYGEN_COMPILE_CACHE", str(tmp_path / "mine"))
    assert use_compile_cache().parent == tmp_path / "mine"
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    assert use_compile_cache() == Path(tmp_path)
