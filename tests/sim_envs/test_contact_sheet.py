"""The contact sheet's command reports bad input in one line, and its help loads no simulator."""

from types import SimpleNamespace

import pytest
from PIL import Image

from configs.cli import run_app
from sim_envs.contact_sheet import app
from sim_envs.fake import FakeWorld
from sim_envs.suite import Task


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("sheet.png --suite libero_objct", "did you mean 'libero_object'"),
        ("sheet.png --task-ids 99", "no task of droid_tabletop is among --task-ids 99"),
    ],
)
def test_bad_input_is_one_line_on_stderr(arguments, said, capsys):
    with pytest.raises(SystemExit) as stop:
        run_app(app, arguments.split())
    out, err = capsys.readouterr()
    assert (stop.value.code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_tiles_of_suites_with_other_image_sizes_do_not_overlap(tmp_path, monkeypatch):
    def suite(name, *, assets):
        return SimpleNamespace(
            protocol=SimpleNamespace(settle_steps=0),
            tasks=lambda: [Task(suite=name, task_id=0, name=name, language="")],
            check=lambda tasks: None,
            open=lambda task: FakeWorld(image_size={"small": 8, "large": 64}[name]),
        )

    monkeypatch.setattr("sim_envs.contact_sheet.open_suite", suite)
    app([str(tmp_path / "sheet.png"), "--suite", "small", "large"], result_action="return_value")
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (2 * 2 * 64, 64 + 18)
