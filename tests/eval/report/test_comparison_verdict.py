"""A verdict follows from the paired interval and the margin, and ends a run with several modes."""

import io
import json
import re

import pytest

from configs.console import TextConsole
from configs.errors import UsageError
from eval.metrics.noninferiority import Verdict
from eval.records.schema import RunFolder, TextScores
from eval.report.comparison import PairTable, compare
from eval.report.comparison_verdict import judge, judge_all, show
from tests.eval.conftest import evaluate
from tests.eval.factory import RIGHT, WRONG, RunBuilder, episode, key, narrated, query
from tests.eval.report.test_compare import command
from tests.eval.rollout.test_variants import begin, stage

__all__ = ["stage"]


def staleness(seconds):
    return {
        "narration": TextScores(
            texts=1, not_graded=0, oracle=0, at_request={}, on_delivery={}, staleness_s=seconds
        )
    }


def run(path, mode, *, seconds, right=12, failures=0, n=12, actions=0.5, **manifest):
    """Episodes that take so long; the first fail. One text each, of which the first are right."""
    builder = RunBuilder.at(path, mode=mode, **manifest)
    for i in range(n):
        outcome = "timeout" if i < failures else "success"
        made = episode(key(i), outcome, simulated_s=seconds * (1 + i / 100), texts=staleness(seconds / 10))
        builder.add(made, narrated(0, RIGHT if i < right else WRONG, actions))
    return builder.folder


def test_the_verdicts_are_on_success_time_and_restricted_mean(tmp_path):
    clock = {"config": {"clock": "profile:jetson-thor", "while_waiting": "continue", "overlap": "rtc"}}
    a = run(tmp_path / "a", "isolated", seconds=8.0, n=150, right=150, failures=70, **clock)
    b = run(tmp_path / "b", "unified", seconds=4.0, n=150, right=100, actions=0.25, **clock)
    success, time, restricted = judge_all(compare(a, b)).sentences
    assert re.match(r"unified is superior to isolated \(margin 5 points\): \+46\.7 points, 95 % \+", success)
    assert "in time to success (margin 10 %): 0.50 times as long, 95 % " in time
    assert re.search(
        r"superior .* in restricted mean time \(margin 10 %\): −\S+ s, 95 % .* 0\.5\d times", restricted
    )


def test_the_margin_of_time_decides_and_must_be_one(tmp_path):
    a = run(tmp_path / "a", "isolated", seconds=8.0)
    other = compare(a, run(tmp_path / "c", "unified", seconds=9.6, actions=0.25))
    assert [judge_all(other, 30.0, margin).time.verdict for margin in (10.0, 25.0)] == [
        "inferior",
        "non-inferior",
    ]
    with pytest.raises(UsageError, match="a time margin of 0 %"):
        judge_all(other, 30.0, 0.0)


def test_errors_allow_no_verdict_on_time_either(tmp_path):
    builder = RunBuilder.at(tmp_path / "a", mode="isolated").add_all("se")
    other = RunBuilder.at(tmp_path / "b", mode="unified").add_all("ss")
    (only,) = judge_all(compare(builder.folder, other.folder)).sentences
    assert only.startswith("No verdict: 1 of 2 episodes ended in an error")


def test_a_run_with_several_modes_ends_with_the_verdicts(tmp_path, stage, capsys):
    evaluate(*begin(tmp_path))
    printed = " ".join(capsys.readouterr().out.split())
    assert "Whether unified is non-inferior to isolated (margin 5 points) is inconclusive" in printed
    assert (
        printed.index("Records, ")
        < printed.rindex("in time to success")
        < printed.rindex("in restricted mean")
    )


def test_the_command_writes_times_and_draws_the_curves(tmp_path, capsys):
    a, b = run(tmp_path / "a", "isolated", seconds=8.0), run(tmp_path / "b", "unified", seconds=4.0)
    picture = tmp_path / "new" / "curves.png"
    code, out, err = command(
        [a.path, b.path, "--plot", picture, "--time-margin", 20, "--json", tmp_path / "ab.json"], capsys
    )
    assert (code, err) == (0, "")
    assert "unified is superior to isolated in time to success (margin 20 %): 0.50 times" in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    written = json.loads((tmp_path / "ab.json").read_text())
    assert written["time_to_success"]["b_over_a"] == pytest.approx(0.5)
    assert written["time_to_success"]["verdict"]["verdict"] == "superior"
    assert written["success_over_time"]["b"][-1]["pc_success"] == 100
    assert written["per_suite"]["libero_object"]["verdict"] == written["verdict"]["verdict"]
    assert written["staleness_s"]["narration"] == pytest.approx({"a": 0.8, "b": 0.4})


def table(both, only_a=0, only_b=0, neither=0, errors=0) -> PairTable:
    counts = {"both": both, "only_a": only_a, "only_b": only_b, "neither": neither}
    return PairTable(n_episodes=sum(counts.values()) + errors, n_errors_a=0, n_errors_b=errors, **counts)


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        (
            table(185, neither=15),
            "non-inferior to isolated (margin 5 points): +0.0 points, 95 % −1.9 to +1.9, 200",
        ),
        (
            table(970, only_a=20, neither=10),
            "(margin 5 points), though worse: −2.0 points, 95 % −3.1 to −1.3",
        ),
        (table(100, only_b=40, neither=60), "is superior to isolated (margin 5 points): +20.0 points, 95 %"),
        (table(100, only_a=40, neither=60), "unified is inferior to isolated (margin 5"),
        (table(10), "if that difference is right, about 330 episodes would show that it is non-inferior."),
        (table(180, only_a=14, only_b=2, neither=4), "but by how much is inconclusive: −6.0 points"),
        (table(80, only_a=14, only_b=6), "about 1800 episodes would show that it is inferior."),
        (table(93, only_a=6, only_b=1), "; no number of episodes would settle it."),
        (table(990, errors=21), "21 of 1011 episodes ended in an error"),
    ],
)
def test_the_verdict_is_what_the_interval_says_beside_the_margin(pairs, sentence):
    found = judge(pairs, a="isolated", b="unified")
    assert sentence in found.sentence
    assert (found.verdict in found.sentence) == (found.verdict is not Verdict.TOO_MANY_ERRORS)
    assert judge(table(10), 30).verdict is Verdict.NON_INFERIOR


def test_errors_within_the_budget_do_not_stop_a_verdict_and_a_margin_that_is_none_does():
    assert judge(table(98, errors=2)).verdict is Verdict.NON_INFERIOR
    for margin in (0, -5, 100, float("nan")):
        with pytest.raises(UsageError, match=f"a margin of {margin:g} points"):
            judge(table(10), margin)


def talk(path, mode: str, right: int) -> RunFolder:
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
    a, b = talk(tmp_path / f"{long}-a", "isolated", right=1), talk(tmp_path / f"{long}-b", "unified", right=2)
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
