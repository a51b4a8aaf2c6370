"""Environment variables that keep JAX or MuJoCo from starting: one line with the remedy."""

import os
import subprocess
import sys

import pytest

WRONG = {
    "JAX_ENABLE_X64": "banana",
    "JAX_PLATFORMS": "foo",
    "XLA_FLAGS": "--nonsense=1",
    "MUJOCO_GL": "foo",
    "XDG_CACHE_HOME": "/proc/x",
    "HOME": "/proc",
}
"""Variable to a value that nothing can start with."""

CHEAP = "JAX_ENABLE_X64"
"""Refused as soon as JAX is imported."""


@pytest.mark.parametrize(
    "variable", [pytest.param(each, marks=[pytest.mark.slow] if each != CHEAP else []) for each in WRONG]
)
def test_a_wrong_environment_variable_is_one_line(variable, tmp_path):
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("OXYGEN_LIBERO_ASSETS", "XDG_CACHE_HOME")
    }
    answer = subprocess.run(
        [sys.executable, "-m", "eval.libero", "--smoke", "--assets", "standins", "--output-dir", tmp_path],
        env=kept | {variable: WRONG[variable]},
        capture_output=True,
        text=True,
        check=False,
    )
    (line,) = answer.stderr.splitlines()
    assert answer.returncode == 2
    assert line.startswith("error: ")
    assert variable in line or variable == "HOME"
    assert not list(tmp_path.iterdir())
