"""Command lines: options, bad input as one line, exit codes, signals, and the folders that they use."""

import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Literal

import pytest
from cyclopts import App, Parameter

from configs.cli import Names, Numbers
from configs.exits import DeferredSignals, ends_at_once, jax_does_not_start
from configs.paths import temporary_folder, usable_folder
from contracts.errors import UsageError
from eval.__main__ import _COMMANDS
from eval.__main__ import app as everything
from tests.commands import execute

PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


@pytest.fixture
def outcome(command):
    """Calls a function as a command: exit code, stdout and stderr."""

    def outcome(function, *arguments):
        app = App(name="demo")
        app.default(function)
        return command(app, *arguments)

    return outcome


def test_spellings_of_a_list_are_equivalent(outcome):
    def command(*, suite: Names = ("z",), task_ids: Numbers = (), trials: int = 0):
        sys.stdout.write(f"{suite} {task_ids} {trials}")

    for names in (["--suite", "a", "b", "c"], ["--suite=a,b", "--suite", "c"], ["--suite", "a, b", "a", "c"]):
        numbers = ["--task-ids", "0-3,7", "9", "--task-ids", "2", "--trials=-7"]
        assert outcome(command, *names, *numbers)[:2] == (0, "('a', 'b', 'c') (0, 1, 2, 3, 7, 9) -7")
    assert outcome(command)[:2] == (0, "('z',) () 0")


def test_options_that_are_equally_near_are_listed_in_their_order(outcome):
    def command(*, ba: int = 0, bb: int = 0, bc: int = 0, bd: int = 0, be: int = 0):
        sys.stdout.write(f"{ba}{bb}{bc}{bd}{be}")

    _, _, said = outcome(command, "-b")
    assert "Allowed: --ba, --bb, --bc, --bd, --be." in said


def demo(
    *,
    suite: Names = ("a",),
    task_ids: Numbers = (0,),
    trials: int = 1,
    limit: Annotated[int | None, Parameter(name="--limit")] = None,
    mode: Literal["one", "two"] = "one",
):
    """The options of a command that does nothing."""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--suit", "a"], "'--suite'"),
        (["--suite", "a,,b"], "empty item"),
        (["--task-ids", "3-1"], "1-3"),
        (["--task-ids", "0-99999999999"], "100000000000 numbers; at most 100000"),
        (["--trials", "10.0"], "--trials '10.0': give a whole number"),
        (["--limit="], "--limit '': give a value, or leave the option out"),
        (["--trials", "1", "--trials", "2"], "--trials"),
        (["--mode", "tow"], "two"),
        (["stray"], "stray"),
    ],
)
def test_bad_arguments_are_one_line_on_stderr_and_exit_code_2(arguments, said, outcome):
    code, out, err = outcome(demo, *arguments)
    assert (code, out, err.count("\n"), err[:7]) == (2, "", 1, "error: ")
    assert said in err


def test_a_command_ends_with_its_exit_code_or_one_line(outcome, monkeypatch):
    assert outcome(lambda: None) == (0, "", "")
    assert outcome(lambda: 3) == (3, "", "")

    def raises(error):
        raise error

    assert outcome(lambda: raises(UsageError("no such\nthing"))) == (2, "", "error: no such thing\n")
    assert outcome(lambda: raises(KeyboardInterrupt)) == (130, "", "")
    with pytest.raises(ZeroDivisionError):  # a bug keeps its traceback
        outcome(lambda: raises(ZeroDivisionError))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, out, err = outcome(lambda: importlib.import_module("pyarrow"))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "this needs the package pyarrow, which is not installed: run uv pip install -e '.[train]'" in err


@pytest.mark.parametrize(
    "module",
    [*(module for module, _ in _COMMANDS.values()), "oxygen.tools.convert", "oxygen.tools.parity"],
)
def test_every_command_refuses_unknown_options_and_prints_help(
    module, tmp_path, monkeypatch, command, refused
):
    monkeypatch.chdir(tmp_path)
    imported = importlib.import_module(module)
    asked = imported.app if hasattr(imported, "app") else imported.main
    refused(asked, "--nonsense=1")
    code, out, _ = command(asked, "--help")
    assert code == 0
    assert "usage" in out.lower()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "shown", "hidden"),
    [
        ("libero", ("--policy", "--suite", "--mode", "--assets", "--resume"), ("--adapter", "--margin")),
        ("run", ("--policy", "--suite", "--num-envs"), ("--feedback",)),
        ("droid", ("--policy", "--video"), ("--wordings",)),
        ("sweep", ("--policy", "--clock", "--resume"), ("--margin",)),
        ("train", ("--data", "--steps", "--resume"), ("--ema",)),
        ("collect", ("--suite", "--output"), ("--variation",)),
    ],
)
def test_help_shows_what_people_need_and_the_rest_when_asked(name, shown, hidden, command, refused):
    asked = importlib.import_module(_COMMANDS[name][0]).app
    _, brief, _ = command(asked, "--help")
    assert f"oxygen-eval {name}" in brief
    assert "--help-all" in brief
    assert all(option in brief for option in shown)
    assert not any(option in brief for option in hidden)
    assert brief.count("│ --") <= 18
    near = refused(asked, f"{hidden[0]}x=1")
    assert f"did you mean '{hidden[0]}'?" in near, "suggestions know all options"
    _, whole, _ = command(asked, "--policy", "noop", "--help-all")
    assert all(option in whole for option in (*shown, *hidden))


@pytest.mark.parametrize(
    ("name", "given", "why"),
    [
        ("compare", "a b c d", "too much: c d; the command takes RUN_A RUN_B"),
        ("libero", "random", "too much: random; the command takes only options"),
        ("compare", "a", "RUN_B is missing: give it"),
        ("compare", "a b --margin x", "--margin 'x': give a number"),
    ],
)
def test_too_many_values_too_few_and_wrong_ones_are_named(name, given, why, refused):
    assert why in refused(importlib.import_module(_COMMANDS[name][0]).app, *given.split())


def test_every_command_is_called_as_oxygen_eval_and_listed(command):
    _, listed, _ = command(everything, "--help")
    for name, (module, _about) in _COMMANDS.items():
        imported = importlib.import_module(module)
        if hasattr(imported, "app"):
            assert imported.app.name[0] == f"oxygen-eval {name}"
        assert f"│ {name} " in listed


def test_a_folder_exists_or_can_be_created(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    for path in (tmp_path, tmp_path / "a" / "b", tmp_path / "link" / "a"):
        assert usable_folder(path, "--output-dir") == path
    assert list(tmp_path.iterdir()) == [tmp_path / "link"]
    (tmp_path / "file").write_text("")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    for path, why in {
        tmp_path / "file": "is not a folder",
        tmp_path / "file" / "a": "file is not a folder",
        tmp_path / "broken" / "a" / "b": "broken is a broken link",
    }.items():
        with pytest.raises(UsageError, match=f"--output-dir .*{why}; give another"):
            usable_folder(path, "--output-dir")


@pytest.mark.parametrize(
    "command",
    [
        "eval.bench --quick",
        pytest.param("eval.preflight --suite=gym_reacher --policy=noop", marks=pytest.mark.slow),
    ],
)
def test_a_missing_jax_platform_is_one_line(command, tmp_path):
    how = {"JAX_PLATFORMS": "cuda", "XDG_CACHE_HOME": str(tmp_path)}
    done = execute(sys.executable, "-m", *command.split(), **how)
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if "JAX_PLATFORMS=cuda" in line]
    assert "unset JAX_PLATFORMS" in line
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ('Invalid value "x" for JAX flag jax_default_matmul_precision', "JAX_DEFAULT_MATMUL_PRECISION=x"),
        ("invalid truth value 'x' for environment 'JAX_ENABLE_X64'", "JAX_ENABLE_X64=x"),
    ],
)
def test_a_variable_that_jax_does_not_take_is_named(monkeypatch, message, named):
    monkeypatch.setenv("JAX_DEFAULT_MATMUL_PRECISION", "x")
    monkeypatch.setenv("JAX_ENABLE_X64", "x")
    assert str(jax_does_not_start(ValueError(message))).endswith(f"correct or unset {named}")


_STARTING = """
from cyclopts import App
from configs.cli import run_app
app = App(name="demo")

@app.default
def starts():
    print("started", flush=True)
    {busy}

run_app(app, [])
"""
_TWICE = """
import os, signal
from configs.exits import DeferredSignals
with DeferredSignals():
    os.kill(os.getpid(), signal.SIGTERM)
    print("received", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print("never")
"""


@pytest.mark.parametrize(
    ("busy", "number"),
    [
        ("while True: pass", signal.SIGINT),
        ("import hashlib; hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)", signal.SIGTERM),
        ("import threading; held = threading.Lock(); held.acquire(); held.acquire()", signal.SIGINT),
    ],
)
def test_a_signal_ends_a_starting_command_at_once_and_without_a_traceback(busy, number):
    command = [sys.executable, "-c", _STARTING.format(busy=busy)]
    with subprocess.Popen(command, **PIPES) as process:
        try:
            assert process.stdout.readline() == "started\n"
            process.send_signal(number)
            assert process.wait(timeout=60) == 128 + number
            assert process.stderr.read() == ""
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_deferred_signal_raises_at_the_next_check_and_acts_as_before_while_suspended(number):
    with ends_at_once():
        before = signal.getsignal(number)
        with DeferredSignals() as interrupts:
            interrupts.check()
            with interrupts.suspended():
                assert signal.getsignal(number) == before
                assert not interrupts.entered
            assert interrupts.entered
            os.kill(os.getpid(), number)
            time.sleep(0.05)  # the thread that ends the process has had its chance
            with pytest.raises(KeyboardInterrupt), interrupts.suspended():
                pytest.fail("a signal received before is heeded first")
            with pytest.raises(KeyboardInterrupt):
                interrupts.check()
        assert signal.set_wakeup_fd(-1) >= 0


def test_a_second_signal_stops_at_once():
    done = execute(sys.executable, "-c", _TWICE)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "received\n")


_HOLDING = """
import sys
from configs.paths import temporary_folder
print(temporary_folder("oxygen-eval-test-"), flush=True)
sys.stdin.read()
"""


def test_folders_of_killed_processes_are_removed_and_those_of_others_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    start = [sys.executable, "-c", _HOLDING]
    with subprocess.Popen(start, **PIPES) as killed, subprocess.Popen(start, **PIPES) as other:
        left, held = (Path(each.stdout.readline().strip()) for each in (killed, other))
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        (left / "config.yaml").touch()
        for folder in (left, held):
            os.utime(folder, (0, 0))  # older than one whose process might still start
        young = tmp_path / "oxygen-eval-test-young"
        young.mkdir()
        mine = temporary_folder("oxygen-eval-test-")
        assert set(tmp_path.iterdir()) == {held, young, mine}
        other.communicate("")
    assert set(tmp_path.iterdir()) == {young, mine}


def test_a_command_that_crashes_says_where():
    code = "import ctypes; from configs.exits import exit_code_of; exit_code_of(lambda: ctypes.string_at(0))"
    done = execute(sys.executable, "-c", code)
    assert done.returncode == -signal.SIGSEGV
    assert done.stderr.startswith("Fatal Python error: Segmentation fault")
    assert "ctypes/__init__.py" in done.stderr
