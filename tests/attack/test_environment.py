"""Environment variables that keep JAX or MuJoCo from starting: one line with the remedy."""

import itertools
import os
import subprocess
import sys

import pytest

from tests.attack.commands import COMMANDS as EVERY_COMMAND

FEW = "--suite libero_object --task-ids 0 --init-ids 0 --max-steps 10 --assets standins"

COMMANDS = {
    "eval.libero": "--smoke --assets standins --output-dir {out}",
    "eval.sweep": f"{FEW} --policy tiny --mode actions unified --output-dir {{out}}",
    "eval.collect": f"{FEW} --policy tiny --workers 1 --output {{out}}",
    "eval.train": "--data {data} --model tiny --steps 2 --batch 2 --eval-suite libero_object --eval-assets "
    "standins --output-dir {out}",
    "eval.bench": "--policy tiny --quick",
    "oxygen.serve": "--policy tiny --port 0",
}
"""Command to its options; all need JAX."""

WITHOUT_MUJOCO = ("eval.bench", "oxygen.serve")

WRONG = {
    "JAX_ENABLE_X64": "banana",
    "JAX_PLATFORMS": "cuda",
    "XLA_FLAGS": "--nonsense=1",
    "MUJOCO_GL": "foo",
    "XDG_CACHE_HOME": "/proc/x",
    "HOME": "/proc",
}
"""Variable to a value that nothing can start with."""

QUICK = (("eval.libero", "JAX_ENABLE_X64"), ("eval.bench", "JAX_ENABLE_X64"))
"""Refused as soon as JAX is imported."""


def cases() -> list:
    """Every command with every variable that it reads."""
    pairs = [
        pair
        for pair in itertools.product(COMMANDS, WRONG)
        if pair[0] not in WITHOUT_MUJOCO or pair[1] != "MUJOCO_GL"
    ]
    return [pytest.param(*pair, marks=[] if pair in QUICK else [pytest.mark.slow]) for pair in pairs]


@pytest.mark.parametrize(("command", "variable"), cases())
def test_a_wrong_environment_variable_is_one_line(command, variable, tmp_path, data):
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("OXYGEN_LIBERO_ASSETS", "XDG_CACHE_HOME", "JAX_COMPILATION_CACHE_DIR")
    }
    answer = subprocess.run(
        [sys.executable, "-m", command, *COMMANDS[command].format(out=tmp_path, data=data).split()],
        env=kept | {variable: WRONG[variable]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 2, answer.stderr
    (line,) = answer.stderr.splitlines()
    assert line.startswith("error: ")
    assert variable in line or variable == "HOME"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("command", EVERY_COMMAND)
def test_help_needs_no_environment(command):
    answer = subprocess.run(
        [sys.executable, "-m", command, "--help"],
        env=os.environ | WRONG,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "usage" in answer.stdout.lower()


STARTS = {
    "eval.bundle": ("--output {out}/new", "JAX_ENABLE_X64"),
    "oxygen.tools.convert": ("{out} {out}/new", "JAX_ENABLE_X64"),
    "oxygen.tools.parity": ("{out}/absent.npz", "JAX_ENABLE_X64"),
    "sim_envs.contact_sheet": ("{out}/sheet.jpg --suite libero_object --assets standins", "MUJOCO_GL"),
}
"""Commands of which a variable is the only thing wrong: their options, and that variable."""


@pytest.mark.slow
@pytest.mark.parametrize("command", STARTS)
def test_a_wrong_variable_of_a_small_command_is_one_line(command, tmp_path):
    options, variable = STARTS[command]
    answer = subprocess.run(
        [sys.executable, "-m", command, *options.format(out=tmp_path).split()],
        env=os.environ | {variable: WRONG[variable]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 2, answer.stderr
    (line,) = answer.stderr.splitlines()
    assert variable in line
    assert not list(tmp_path.iterdir())
