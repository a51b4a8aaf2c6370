"""An evaluation ends with a table, a sentence and where the rest is, in at most 24 lines of 80 columns."""

import dataclasses
import io

import pytest

from configs.console import TextConsole
from configs.schema import RunConfig
from contracts.episode import MotionQuality, RequestCounts, Share
from eval.metrics.results_file import results_of
from eval.records.reader import RunRecords
from eval.records.run_folders import Run
from eval.report.last_screen import best_video, show_last_screen
from tests.eval.factory import RunBuilder, episode, key, run_rows, scores


def right(hits, *, of=20, **changes):
    share = {name: Share(hits=hits, of=of) for name in ("all", "f1")}
    return scores(texts=of, at_request=share, on_delivery=share, **changes)


def record(
    folder, name, outcomes="s" * 9 + "t", *, seconds=6.0, texts=(), suites=("libero_object",), **about
):
    """A run of so many seconds per episode, and its configuration."""
    config = {"clock": "profile:jetson-thor-roofline", **about.pop("config", {})}
    run = RunBuilder.at(folder / name, **{"config": config, **about})
    timed = {"simulated_s": seconds, "steps": 120, "queries": 40, "video": "videos/task00_ep7_success.mp4"}
    for suite in suites:
        run.add_all(outcomes, suite=suite, texts={task: right(9) for task in texts}, **timed)
    return Run(config=RunConfig(suites=suites, mode=about.get("mode", "unified")), folder=run.folder)


def printed(*runs, width=80, **how):
    console = TextConsole(file=io.StringIO(), width=width)
    show_last_screen(console, runs, [run_rows(run.folder) for run in runs], **how)
    return console.file.getvalue()


def rows_of(screen, width=80):
    """The lines of a terminal of that width, which breaks longer ones."""
    return [line[at : at + width] for line in screen.splitlines() for at in range(0, len(line) or 1, width)]


TEXTS = ("narration", "memory", "textual_memory")
MODES = ("isolated", "shared", "parallel", "unified")


@pytest.mark.parametrize("modes", [MODES[:1], MODES[:2], MODES], ids=len)
@pytest.mark.parametrize("outcomes", ["s" * 9 + "t", "s" * 5 + "etiit"], ids=["no error", "errors"])
def test_it_has_at_most_24_lines_with_texts_and_a_clock(modes, outcomes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [
        record(tmp_path / "runs", f"20261128-205158-tiny-{mode}", outcomes, mode=mode, texts=TEXTS)
        for mode in modes
    ]
    screen = printed(*runs, report=True)
    assert len(rows_of(screen)) <= 24
    for word in ("report   runs/", "video    runs/", "records  runs/", "queries", "narration"):
        assert screen.count(word) == 1
    for word in ("non-inferior", "jerk", "restricted", "McNemar", "Clock"):
        assert word not in screen


def test_one_run_begins_with_its_success_rate(tmp_path):
    first, *lines = printed(record(tmp_path, "a"), report=False).strip().splitlines()
    assert first == "tiny solved 90 % of 10 episodes (95 % interval 60 to 98 %)."
    assert ["tiny", "9/10", "90.0", "%", "59.6–98.2", "6.0", "6.67"] in [line.split() for line in lines]
    assert "report" not in "".join(lines)


def test_one_run_of_a_few_suites_has_a_row_for_each(tmp_path):
    suites = ("libero_object", "libero_goal")
    screen = printed(record(tmp_path, "a", suites=suites), report=False)
    cells = [line.split()[:3] for line in screen.splitlines()]
    for row in (
        ["libero_object", "9/10", "90.0"],
        ["libero_goal", "9/10", "90.0"],
        ["all", "suites", "18/20"],
    ):
        assert row in cells


def test_several_runs_end_with_the_conclusion(tmp_path):
    a, b = (record(tmp_path, m, mode=m, seconds=s) for m, s in (("isolated", 6.0), ("unified", 5.1)))
    words = " ".join(printed(a, b, report=False).split())
    assert words.startswith("tiny on libero_object ")
    assert "unified reached the goal in 0.85 of the time in the 9 episodes that both solved; 10 epi" in words
    assert f"video {b.folder.path}/videos/task00_ep7_success.mp4 unified, success in 120 steps" in words


def test_errors_are_counted_and_the_first_is_quoted(tmp_path):
    runs = [record(tmp_path, m, "sei", mode=m) for m in ("isolated", "unified")]
    for shown, first in ((runs[:1], ""), (runs, "isolated, ")):
        words = " ".join(printed(*shown, report=False).split())
        count, invalid = ("1 error", "1 of 3") if len(shown) == 1 else ("2 errors", "2 of 6")
        assert (
            f"{count}, the first in {first}libero_object.0.1.7: ValueError: broken `oxygen-eval report`"
            in words
        )
        assert "The report has the tracebacks; " in printed(*shown, report=True)
        assert f"{invalid} episodes ended with invalid actions" in words
    none = [record(tmp_path, m, o, mode=m) for m, o in (("shared", "se"), ("parallel", "es"))]
    words = " ".join(printed(*none, report=False).split())
    assert "No verdict: no two runs can be compared." in words
    assert "parallel is not compared with shared: " in words


@pytest.mark.parametrize(
    ("outcomes", "clipped", "motion", "sign"),
    [
        ("ssstt", 61, {}, "in 51 % of its control steps, actions were clipped to the limits. Check"),
        ("ssstt", 60, {}, None),
        ("ttttt", 0, {"gripper_toggles": 0}, "its gripper never changed in 5 episodes. Check"),
        ("ttttt", 0, {"gripper_toggles": 0, "path_length_m": 0.012}, "; its arm moved at most 1.2 cm in an"),
        ("ttttte", 0, {"gripper_toggles": 2, "path_length_m": 0.3}, None),
        ("tttts", 0, {"gripper_toggles": 0, "path_length_m": 0.0}, None),
        ("tttt", 0, {"gripper_toggles": 0, "path_length_m": 0.0}, None),
        ("ttttt", 0, {}, None),
    ],
)
def test_signs_that_actions_are_not_those_of_the_robot_are_told(outcomes, clipped, motion, sign, tmp_path):
    run = RunBuilder.at(tmp_path / "a")
    run.add_all(outcomes, steps=120, clipped_steps=clipped, motion=MotionQuality(**motion))
    screen = " ".join(printed(Run(config=RunConfig(), folder=run.folder), report=False).split())
    assert ("Check what its actions mean" in screen) == (sign is not None)
    assert sign is None or sign in screen


@pytest.mark.parametrize("width", [20, 40, 60])
def test_a_narrow_terminal_has_fewer_columns(width, tmp_path):
    runs = [record(tmp_path, mode, mode=mode, texts=TEXTS) for mode in ("isolated", "unified")]
    table = printed(*runs, report=False, width=width).partition("unified ")[0]
    assert max(map(len, table.splitlines())) <= width
    assert "9/10" in table
    assert ("queries" in table) == (width == 60)


def test_details_are_tasks_latency_texts_and_whole_comparisons(tmp_path):
    runs = [record(tmp_path, mode, mode=mode, texts=TEXTS) for mode in ("isolated", "unified")]
    words = " ".join(printed(*runs, verbose=True).split())
    for word in ("do task 0 9/10 9/10", "45.0 → 45.0, 200/200", "non-inferior"):
        assert word in words
    assert words.count("unified is non-inferior to isolated in restricted mean time") == 1
    assert "do task 0" in printed(runs[0], verbose=True)


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        ({"outcome": "timeout", "requests": RequestCounts(finished=3)}, {}),
        ({"outcome": "timeout", "progress": 0.2}, {"outcome": "timeout", "progress": 0.5}),
        ({"requests": RequestCounts(finished=3)}, {"requests": RequestCounts(finished=8)}),
        ({"steps": 90}, {"steps": 80}),
        ({"video": None}, {"outcome": "timeout"}),
        ({"outcome": "error"}, {"outcome": "timeout"}),
    ],
)
def test_the_best_video_is_solved_then_has_most_texts_and_is_the_shortest(tmp_path, worse, better):
    run = RunBuilder.at(tmp_path / "run")
    assert best_video(RunRecords(run.folder)) is None
    for number, changes in enumerate((worse, better)):
        run.add(episode(key(number), **{"video": f"videos/{number}.mp4", **changes}))
    video, why = best_video(RunRecords(run.folder))
    assert video == run.path / "videos/1.mp4"
    assert why.endswith("do task 0")


KINDS = ("Camera Viewpoints", "Sensor Noise", "Objects Layout", "Light Conditions", "Background Textures")
KINDS += ("Language Instructions", "Robot Initial States")


def test_a_run_of_several_kinds_of_tasks_has_a_row_for_each_and_the_pooled_total(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = record(tmp_path, "a", "", suites=())
    for number, category in enumerate(KINDS):
        for task_id in range(number + 1):
            at = key(task_id=10 * number + task_id, suite="plus")
            ended = episode(at, "success" if task_id == 0 else "timeout", category=category)
            RunBuilder(run.folder).add(dataclasses.replace(ended, difficulty=1 + task_id % 5))
    screen = printed(run, report=True)
    cells = [" ".join(line.split()) for line in screen.splitlines()]
    assert any(line.startswith("Camera Viewpoints 1/1 100.0 % 20.7–100.0") for line in cells)
    assert any(line.startswith("Sensor Noise 1/2 50.0 % 9.5–90.5") for line in cells)
    assert any(line.startswith("difficulty 2 0/7 0.0 %") for line in cells), "of all categories"
    assert any(line.startswith("all tasks 7/28 25.0 %") for line in cells), "pooled, not the mean of kinds"
    page = (tmp_path / "a/report/index.html").read_text(encoding="utf-8")
    assert "Table: success per kind of task" in page
    results = results_of(run_rows(run.folder))
    assert results["per_kind"]["Sensor Noise"]["n_episodes"] == 2
    assert "per_kind" not in results_of(run_rows(record(tmp_path, "b").folder))
