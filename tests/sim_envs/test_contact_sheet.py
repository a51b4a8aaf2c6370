"""The contact sheet's command reports bad input in one line, and its help loads no simulator."""

import subprocess
import sys

import pytest

from configs.cli import run_app
from sim_envs.contact_sheet import app


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("sheet.png --suite libero_objct", "did you mean 'libero_object'"),
        ("sheet.png --suite libero_goal --assets nowhere", "nowhere"),
        ("sheet.png --task-ids 99", "no task of droid_tabletop is among --task-ids 99"),
    ],
)
def test_bad_input_is_one_line_on_stderr(arguments, said, capsys):
    with pytest.raises(SystemExit) as stop:
        run_app(app, arguments.split())
    out, err = capsys.readouterr()
    assert (stop.value.code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_help_loads_no_simulator():
    code = (
        "import sys, sim_envs.contact_sheet; "
        "print([module for module in ('mujoco', 'robosuite', 'jax') if module in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
