"""The cells of a sweep: every combination once, and what is equal by construction once."""

import pytest

from configs.errors import UsageError
from configs.load import check, load, names
from configs.schema import SweepConfig
from eval.rollout.plan import cells_of
from tests.eval.factory import RunBuilder


def cells(*grids, **shared):
    return cells_of(check(SweepConfig, {**shared, "grids": list(grids)}, source="the test"))


def test_cells_equal_by_construction_are_merged():
    found = cells(
        {
            "mode": ["actions", "isolated", "unified"],
            "text_every": [1, 4],
            "tokens_per_frame": [1, 5],
        },
        {"mode": ["actions"]},
        clock="fixed:50",
    )
    said = [(cell.mode, cell.text_every, cell.tokens_per_frame) for cell in found]
    assert said == [
        ("actions", None, 5),
        ("isolated", 1, 5),
        ("isolated", 4, 5),
        ("unified", 1, 1),
        ("unified", 1, 5),
        ("unified", 4, 1),
        ("unified", 4, 5),
    ]


def test_recordings_of_one_machine_are_different_clocks(tmp_path):
    measured = {"assets": {"name": "none", "digest": ""}, "clock": {"kind": "measured"}}
    runs = [RunBuilder.at(tmp_path / name, protocol={"libero_object": measured}) for name in "ab"]
    clocks = ["measured", *(f"replay:{run.path}" for run in runs)]
    assert [cell.clock for cell in cells({"clock": clocks})] == clocks


@pytest.mark.parametrize(
    ("grid", "parts"),
    [
        ({}, ["a sweep of one cell", "--clock", "--text-every"]),
        ({"clock": ["fixed:50", "fixed:50"]}, ["a sweep of one cell"]),
        ({"clock": ["fixed:50", "fixed:50,50"]}, ["'fixed:50' and 'fixed:50,50' are the same"]),
        ({"clock": [], "mode": ["isolated", "unified"]}, ["`clock` has no value"]),
        ({"clock": ["fixed:50"], "replan_steps": [5, "soon"]}, ["'soon'", "asap"]),
        (
            {"clock": ["fixed:50"], "text_every": [1, 0]},
            ["--text-every 0", "text_every is 0", "greater than 0"],
        ),
    ],
)
def test_an_invalid_grid_is_refused_in_one_line(grid, parts):
    with pytest.raises(UsageError) as refused:
        cells(grid)
    for part in parts:
        assert part in str(refused.value)


@pytest.mark.parametrize("name", names(SweepConfig))
def test_cells_of_every_preset_differ(name):
    found = cells_of(load(SweepConfig, name))
    assert len({cell.model_dump_json() for cell in found}) == len(found) > 1
    has_reference = any(cell.mode == "actions" or cell.feedback == "truth" for cell in found)
    assert has_reference or name == "memory_modes", "in which modes are compared with each other"
