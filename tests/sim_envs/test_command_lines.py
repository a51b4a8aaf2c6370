"""The simulators' command reports bad input in one line, nearest name first, with exit code 2."""

import subprocess
import sys

import pytest

from configs.cli import run_app
from sim_envs.contact_sheet import app
from sim_envs.gl import choose_backend


def outcome(arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as stop:
        run_app(app, arguments.split())
    return stop.value.code, *capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "file"),
        ("sheet.png --suit droid_tabletop", "did you mean '--suite'"),
        ("sheet.png --suite libero_objct", "did you mean 'libero_object'"),
        ("sheet.png --suite libero_goal --assets nowhere", "nowhere"),
        ("sheet.png --task-ids 5-x", "neither a number (7) nor a range (0-9)"),
        ("sheet.png --task-ids 5-2", "write 2-5"),
        ("sheet.png --task-ids 99", "no task of droid_tabletop is among --task-ids 99"),
    ],
)
def test_bad_input_is_one_line_on_stderr(arguments, said, capsys):
    code, out, err = outcome(arguments, capsys)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said.lower() in err.lower()


def test_an_unknown_renderer_is_one_line(monkeypatch, capsys):
    monkeypatch.setenv("MUJOCO_GL", "eegl")
    choose_backend.cache_clear()
    code, out, err = outcome("sheet.png --suite libero_goal --assets standins", capsys)
    choose_backend.cache_clear()
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "rendering backend in MUJOCO_GL 'eegl'" in err


def test_help_describes_the_options(capsys):
    code, out, err = outcome("--help", capsys)
    assert (code, err) == (0, "")
    assert all(word in " ".join(out.split()) for word in ("--assets", "standins", "droid_tabletop"))


def test_help_loads_no_simulator():
    code = (
        "import sys, sim_envs.contact_sheet; "
        "print([module for module in ('mujoco', 'robosuite', 'jax') if module in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
