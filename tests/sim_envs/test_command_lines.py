"""The simulators' commands report bad input in one line, nearest name first, with exit code 2."""

import subprocess
import sys

import pytest
from cyclopts import App

from configs.cli import run_app
from sim_envs.droid.contact_sheet import app as droid_sheet
from sim_envs.gl import choose_backend
from sim_envs.libero.contact_sheet import app as contact_sheet
from sim_envs.libero.experts.__main__ import app as experts
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
        (experts, "--init-ids 5-x", "neither a number (7) nor a range (0-9)"),
        (experts, "--init-ids 5-2", "write 2-5"),
        (experts, "--polcy noop", "did you mean '--policy'"),
        (experts, "--policy exprt", "did you mean 'expert'"),
        (experts, "--suite libero_objct", "did you mean 'libero_object'"),
        (experts, "--suite libero_goal --task-ids 12", "no task of libero_goal is among --task-ids [12]"),
        (experts, "--expert-noise much", "much"),
        (experts, "--assets nowhere", "nowhere"),
        (verify, "file.npz --asset real", "did you mean '--assets'"),
        (verify, "", "file"),
        (rest_poses, "file.json --chek", "did you mean '--check'"),
        (rest_poses, "file.json --assets nowhere", "nowhere"),
        (contact_sheet, "sheet.png --assets nowhere", "nowhere"),
        (contact_sheet, "", "file"),
        (droid_sheet, "", "file"),
        (droid_sheet, "sheet.png --suit droid_tabletop", "did you mean '--suite'"),
        (droid_sheet, "sheet.png --suite droid_tabletp", "did you mean 'droid_tabletop'"),
    ],
)
def test_bad_input_is_one_line_on_stderr(app, arguments, said, capsys):
    code, out, err = outcome(app, arguments, capsys)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said.lower() in err.lower()


@pytest.mark.parametrize(("app", "arguments"), [(experts, ""), (verify, "absent.npz")])
def test_an_unknown_renderer_is_one_line(app, arguments, monkeypatch, capsys):
    monkeypatch.setenv("MUJOCO_GL", "eegl")
    choose_backend.cache_clear()
    code, out, err = outcome(app, arguments, capsys)
    choose_backend.cache_clear()
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "rendering backend in MUJOCO_GL 'eegl'" in err


@pytest.mark.parametrize("app", [experts, verify, rest_poses, contact_sheet])
def test_help_describes_the_assets_option(app, capsys):
    code, out, err = outcome(app, "--help", capsys)
    assert (code, err) == (0, "")
    assert "--assets" in out
    assert "standins" in " ".join(out.split()) or app is verify


def test_help_of_droids_contact_sheet_names_its_suite(capsys):
    code, out, err = outcome(droid_sheet, "--help", capsys)
    assert (code, err) == (0, "")
    assert "--suite" in out
    assert "droid_tabletop" in out


def test_help_loads_no_simulator():
    code = (
        "import sys, sim_envs.libero.experts.__main__, sim_envs.libero.verify; "
        "print([module for module in ('mujoco', 'robosuite', 'jax') if module in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
