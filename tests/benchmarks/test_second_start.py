"""Starts are timed in turns: with nothing compiled, then with what the start before has compiled."""

import subprocess
import sys

import pytest

from benchmarks.second_start import command, measure
from eval.bench.options import read
from oxygen.model.compile_cache import CACHE_VARIABLE

_COMPILES_FOR_HALF_A_SECOND = f"""
import os, pathlib, sys, time
assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
cache = pathlib.Path(os.environ["{CACHE_VARIABLE}"])
warm = cache.exists()
if not warm:
    time.sleep(0.5)
    cache.mkdir(parents=True)
    (cache / "program").write_text("compiled")
with open(sys.argv[1], "a") as log:
    log.write("second " if warm else "first ")
"""


@pytest.mark.slow
def test_only_a_second_start_finds_compiled_programs(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/elsewhere")
    log = tmp_path / "log"
    start = [sys.executable, "-S", "-c", _COMPILES_FOR_HALF_A_SECOND, str(log)]
    measured = measure(start, tmp_path, turns=2)
    assert log.read_text().split() == ["first", "first", "second", "first", "second"]
    assert all(seconds > 0.5 for seconds in measured["first_start_s"])
    assert len(measured["second_start_s"]) == 2
    assert measured["first_over_second"]["value"] > 0
    assert (measured["files_kept"], measured["bytes_kept"]) == (1, len("compiled"))


def test_a_start_that_fails_or_caches_nothing_is_an_error(tmp_path):
    with pytest.raises(subprocess.CalledProcessError):
        measure([sys.executable, "-S", "-c", "raise SystemExit(3)"], tmp_path, turns=1)
    with pytest.raises(RuntimeError, match="kept no compiled programs"):
        measure([sys.executable, "-S", "-c", "pass"], tmp_path, turns=1)


def test_the_command_line_is_valid(tmp_path):
    _, _, module, *arguments = command("tiny", tmp_path / "rows.jsonl")
    assert module == "eval.bench"
    assert read(arguments).grid.modes == ("unified",)
