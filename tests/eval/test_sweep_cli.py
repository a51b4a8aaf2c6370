"""`python -m eval.sweep`: options become grids, and bad input is one line, with nothing left behind."""

import pytest

from configs.schema import GridConfig, SweepConfig
from eval import sweep
from tests.eval.conftest import call

FAKE = ("--suite", "libero_object", "--init-ids", "0-1")


@pytest.fixture
def asked(monkeypatch) -> list[SweepConfig]:
    """What the command line would have played."""
    found: list[SweepConfig] = []
    monkeypatch.setattr(
        "eval.report.sweep.run_sweep", lambda folder, **how: found.append(folder.config()) or 0
    )
    return found


def test_options_with_several_values_are_a_grid(asked, tmp_path):
    line = "--clock fixed:0,0 fixed:50,90 --profiles h200 --mode actions unified --text-every 1,4"
    line += " --replan-steps 5 asap"
    assert call(sweep.app, *FAKE, *line.split(), "--num-envs", "4", "--output-dir", str(tmp_path)) == 0
    assert asked == [
        SweepConfig(
            suites=("libero_object",),
            init_ids=(0, 1),
            video="none",
            batch_size=2,
            grids=(
                GridConfig(
                    clock=("fixed:0,0", "fixed:50,90", "profile:h200"),
                    mode=("actions", "unified"),
                    text_every=(1, 4),
                    replan_steps=(5, "asap"),
                ),
            ),
        )
    ]


def test_an_option_replaces_what_a_preset_says_in_every_grid(asked, tmp_path):
    call(
        sweep.app, "--config", "modes", "--profiles", "h200", "--init-ids", "3", "--output-dir", str(tmp_path)
    )
    assert asked[0].init_ids == (3,)
    assert {grid.clock for grid in asked[0].grids} == {("profile:h200",)}
    assert asked[0].grids[-1].tokens_per_frame == (1, 5)


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("--clock fixed:0 fixd:0", ["unknown clock 'fixd:0'", "did you mean 'fixed:A,B'"]),
        ("--text-every 1 2 --mode isolated --clock fixed:0", ["noop generates no text"]),
        (
            "--clock measured fixed:0 --num-envs 2",
            ["--clock measured measures the latency of one robot's queries"],
        ),
        ("--clock fixed:0 fixed:9 --resume", ["nothing to resume"]),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(line, parts, tmp_path, refused, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = refused(sweep.app, *FAKE, "--policy", "noop", *line.split())
    assert [part for part in parts if part not in said] == []
    assert not list(tmp_path.glob("runs/*"))
