"""The contact sheet's command reports bad input in one line, and its help loads no simulator."""

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
