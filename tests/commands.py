"""Commands, called in this process or run as programs."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cyclopts import App

from configs.cli import run_app

ROOT = Path(__file__).resolve().parents[1]


def call(command: App | Callable[[list[str]], int], *arguments: object) -> int:
    """The exit code of a command, which is an app or a function."""
    given = [str(each) for each in arguments]
    with pytest.raises(SystemExit) as stopped:
        run_app(command, given) if isinstance(command, App) else sys.exit(command(given))
    return stopped.value.code


def execute(
    *command: object, cwd: Path = ROOT, timeout_s: float | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; empty variables are left out of its environment."""
    return subprocess.run(
        [str(each) for each in command],
        cwd=cwd,
        env={name: value for name, value in {**os.environ, **environment}.items() if value},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )


def printed(*command: object, cwd: Path = ROOT, timeout_s: float | None = None, **environment: str) -> str:
    """The standard output of a program, which must succeed."""
    done = execute(*command, cwd=cwd, timeout_s=timeout_s, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def import_without(absent: str, modules: list[str]) -> None:
    """Import modules in a process that lacks some packages and treats warnings as errors."""
    printed(sys.executable, "-W", "error", "-c", IMPORT_WITHOUT, absent, " ".join(modules))


IMPORT_WITHOUT = """
import importlib, sys
for name in sys.argv[1].split():
    sys.modules[name] = None  # what Python makes of a module that cannot be imported
for name in sys.argv[2].split():
    importlib.import_module(name)
"""
