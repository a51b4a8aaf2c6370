"""A sweep: its cells, its record, what is compared with what, resuming and its page."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest

from configs.errors import check
from configs.load import load, names
from configs.schema import GridConfig, SweepConfig
from contracts.errors import UsageError
from contracts.prompt import PromptField
from eval import sweep
from eval.merge import merge_runs
from eval.metrics.sweep_rows import read_sweep
from eval.monitors.console import SweepConsole
from eval.records.run_folders import SweepFolder, find_unfinished_sweep, new_sweep
from eval.report.__main__ import app
from eval.report.figures import Chart, Line
from eval.report.pages.site import chart_group
from eval.report.sweep import conclude, show_sweep
from eval.report.sweep_plots import write_sweep_page
from eval.rollout import merging
from eval.rollout import sweep as playing
from eval.rollout.executors import executor
from eval.rollout.plan import cells_of
from tests.commands import call
from tests.eval.conftest import acting
from tests.eval.doubles import opened
from tests.eval.factory import RunBuilder, run_rows, write_report


def run_sweep(folder, **how):
    return playing.run_sweep(folder, monitor=SweepConsole, **how)


def merge_sweeps(shards, output_dir):
    folder, results = merging.merge_sweeps(shards, output_dir)
    conclude(folder, results)
    return folder


def cells(*grids, **shared):
    return cells_of(check(SweepConfig, {**shared, "grids": list(grids)}, source="the test"))


def test_cells_equal_by_construction_are_merged():
    grid = {"mode": ["actions", "isolated", "unified"], "text_every": [1, 4], "tokens_per_frame": [1, 5]}
    found = cells(grid, {"mode": ["actions"]}, clock="fixed:50")
    assert [(cell.mode, cell.text_every, cell.tokens_per_frame) for cell in found] == [
        ("actions", None, 5),
        *(("isolated", every, 5) for every in (1, 4)),
        *(("unified", every, tokens) for every in (1, 4) for tokens in (1, 5)),
    ]


def test_recordings_of_one_machine_are_different_clocks(tmp_path):
    measured = {"assets": {"name": "none", "digest": ""}, "clock": {"kind": "measured"}}
    runs = [RunBuilder.at(tmp_path / name, protocol={"libero_object": measured}) for name in "ab"]
    clocks = ["measured", *(f"replay:{run.path}" for run in runs)]
    assert [str(cell.clock) for cell in cells({"clock": clocks})] == clocks


@pytest.mark.parametrize(
    ("grid", "parts"),
    [
        ({}, ["a sweep of one cell", "--clock", "--text-every"]),
        ({"clock": ["fixed:50", "fixed:50"]}, ["a sweep of one cell"]),
        ({"clock": ["fixed:50", "fixed:50,50"]}, ["a sweep of one cell"]),
        ({"clock": [], "mode": ["isolated", "unified"]}, ["`clock` has no value"]),
        ({"clock": ["fixed:50"], "replan_steps": [5, "soon"]}, ["'soon'", "a number (7)"]),
        ({"clock": ["fixed:50"], "text_every": [1, 0]}, ["--text-every 0", "text_every is 0"]),
    ],
)
def test_an_invalid_grid_is_refused_in_one_line(grid, parts):
    with pytest.raises(UsageError) as refused:
        cells(grid)
    assert [part for part in parts if part not in str(refused.value)] == []


@pytest.mark.parametrize("name", names(SweepConfig))
def test_cells_of_every_preset_differ(name):
    found = cells_of(load(SweepConfig, name))
    assert len({cell.model_dump_json() for cell in found}) == len(found) > 1
    has_reference = any(cell.mode == "actions" or cell.feedback == "truth" for cell in found)
    # Where each cell's own texts act, none plays without.
    assert has_reference or all(cell.feedback == "own" for cell in found)


GRID = {
    "clock": ["fixed:50,50", "fixed:50,200"],
    "mode": ["actions", "isolated"],
    "text_every": [1, 2],
    "while_waiting": ["continue", "hold"],
}
FEW = {"suites": ("libero_object",), "task_ids": (0,), "init_ids": (0, 1), "max_steps": 20, "video": "none"}
ASKED = SweepConfig(**FEW, language_tasks=("narration",), grids=[GRID])
CELLS = 2 * (2 + 4)
SMALL = ASKED.model_copy(update={"grids": (GridConfig(clock=["fixed:50,50"], mode=["actions", "isolated"]),)})


def swept(output_dir, config=SMALL, **changes) -> SweepFolder:
    """A sweep that was played."""
    folder = new_sweep(output_dir, config.model_copy(update=changes))
    assert run_sweep(folder) == 0
    return folder


def timeless(folder: SweepFolder) -> list[dict]:
    """The record without names and times of day, and without what this machine took."""
    names = {row["run"]: f"run {place}" for place, row in enumerate(folder.read()["cells"])}
    cells = json.dumps(folder.read()["cells"])
    for name, other in sorted(names.items(), key=lambda pair: -len(pair[0])):
        cells = cells.replace(f'"{name}"', f'"{other}"')
    return json.loads(cells)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> SweepFolder:
    with pytest.MonkeyPatch.context() as patch:
        fake = acting(patch)
        folder = swept(tmp_path_factory.mktemp("whole"), ASKED)
    assert len(fake.episodes) == CELLS * 2
    return folder


@pytest.fixture
def finished(whole, tmp_path) -> SweepFolder:
    """A copy, to be damaged."""
    return SweepFolder(shutil.copytree(whole.path, tmp_path / "finished" / whole.path.name))


def test_a_sweep_leaves_each_cell_in_its_record_table_page_and_figures(whole, capsys, monkeypatch):
    record = whole.read()
    assert (record["status"], len(record["cells"])) == ("complete", CELLS)
    assert record["varied"] == ["clock", "mode", "text_every", "while_waiting"]
    assert {row["charged_ms"]["busy"] for row in record["cells"]} == {50.0, 200.0}
    monkeypatch.setenv("COLUMNS", "80")
    show_sweep(whole, read_sweep(whole))
    printed = capsys.readouterr().out
    table = [line for line in printed.splitlines() if re.match(r" \w+ .*\d/2 ", line)]
    assert len(table) == CELLS
    assert max(map(len, table)) <= 80
    assert "fixed:50,200" in printed
    assert "≥ non-inferior, ? inconclusive, < worse" in " ".join(printed.split())
    page, cells = (whole.path / "report" / "index.html").read_text(), record["cells"]
    assert page.count('class="whisker"') == CELLS
    for row in cells:
        assert row["run"] in page
        assert f"{row['n_success']} of {row['n_episodes']}, " in page
    judged = [row["success"] for row in cells if row["success"]]
    verdicts = ["identical" if each["identical"] else each["verdict"] for each in judged]
    assert "identical" in verdicts
    assert sum(page.count(f">{verdict}</td>") for verdict in set(verdicts)) == 3 * len(verdicts)


def test_a_cell_is_held_against_actions_with_the_same_schedule_under_the_same_clock(whole):
    rows = {row["run"]: row for row in whole.read()["cells"]}
    for row in rows.values():
        if row["options"]["mode"] == "actions":
            assert row["against"] is row["success"] is row["time"] is None
        else:
            other, same = rows[row["against"]]["options"], ("clock", "while_waiting")
            assert other["mode"] == "actions"
            assert [other[axis] for axis in same] == [row["options"][axis] for axis in same]
            assert row["success"]["difference"] == 0


def test_actions_with_another_overlap_are_held_against_skip_with_the_same_schedule(tmp_path, policy):
    grid = GridConfig(clock=["fixed:50,50"], mode=["actions"], replan_steps=[2, 5], overlap=["skip", "blend"])
    folder = swept(tmp_path, ASKED, grids=(grid,))
    rows = {row["run"]: row for row in folder.read()["cells"]}
    assert len(rows) == 4
    for row in rows.values():
        if row["options"]["overlap"] == "skip":
            assert row["against"] is row["success"] is None
        else:
            assert rows[row["against"]]["options"] == {**row["options"], "overlap": "skip"}
            assert row["success"]["difference"] == 0


def test_texts_of_tasks_that_are_not_graded_count_too(finished):
    runs = [run.folder for run in finished.runs()]
    for run in runs:
        lines = [json.loads(line) for line in run.episodes_path.read_text().splitlines()]
        told = {"texts": {}, "requests": {"requested": 3, "finished": 2}}
        run.episodes_path.write_text("".join(f"{json.dumps({**line, **told})}\n" for line in lines))
    record = conclude(finished, [run_rows(run) for run in runs])
    rates = {round(cell.texts_per_simulated_s, 6) for cell in record.cells}
    assert rates == {round(2 / 0.35, 6)}, "two texts in 7 steps at 20 Hz"


@pytest.mark.parametrize("change", [0.0, 0.01])
def test_a_cell_is_identical_only_if_its_robot_moved_alike(tmp_path, policy, change):
    """All episodes time out, so counts are equal anyway; records without motion do not suffice then."""
    policy.actions = change * np.arange(70.0).reshape(10, 7)
    grid = GridConfig(clock=["fixed:100,100"], mode=["actions"], replan_steps=[2], overlap=["skip", "blend"])
    folder = swept(tmp_path, ASKED, max_steps=6, grids=(grid,))
    runs = [run.folder for run in folder.runs()]

    def is_identical() -> bool:
        record = conclude(folder, [run_rows(run) for run in runs])
        return record.cells[1].success.identical

    assert is_identical() == (change == 0.0)
    for run in runs:
        lines = [json.loads(line) for line in run.episodes_path.read_text().splitlines()]
        run.episodes_path.write_text("".join(f"{json.dumps({**line, 'motion': {}})}\n" for line in lines))
    assert not is_identical()


def test_the_order_of_records_changes_no_number(tmp_path, policy):
    folder = swept(tmp_path, init_ids=tuple(range(7)))
    runs = [run.folder for run in folder.runs()]

    def cells(order: int):
        for place, run in enumerate(runs):
            lines = sorted(map(json.loads, run.episodes_path.read_text().splitlines()), key=str)
            seconds = [{**line, "simulated_s": 1.0 + line["key"]["init_id"] ** (1 + place)} for line in lines]
            run.episodes_path.write_text("".join(f"{json.dumps(line)}\n" for line in seconds[::order]))
        return conclude(folder, [run_rows(run) for run in runs]).cells

    assert cells(1) == cells(-1)


def test_texts_in_prompts_have_an_age_by_default(tmp_path, policy, monkeypatch):
    fed = {"narration": (PromptField(field="memory", format="Memory: {text}"),)}
    loaded = dataclasses.replace(opened(policy), fields_by_task=fed)
    monkeypatch.setattr(executor, "open_policies", lambda _, variants, **__: [loaded] * len(variants))
    grid = GridConfig(mode=["actions", "isolated"], replan_steps=[1])  # several queries, the first without
    folder = swept(tmp_path, ASKED, grids=(grid,))
    assert all(row["prompt_age_steps"] > 0 for row in folder.read()["cells"])


def test_interrupted_and_resumed_it_equals_one_that_was_not(tmp_path, policy):
    uninterrupted, folder = swept(tmp_path / "once"), new_sweep(tmp_path / "again", SMALL)
    policy.interrupted_at = policy.queries + 4
    with pytest.raises(KeyboardInterrupt):
        run_sweep(folder)
    assert folder.read()["status"] == "running"
    played = len(policy.episodes)
    found = find_unfinished_sweep(tmp_path / "again", {"max_steps": 20})
    assert found == folder
    run_sweep(found)
    assert len(policy.episodes) - played == 2
    assert timeless(folder) == timeless(uninterrupted)
    page = rf"is complete \(its page: oxygen-eval report \S*{folder.path.name}\); start another without"
    with pytest.raises(UsageError, match=page):
        find_unfinished_sweep(tmp_path / "again", {})
    with pytest.raises(UsageError, match="no unfinished sweep in"):
        find_unfinished_sweep(tmp_path / "again", {"max_steps": 21})


def test_a_sweep_with_other_axes_is_not_resumed(tmp_path, refused):
    new_sweep(tmp_path, SMALL)
    file = tmp_path / "mine.yaml"
    file.write_text("clock: [fixed:30, fixed:40]")
    said = refused(sweep.app, "--config", file, "--output-dir", tmp_path, "--resume")
    assert "no unfinished sweep in" in said


def test_shards_joined_are_the_sweep_that_was_not_divided(tmp_path, policy):
    config = SMALL.model_copy(update={"init_ids": tuple(range(6))})
    whole = swept(tmp_path / "whole", config)
    shards = [
        swept(tmp_path / "2", config, shard="2/2"),
        new_sweep(tmp_path / "1", config.model_copy(update={"shard": "1/2"})),
    ]
    with pytest.raises(UsageError, match="the sweep is not complete"):
        merge_sweeps(shards, tmp_path / "joined")
    run_sweep(shards[1])
    joined = merge_sweeps(shards, tmp_path / "joined")
    assert timeless(joined) == timeless(whole)
    assert joined.read_finished()["config"] == whole.read()["config"]
    with pytest.raises(UsageError, match="is the only run of its mode"):
        merge_sweeps([whole], tmp_path / "refused")
    other = swept(tmp_path, config, max_steps=19, shard="2/2")
    with pytest.raises(UsageError, match="they differ in more than --shard, --init-ids and"):
        merge_sweeps([shards[1], other], tmp_path / "refused")
    with pytest.raises(UsageError, match="some of these folders are sweeps and some are runs"):
        merge_runs(joined.path, joined.runs()[0].folder.path)
    assert not (tmp_path / "refused").exists()


def test_a_kill_before_the_first_run_began_leaves_a_sweep_that_resume_begins(tmp_path, policy):
    folder = new_sweep(tmp_path, SMALL)
    (folder.path / ".20260101-000000-tiny-actions.partial").mkdir()
    (folder.path / "sweep.3.partial").touch()
    run_sweep(find_unfinished_sweep(tmp_path, {}))
    assert folder.read()["status"] == "complete"
    assert not list(folder.path.glob("*.partial"))


@pytest.mark.parametrize(
    "spoil",
    [
        shutil.rmtree,
        lambda cell: cell.rename(cell.with_name("renamed")),
        lambda cell: (cell / "manifest.json").write_text("{"),
    ],
)
def test_a_sweep_that_lacks_a_cell_is_not_resumed_and_keeps_the_others(tmp_path, policy, spoil):
    folder = new_sweep(tmp_path, SMALL)
    policy.interrupted_at = 6
    with pytest.raises(KeyboardInterrupt):
        run_sweep(folder)
    kept, lost = (run.folder for run in folder.runs())
    spoil(lost.path)
    record, episodes = folder.read(), kept.episodes_path.read_bytes()
    with pytest.raises(UsageError, match=lost.run_id):
        run_sweep(find_unfinished_sweep(tmp_path, {}))
    folder.drop_unless_begun()
    assert (folder.read(), kept.episodes_path.read_bytes()) == (record, episodes)
    folder.write(SMALL, status="complete")
    with pytest.raises(UsageError, match=lost.run_id):
        merge_sweeps([folder, folder], tmp_path / "joined")


def test_what_is_refused_leaves_no_folder_and_errors_are_played_again(tmp_path, policy):
    with pytest.raises(UsageError, match="has no task 77"):
        run_sweep(new_sweep(tmp_path, SMALL.model_copy(update={"task_ids": (77,)})))
    assert list(tmp_path.iterdir()) == []
    policy.fails_at = 0
    folder = new_sweep(tmp_path, SMALL)
    assert run_sweep(folder, max_errors=1000) == 1
    assert folder.read()["status"] == "errors"
    policy.fails_at = None
    assert run_sweep(find_unfinished_sweep(tmp_path, {})) == 0
    assert folder.read()["status"] == "complete"


def test_a_cell_links_to_its_report_if_it_has_one(finished, tmp_path):
    run = finished.runs()[0].folder.path
    elsewhere = tmp_path / "elsewhere"
    assert 'href="../' not in write_sweep_page(finished, read_sweep(finished), elsewhere).read_text()
    write_report([run], run / "report")
    page = write_sweep_page(finished, read_sweep(finished), elsewhere)
    (link,) = re.findall(r'href="(\.\./[^"]+)"', page.read_text())
    assert (page.parent / link).resolve() == (run / "report" / "index.html").resolve()


def test_eval_report_makes_it_again(finished, capsys, refused):
    page = finished.path / "report" / "index.html"
    before = page.read_text()
    page.unlink()
    assert call(app, finished.path) == 0
    assert capsys.readouterr().out == f"{page}\n"
    assert page.read_text() == before
    finished.write(finished.config(), status="running")
    assert "complete it with --resume" in refused(app, finished.path)


def test_points_at_one_place_are_all_kept():
    points = [(x, y, y - 1, y + 1) for x, y in ((1.0, 5.0), (1.0, 6.0), (2.0, 7.0))]
    lines = [Line(label="a", colour="#000", points=points)]
    (group,) = chart_group("some", Chart(x="x", y="y", lines=lines))
    (chart,) = group["charts"]
    (line,) = chart["series"]
    assert line["x"] == pytest.approx([1.0, 1.0, 2.0], abs=1e-4)
    assert len(set(line["x"])) == 3
    assert (line["y"], chart["range"]) == ([5.0, 6.0, 7.0], [0, pytest.approx(8.8)])
    empty = Chart(x="x", y="y", lines=[Line(label="a", colour="#000", points=[])])
    assert chart_group("nothing", empty, None) == []
