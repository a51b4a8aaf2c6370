"""The simulators' commands report bad input in one line, nearest name first, with exit code 2."""

import subprocess
import sys

import pytest
from cyclopts import App

from configs.cli import run_app
from sim_envs.contact_sheet import app as contact_sheet
from sim_envs.gl import choose_backend
from sim_envs.libero.rest_poses import app as rest_poses
from sim_envs.libero.verify import app as verify


def outcome(app: App, arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as stop:
        run_app(app, arguments.split())
    return stop.value.code, *capsys.readouterr()


@pytest.mark.parametrize(
    ("app", "arguments", "said"),
    [
        (verify, "file.npz --asset real", "did you mean '--assets'"),
        (verify, "", "file"),
        (rest_poses, "file.json --chek", "did you mean '--check'"),
        (rest_poses, "file.json --assets nowhere", "nowhere"),
        (contact_sheet, "", "file"),
        (contact_sheet, "sheet.png --suit droid_tabletop", "did you mean '--suite'"),
        (contact_sheet, "sheet.png --suite libero_objct", "did you mean 'libero_object'"),
        (contact_sheet, "sheet.png --suite libero_goal --assets nowhere", "nowhere"),
        (contact_sheet, "sheet.png --task-ids 5-x", "neither a number (7) nor a range (0-9)"),
        (contact_sheet, "sheet.png --task-ids 5-2", "write 2-5"),
        (contact_sheet, "sheet.png --task-ids 99", "no task of droid_tabletop is among --task-ids 99"),
    ],
)
def test_bad_input_is_one_line_on_stderr(app, arguments, said, capsys):
    code, out, err = outcome(app, arguments, capsys)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said.lower() in err.lower()


@pytest.mark.parametrize(
    ("app", "arguments"),
    [(contact_sheet, "sheet.png --suite libero_goal --assets standins"), (verify, "absent.npz")],
)
def test_an_unknown_renderer_is_one_line(app, arguments, monkeypatch, capsys):
    monkeypatch.setenv("MUJOCO_GL", "eegl")
    choose_backend.cache_clear()
    code, out, err = outcome(app, arguments, capsys)
    choose_backend.cache_clear()
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "rendering backend in MUJOCO_GL 'eegl'" in err


@pytest.mark.parametrize("app", [verify, rest_poses, contact_sheet])
def test_help_describes_the_assets_option(app, capsys):
    code, out, err = outcome(app, "--help", capsys)
    assert (code, err) == (0, "")
    assert "--assets" in out
    assert "standins" in " ".join(out.split()) or app is verify


def test_help_loads_no_simulator():
    code = (
        "import sys, sim_envs.contact_sheet, sim_envs.libero.verify; "
        "print([module for module in ('mujoco', 'robosuite', 'jax') if module in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
