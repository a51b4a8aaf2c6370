"""A table has the same cells in every format; those at the end of a run fit 80 columns."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.console import TextConsole
from contracts.episode import Share
from eval.metrics.rows import Progress
from eval.report.result_tables import format_results, run_table, table_notes, tasks_table, variants_table
from eval.report.table import (
    Column,
    Table,
    in_latex,
    in_markdown,
    percentage,
    shortened,
    to_csv,
    to_latex,
    to_markdown,
    to_terminal,
)
from sim_envs.libero.tasks import list_tasks
from tests.eval.factory import RunBuilder, episode, key, run_rows, scores

HOSTILE = ("<b>", "a_b _c_", "*x* [y](z)", "a|b\nc & 5 %", "[red]x[/]", "=1+1")


def printed(table, width=80, **how):
    """The lines of a terminal of that width."""
    console = TextConsole(file=io.StringIO(), width=width)
    console.print(to_terminal(table, **how))
    return console.file.getvalue().splitlines()


def test_cells_are_text_in_every_format():
    columns = [
        Column(heading="name", cell=lambda row: row[0], align="left"),
        Column(heading="rate (%)", short="rate\n%", cell=lambda rate: f"{rate:.1f}").of(lambda row: row[1]),
    ]
    groups = [[(text, 12.34) for text in HOSTILE], [("all", 5.0)]]
    table = Table(columns=columns, groups=groups, names=["[b]group", ""], title="[i]t")
    shown = "\n".join(printed(table))
    markdown, latex, lines = to_markdown(table), to_latex(table), to_csv(table.records())
    for text in (each for each in HOSTILE if "\n" not in each):
        assert text in shown
    for text in HOSTILE:
        assert f"| {in_markdown(text)} | 12.3 |" in markdown
        assert f"{in_latex(text)} & 12.3 " in latex
    cells = [row["name"] for row in csv.DictReader(io.StringIO(lines))]
    assert cells == [*HOSTILE[:-1], "'=1+1", "all"], "a spreadsheet runs no formula"
    assert markdown.splitlines()[1:2] + markdown.splitlines()[-1:] == ["| :-- | --: |", "| all | 5.0 |"]
    assert latex.splitlines()[0] == r"\begin{tabular}{lr}"
    assert latex.count(r"\midrule") == 2
    assert "rate\n" not in shown
    assert all(each in shown for each in ("[i]t", "[b]group"))
    text = "<b> a_b _c_ \x1b[31m a|b\nc & 5 %"
    assert in_markdown(text) == r"\<b> a_b \_c\_ ␛\[31m a\|b c \& 5 %"
    assert in_latex(text) == r"<b> a\_b \_c\_ ␛[31m a|b c \& 5 \%"
    assert to_csv([{"a": 1}, {"b": None}]) == "a,b\n1,\n,\n", "records have the headings of all"


@pytest.mark.parametrize("ruled", [True, False])
def test_a_narrow_terminal_breaks_names_rather_than_numbers(ruled):
    rows = [("a_suite_of_very_many_characters", "12345.6"), ("another", "7.8")]
    shown = " ".join(printed(Table.of_cells(["suite", "ms"], rows), width=26, ruled=ruled)).split()
    assert "".join(shown).replace("─", "") == "suitemsa_suite_of_very_many_characters12345.6another7.8"
    assert "12345.6" in shown


@pytest.mark.parametrize("suite", ["libero_object", "libero_spatial", "libero_goal", "libero_10"])
@pytest.mark.parametrize("width", [16, 22, 30])
def test_the_tasks_of_a_suite_can_be_told_apart_in_few_characters(suite, width):
    labels = shortened([task.language for task in list_tasks(suite)], width)
    assert len(set(labels)) == 10
    assert max(map(len, labels)) <= width


def test_what_all_share_is_left_out_and_what_is_too_long_loses_its_middle():
    assert shortened(["pick up the milk now", "pick up the ketchup now"], 10) == ["…milk…", "…ketchup…"]
    soups = [f"pick up the {what} and place it in the basket" for what in ("alphabet soup", "milk")]
    assert shortened(soups, 60) == soups
    assert shortened(soups, 40) == [
        "pick up the alphabet soup and place it…",
        "pick up the milk and place it…",
    ]
    assert shortened(soups, 27) == ["pick up the alphabet soup…", "pick up the milk…"]
    assert shortened(["open the top drawer of the cabinet"], 20) == ["open the…the cabinet"]
    assert shortened(["runs/mine/checkpoints/step_0000020"], 20) == ["runs/mine/…p_0000020"]


@given(st.lists(st.text("ab ", max_size=30), max_size=5), st.integers(2, 40))
def test_any_labels_fit(labels, width):
    short = shortened(labels, width)
    assert len(short) == len(labels)
    assert all(len(label) <= width for label in short)
    if all(len(label) <= width for label in labels):
        assert short == labels


def headings(table):
    return [(column.short or column.heading).partition("\n")[0] for column in table.columns]


def narrations(requested, delivered, *, of=100, late_s=0.94, not_graded=0):
    return scores(
        texts=of + not_graded,
        not_graded=not_graded,
        staleness_s=late_s * (of + not_graded),
        at_request={name: Share(hits=requested, of=of) for name in ("all", "f1")} if of else {},
        on_delivery={name: Share(hits=delivered, of=of) for name in ("all", "f1")} if of else {},
    )


def play(path, clock, *, outcomes="ssst", seconds=6.1, hz=5.0, suites=("libero_object",), **texts):
    """A run of so many episodes per suite, which took so long and queried so often."""
    run = RunBuilder.at(path, config={"clock": clock})
    said = texts or {"narration": narrations(98, 81), "memory": narrations(100, 89)}
    timed = {"simulated_s": seconds, "steps": 200, "queries": round(hz * seconds), "held_steps": 25}
    for suite in suites:
        run.add_all(outcomes, suite=suite, latency=12345.6, texts=said, **timed)
    return run_rows(run.folder)


@pytest.mark.parametrize("suites", [("libero_object",), ("libero_object", "libero_goal")])
@pytest.mark.parametrize("clock", ["paused", "profile:jetson-thor"])
def test_tables_of_every_clock_fit_80_columns(tmp_path, clock, suites):
    modes = ("actions", "isolated", "shared", "parallel", "unified")
    results = play(tmp_path / "run", clock, suites=suites, seconds=999.9)
    tasks = printed(tasks_table("", {"a": results, "b": results}, width=80))
    assert [" ".join(line.split()) for line in tasks].count("0 do task 0 3/4 3/4") == len(suites)
    for row in (results.overall, *results.suites.values(), *results.tasks):
        vars(row).update(n_episodes=4500, n_errors=12)
    variants = printed(variants_table(dict.fromkeys(modes, results), width=80))
    for lines in (variants, printed(run_table("tiny", results, width=80))):
        assert max(map(len, lines)) <= 80
        assert "…" not in "".join(lines)
    assert all(len([line for line in variants if f" {mode} " in line]) == len(suites) for mode in modes)


def test_a_clock_that_charges_has_columns_of_its_own(tmp_path):
    variants = {
        "isolated": play(tmp_path / "a", "profile:jetson-thor", outcomes="st", seconds=9.44, hz=1.2),
        "unified": play(tmp_path / "b", "profile:jetson-thor", memory=narrations(0, 0, of=0, not_graded=3)),
    }
    table = variants_table(variants, width=80)
    assert headings(table)[4:] == ["time", "query", "held", "stale", "narr.", "mem."]
    cells = {row["run"]: list(row.values())[-6:] for row in table.records()}
    assert cells == {
        "isolated": ["9.4", "1.17", "12", "940", "98→81", "100→89"],
        "unified": ["6.1", "4.92", "12", "940", "–", "–"],
    }
    paused = variants_table({"unified": play(tmp_path / "c", "paused", outcomes="tt")}, width=80)
    assert headings(paused)[4:] == ["time", "action", "frame", "tok/s", "narr.", "mem."]
    assert list(paused.records()[0].values())[-6:] == ["–", "12346", "12346", "15", "98", "100"]


def test_columns_that_leave_no_room_for_tasks_are_left_out_in_order(tmp_path):
    results = play(tmp_path / "run", "paused", outcomes="se")
    shown = {width: set(headings(run_table("", results, width=width))) for width in (120, 76, 63)}
    assert "errors" in shown[63]
    assert [shown[120] - shown[width] for width in (76, 63)] == [{"tok/s"}, {"tok/s", "frame", "action"}]
    variants = variants_table({"actions": results, "unified": results}, width=66)
    assert {"errors", "narr.", "mem."} <= set(headings(variants))
    assert max(map(len, printed(variants, width=66))) <= 66


def test_a_long_suite_name_leaves_numbers_whole(tmp_path):
    suite = "kitchen_of_the_second_floor_with_long_name"
    runs = [play(tmp_path / name, "fixed:100,200", suites=(suite, f"{suite}_2")) for name in ("a", "b")]
    for row in (row for run in runs for row in (run.overall, *run.suites.values())):
        vars(row).update(n_episodes=99, progress=Progress(pc_progress=61.5))
    tasks = run_table("tiny", runs[0], width=80)
    for table in (tasks, variants_table(dict(zip("ab", runs, strict=True)), width=80)):
        lines = printed(table)
        assert max(map(len, lines)) <= 80
        cells = [" ".join(line.split()) for line in lines]
        assert len([line for line in cells if " 99 75.0 % 30.1–95.4 61.5 % 6.1 " in line]) >= 2
        assert all(line.endswith("98→81 100→89") for line in cells if " 75.0 % " in line)
    names = [row["task"] for row in tasks.records() if suite[:5] in row["task"]]
    assert len(set(names)) == 2, "shortened, suites still differ"


@pytest.mark.parametrize("clock", ["paused", "fixed:100,500"])
def test_notes_explain_the_clock_and_the_columns(tmp_path, clock):
    run = play(tmp_path / "run", clock)
    table = variants_table({"unified": run}, width=80)
    notes = " ".join(table_notes(table, [run, run]))
    is_paused = clock == "paused"
    assert ("Clock fixed:100,500: actions come 100 ms after the observation" in notes) != is_paused
    assert ("action, frame: median" in notes) == is_paused
    assert ("the same texts are compared below" in notes) == is_paused, "only then texts are paired"
    assert "time: median simulated seconds to success" in notes
    timeless = run_rows(RunBuilder.at(tmp_path / "timeless").add_all("st").folder)
    table = run_table("", timeless, width=80)
    assert not {"time", "errors"} & set(headings(table))
    assert "simulated" not in " ".join(table_notes(table, [timeless]))


def test_a_line_says_how_many_texts_were_graded_and_how_late_they_were(tmp_path):
    texts = {"narration": narrations(4, 3, of=5)}
    texts["memory"] = narrations(1, 1, of=1, late_s=0.0, not_graded=1)
    narration, memory = format_results(play(tmp_path / "run", "measured", outcomes="s", **texts).overall)
    assert narration == "narration: 5 of 5 texts graded, delivered 940 ms (simulated) after their requests."
    assert memory.startswith("memory: 1 of 2 texts graded, delivered at once; unreadable texts are not ")


@pytest.mark.parametrize(
    ("value", "decimals", "shown"),
    [
        (100 * 1999 / 2000, 1, "99.9 %"),
        (100.0, 1, "100.0 %"),
        (99.6, 0, "99 %"),
        (0.02, 1, "0.1 %"),
        (0, 0, "0 %"),
    ],
)
def test_a_percentage_is_0_or_100_only_if_it_is(value, decimals, shown):
    assert percentage(value, decimals, " %") == shown


@pytest.mark.parametrize(("progress", "has_column"), [(0.5, True), (0.0, False)])
def test_progress_has_a_column_where_it_is_more_than_success(tmp_path, progress, has_column):
    run = RunBuilder.at(tmp_path / "run").add(episode(key(), progress=1.0))
    run.add(episode(key(1), "timeout", progress=progress))
    results = run_rows(run.folder)
    assert results.overall.progress.pc_progress == 50 + 50 * progress
    assert ("progr." in headings(run_table("", results, width=80))) == has_column


def test_instructions_are_whole_where_there_is_room(tmp_path):
    run = RunBuilder.at(tmp_path / "run")
    for task, what in enumerate(("milk", "juice")):
        words = f"pick up the {what} and place it in the basket"
        run.add(episode(key(0, task), instruction=words, language=words, tokens=0))
    results = run_rows(run.folder)
    table = tasks_table("", {"mine": results, "noop": results}, width=80)
    assert "pick up the juice and place it in the basket" in "".join(printed(table))
    (row, *_) = (line for line in printed(run_table("", results, width=66)) if "milk" in line)
    assert "pick up the milk" in row, "what all share is left out only as far as needed"
    assert len(row.rstrip()) <= 66
