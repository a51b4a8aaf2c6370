"""A table has the same cells in every format; those at the end of a run fit 80 columns."""

import csv
import io
import re

import pytest

from configs.console import TextConsole
from configs.schema import RunConfig
from contracts.episode import Share
from eval.records.run_folders import Run
from eval.report.last_screen import show_last_screen
from eval.report.leaderboard import leaderboard_markdown, read_leaderboard
from eval.report.result_tables import DETAILS, MAIN, TEXTS, TEXTS_RIGHT, labelled
from eval.report.table import (
    Column,
    Table,
    differ,
    in_latex,
    in_markdown,
    percentage,
    to_csv,
    to_latex,
    to_markdown,
    to_terminal,
)
from tests.eval.factory import RunBuilder, episode, key, run_rows, scores, write_report

HOSTILE = ("<b>", "a_b _c_", "*x* [y](z)", "a|b\nc & 5 % [x](y)", "[red]x[/]", "=1+1")


def printed(table, width=80, **how):
    """The lines of a terminal of that width."""
    console = TextConsole(file=io.StringIO(), width=width)
    console.print(to_terminal(table, **how))
    return console.file.getvalue().splitlines()


def test_cells_are_text_in_every_format():
    columns = [
        Column("name", lambda row: row[0], align="left"),
        Column(heading="rate", unit="%", value=lambda rate: rate, form=".1f").of(lambda row: row[1]),
    ]
    groups = [[(text, 12.34) for text in HOSTILE], [("all", 5.0)]]
    table = Table(columns=columns, groups=groups, title="[i]t")
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
    assert "[i]t" in shown
    text = "<b> a_b _c_ \x1b[31m a|b\nc & 5 % [x](y)"
    assert in_markdown(text) == r"\<b> a_b \_c\_ ␛[31m a\|b c \& 5 % [x]\(y)"
    assert in_latex(text) == r"<b> a\_b \_c\_ ␛[31m a|b c \& 5 \% [x](y)"
    assert to_csv([{"a": 1}, {"b": None}]) == "a,b\n1,\n,\n", "records have the headings of all"


@pytest.mark.parametrize("ruled", [True, False])
def test_a_narrow_terminal_breaks_names_rather_than_numbers(ruled):
    rows = [("a_suite_of_very_many_characters", "12345.6"), ("another", "7.8")]
    shown = " ".join(printed(Table.of_cells(["suite", "ms"], rows), width=26, ruled=ruled)).split()
    assert "".join(shown).replace("─", "") == "suitemsa_suite_of_very_many_characters12345.6another7.8"
    assert "12345.6" in shown


def test_a_table_has_the_columns_that_have_something_to_show():
    columns = [
        Column("name", lambda row: row["name"]),
        Column("seconds", lambda row: row.get("seconds"), form=".1f"),
        Column("errors", lambda row: row["errors"], when=any),
        Column("seed", lambda row: row["seed"], when=differ),
    ]
    plain = {"name": "a", "errors": 0, "seed": 7}

    def records(*rows):
        return Table(columns=columns, groups=[rows]).records()

    assert records(plain, plain) == [{"name": "a"}] * 2
    assert records(plain, plain | {"seconds": 2.0, "errors": 1, "seed": 8}) == [
        {"name": "a", "seconds": "–", "errors": "0", "seed": "7"},
        {"name": "a", "seconds": "2.0", "errors": "1", "seed": "8"},
    ]
    assert [column.heading for column in Table(columns=columns, groups=[]).columns] == [
        column.heading for column in columns
    ]


def narrations(requested, delivered, *, of=100, late_s=0.94, not_graded=0):
    return scores(
        texts=of + not_graded,
        not_graded=not_graded,
        staleness_s=late_s * (of + not_graded),
        at_request={name: Share(hits=requested, of=of) for name in ("all", "f1")} if of else {},
        on_delivery={name: Share(hits=delivered, of=of) for name in ("all", "f1")} if of else {},
    )


def play(path, clock="profile:jetson-thor-oxygen-2603", *, seconds=6.1, hz=5.0, **texts):
    """The results of a run of four episodes, which took so long and queried so often."""
    said = texts or {"narration": narrations(98, 81), "memory": narrations(100, 89)}
    timed = {"simulated_s": seconds, "steps": 200, "queries": round(hz * seconds), "idle_steps": 25}
    run = RunBuilder.at(path, config={"clock": clock}).add_all("ssst", latency=12345.6, texts=said, **timed)
    return run_rows(run.folder).overall


def table_of(columns, **rows):
    return labelled(Column("run", str, align="left"), columns, list(rows.items()))


@pytest.mark.parametrize(("width", "left_out"), [(80, set()), (60, {"narration", "memory"})])
def test_a_narrow_terminal_leaves_columns_out_in_order(tmp_path, width, left_out):
    row, modes = play(tmp_path / "run", seconds=999.9), ("actions", "isolated", "shared", "parallel")
    whole = table_of([*MAIN, *TEXTS_RIGHT], **dict.fromkeys(modes, row))
    fitting = whole.fitting(width)
    lines = printed(fitting, width)
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    heads = [{column.heading for column in table.columns} for table in (whole, fitting)]
    assert heads[0] - heads[1] == {f"{task} right" for task in left_out}


def test_texts_are_graded_at_request_and_on_delivery(tmp_path):
    rows = {"a": play(tmp_path / "a"), "b": play(tmp_path / "b", memory=narrations(0, 0, of=0, not_graded=3))}
    assert table_of(TEXTS, **rows).records() == [
        {
            "run": "a",
            "narration (%), graded": "98.0 → 81.0, 400/400",
            "memory (%), graded": "100.0 → 89.0, 400/400",
            "staleness (ms)": "940",
        },
        {"run": "b", "narration (%), graded": "–", "memory (%), graded": "–", "staleness (ms)": "940"},
    ]
    assert table_of(TEXTS_RIGHT, **rows).records()[0]["narration right"] == "81 %"


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
    row = run_rows(run.folder).overall
    assert row.pc_progress == 50 + 50 * progress
    assert ("progress" in table_of(DETAILS, run=row).records()[0]) == has_column


def test_beside_a_rate_without_errors_stands_the_one_that_counts_them_as_failures(tmp_path):
    """Where there are errors: at the end of a run, in its report and in a leaderboard."""
    for name, outcomes in (("sound", "sst" * 33), ("broken", "sst" * 33 + "e")):
        run = RunBuilder.at(tmp_path / name / "run").add_all(outcomes, simulated_s=5.0)
        console = TextConsole(file=io.StringIO(), width=80)
        show_last_screen(console, [Run(config=RunConfig(), folder=run.folder)], [run_rows(run.folder)])
        board = leaderboard_markdown(read_leaderboard([tmp_path / name]))
        page = write_report([tmp_path / name], tmp_path / f"{name}_page").read_text(encoding="utf-8")
        told = [(console.file.getvalue(), "1: 66 %"), (board, "| 66.0 % |"), (page, "66.0 %")]
        for shown, with_errors in told:
            assert "66.7 %" in shown
            assert (with_errors in shown) == (name == "broken")
            assert bool(re.search(r"errors\s+as|errors =", shown)) == (name == "broken")
