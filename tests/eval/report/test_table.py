"""A table has the same cells in every format, and text that means nothing but itself in any of them."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.console import TextConsole
from eval.report.table import (
    Column,
    Table,
    in_latex,
    in_markdown,
    shortened,
    to_csv,
    to_latex,
    to_markdown,
    to_terminal,
)
from sim_envs.libero.tasks import list_tasks

HOSTILE = ("<b>", "a_b _c_", "*x* [y](z)", "a|b\nc & 5 %", "[red]x[/]", "=1+1")


@pytest.fixture
def table():
    columns = [
        Column(heading="name", cell=lambda row: row[0], align="left"),
        Column(heading="rate (%)", short="rate\n%", cell=lambda rate: f"{rate:.1f}").of(lambda row: row[1]),
    ]
    groups = [[(text, 12.34) for text in HOSTILE], [("all", 5.0)]]
    return Table(columns=columns, groups=groups, names=["[b]group", ""], title="[i]t")


def test_cells_are_text_in_every_format(table):
    console = TextConsole(file=io.StringIO(), width=80)
    console.print(to_terminal(table))
    shown = console.file.getvalue()
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


@pytest.mark.parametrize("ruled", [True, False])
def test_a_narrow_terminal_breaks_names_rather_than_numbers(ruled):
    rows = [("a_suite_of_very_many_characters", "12345.6"), ("another", "7.8")]
    console = TextConsole(file=io.StringIO(), width=26)
    console.print(to_terminal(Table.of_cells(["suite", "ms"], rows), ruled=ruled))
    shown = console.file.getvalue().split()
    assert "".join(shown).replace("─", "") == "suitemsa_suite_of_very_many_characters12345.6another7.8"
    assert "12345.6" in shown


def test_text_has_no_meaning_in_markdown_and_latex():
    text = "<b> a_b _c_ \x1b[31m a|b\nc & 5 %"
    assert in_markdown(text) == r"\<b> a_b \_c\_ ␛\[31m a\|b c \& 5 %"
    assert in_latex(text) == r"<b> a\_b \_c\_ ␛[31m a|b c \& 5 \%"
    assert to_csv([{"a": 1}, {"b": None}]) == "a,b\n1,\n,\n", "records have the headings of all"


@pytest.mark.parametrize("suite", ["libero_object", "libero_spatial", "libero_goal", "libero_10"])
@pytest.mark.parametrize("width", [16, 22, 30])
def test_the_tasks_of_a_suite_can_be_told_apart_in_few_characters(suite, width):
    labels = shortened([task.language for task in list_tasks(suite)], width)
    assert len(set(labels)) == 10
    assert max(map(len, labels)) <= width


def test_what_all_share_is_left_out_and_what_is_too_long_loses_its_middle():
    assert shortened(["pick up the milk now", "pick up the ketchup now"], 10) == ["…milk…", "…ketchup…"]
    assert shortened(["open the top drawer of the cabinet"], 20) == ["open the…the cabinet"]


@given(st.lists(st.text("ab ", max_size=30), max_size=5), st.integers(2, 40))
def test_any_labels_fit(labels, width):
    short = shortened(labels, width)
    assert len(short) == len(labels)
    assert all(len(label) <= width for label in short)
    if all(len(label) <= width for label in labels):
        assert short == labels
