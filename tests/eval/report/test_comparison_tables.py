"""A comparison reads well in 80 columns: every row is one line, and no number is broken."""

import io

import pytest

from configs.console import TextConsole
from eval.records.schema import RunFolder
from eval.report.comparison import compare
from eval.report.comparison_verdict import judge_all, show
from tests.eval.factory import RIGHT, WRONG, RunBuilder, episode, key, narrated, query


def run(path, mode: str, right: int) -> RunFolder:
    """Solved episodes of two suites, with texts of which the first ones are right."""
    builder = RunBuilder.at(path, mode=mode)
    for suite in ("libero_object", "libero_spatial"):
        for init_id in range(4):
            texts = [RIGHT] * right + [WRONG] * (3 - right)
            lines = [narrated(at, text, action=1234.5, frame=12345.6) for at, text in enumerate(texts)]
            builder.add(episode(key(init_id, suite=suite)), *lines[init_id // 3 :])
    return builder.folder


def shown(a: RunFolder, b: RunFolder) -> str:
    """What is printed about a comparison, as a pipe gets it."""
    file, comparison = io.StringIO(), compare(a, b)
    show(comparison, judge_all(comparison), TextConsole(file=file, width=80))
    return file.getvalue()


def test_every_row_is_one_line_of_a_terminal(tmp_path):
    long = "20261121-113512-the_policy_of_a_long_name_and_its_step_0003300"
    a, b = run(tmp_path / f"{long}-a", "isolated", right=1), run(tmp_path / f"{long}-b", "unified", right=2)
    printed = shown(a, b).splitlines()
    assert max(map(len, printed)) <= 80
    lines = [" ".join(line.split()) for line in printed]
    for row in (
        "libero_spatial 100.0 % 100.0 % +0.0 -49.0 to +49.0 1",
        "all 8 8 0 0 0 inconclusive",
        "frame, p95 12345.6 12345.6 1.00",
        "narration: 22 texts graded in both.",
    ):
        assert row in lines
    assert [
        line for line in lines if line.startswith("narrations wholly right, on delivery 27.3 63.6 +36.4 ")
    ]
    assert "the 2 suites' p and verdicts are corrected together (Holm)." in " ".join(lines)
    assert [line[:4] for line in printed if line.endswith(("_0003300-a", "_0003300-b"))] == ["A  2", "B  2"]


def test_where_one_run_was_silent_there_is_no_table_of_language(tmp_path):
    talking = RunBuilder.at(tmp_path / "a").add(episode(key(0)), narrated(0, RIGHT))
    silent = RunBuilder.at(tmp_path / "b").add(episode(key(0)), query(0))
    printed = shown(talking.folder, silent.folder)
    assert "language (%)" not in printed
    assert "only in A 1 (in B 1 never requested)" in printed


@pytest.mark.parametrize("actions", [0.5, 0.25])
def test_under_a_clock_actions_are_compared_only_if_they_are_the_same(tmp_path, actions):
    """On clock `paused` always: then equal actions mean that modes act alike."""
    for clock in ("paused", "fixed:100"):
        clocked = {"config": {"clock": clock, "while_waiting": "hold", "overlap": "skip"}}
        a, b = (
            RunBuilder.at(tmp_path / clock / name, **clocked).add(episode(key()), query(0, chunk)).folder
            for name, chunk in (("a", 0.5), ("b", actions))
        )
        printed = " ".join(shown(a, b).split())
        assert ("Largest action difference: " in printed) == (clock == "paused" or actions == 0.5)
        assert ("act alike by construction" in printed) == (clock == "paused" and actions == 0.5)
        assert ("Clock fixed:100: actions come 100 ms after the observation" in printed) == (
            clock != "paused"
        )
