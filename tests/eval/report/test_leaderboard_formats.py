"""A leaderboard's page and files say the same, rank no more than the data allow, and show text as text."""

import csv
import json

import pytest

from eval.report.leaderboard_formats import write_leaderboard
from eval.report.leaderboard_tables import Rank, read_leaderboard
from eval.report.plain_text import in_latex, in_markdown
from tests.eval.factory import RunBuilder
from tests.eval.report.boards import leaderboard, tables


@pytest.fixture
def board(tmp_path):
    """Three runs of which only the last is told apart, a run of another suite, and one that only erred."""
    for name, outcomes in {"a": "s" * 40, "b": "s" * 39 + "t", "c": "s" * 10 + "t" * 30}.items():
        policy = {"c": "noop"}.get(name, name)
        RunBuilder.at(tmp_path / "runs" / name, policy=policy).add_all(outcomes)
    RunBuilder.at(tmp_path / "runs" / "goal").add_all("st", suite="libero_goal")
    RunBuilder.at(tmp_path / "runs" / "broken", policy="<b>").add_all("ee")
    write_leaderboard(read_leaderboard([tmp_path / "runs"]), tmp_path / "board")
    return tmp_path / "board"


def test_ranks_are_as_wide_as_the_data_leave_them(board):
    rows = json.loads((board / "leaderboard.json").read_text())["suites"]["libero_object"][0]["rows"]
    found = {row["run"]["run_id"]: row["possible_ranks"] for row in rows}
    assert found == {"a": [1, 2], "b": [1, 2], "c": [3, 3]}
    assert [str(Rank(best=1, worst=2)), str(Rank(best=3, worst=3))] == ["1–2", "3"]


def test_floors_and_ceilings_are_marked(board):
    (rows,) = tables((board / "leaderboard.md").read_text())["libero_object"]
    assert [row["control"] for row in rows] == ["", "", "floor"]


def test_all_formats_hold_the_same_rows(board):
    with (board / "leaderboard.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["suite"], line["run"], line["success"]) for line in lines] == [
        ("libero_goal", "goal", "50.0 %"),
        ("libero_object", "a", "100.0 %"),
        ("libero_object", "b", "97.5 %"),
        ("libero_object", "c", "25.0 %"),
    ]
    latex = (board / "leaderboard.tex").read_text()
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 2
    assert latex.count(r" \\") == 2 + len(lines)
    page = (board / "index.html").read_text()
    for line in lines:
        assert f"{line['run']}</td>" in page
    assert "2 of 2 episodes" in page, "what is not ranked is said, with its reason"


@pytest.mark.parametrize(
    ("text", "markdown", "latex"),
    [
        ("<b>", r"\<b>", "<b>"),
        ("a_b _c_", r"a_b \_c\_", r"a\_b \_c\_"),
        ("*x* [y](z)", r"\*x\* \[y\](z)", "*x* [y](z)"),
        ("\x1b[31m", r"␛\[31m", "␛[31m"),
        ("a|b\nc & 5 %", r"a\|b c \& 5 %", r"a|b c \& 5 \%"),
    ],
)
def test_text_has_no_meaning_in_markdown_and_latex(text, markdown, latex):
    assert (in_markdown(text), in_latex(text)) == (markdown, latex)


def test_a_policys_name_is_text_in_every_format(tmp_path):
    RunBuilder.at(tmp_path / "run", policy="<i>*x*\x1b[1m").add_all("s")
    assert r"| \<i>\*x\*␛\[1m |" in leaderboard([tmp_path])
    page = write_leaderboard(read_leaderboard([tmp_path]), tmp_path / "board").read_text()
    assert "&lt;i&gt;*x*␛[1m" in page
    assert "<i>*" not in page
