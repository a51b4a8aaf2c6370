"""The conclusion is one sentence in plain words: first what is known, then what the episodes cannot tell."""

import pytest

from eval.metrics.rows import rate_of
from eval.report.comparison_verdict import judge_all
from eval.report.conclusion import conclude, conclude_run
from tests.eval.factory import RunBuilder, compare, episode, key


def recorded(path, outcomes, seconds=None, actions=0.5):
    """A run whose episodes took these simulated seconds."""
    return RunBuilder.at(path).add_all(outcomes, simulated_s=seconds, chunks=[actions]).folder


def concluded(path, first, *others):
    """The conclusion on runs A, B, C …, of outcomes or of arguments of `recorded`."""
    labels = "ABCD"[: 1 + len(others)]
    folders = [
        recorded(path / label, *([run] if isinstance(run, str) else run))
        for label, run in zip(labels, (first, *others), strict=True)
    ]
    comparisons = [compare(folders[0], folder) for folder in folders[1:]]
    judged = {name: (each, judge_all(each)) for name, each in zip(labels[1:], comparisons, strict=True)}
    return conclude(labels[0], judged)


NINE = "s" * 9


def rate(hits, of):
    return rate_of([episode(key(n), "success" if n < hits else "timeout") for n in range(of)])


APART = "; 10 episodes cannot tell the success rates apart"
FASTER = "B reached the goal in 0.85 of the time in the 9 episodes that both solved"
SLOWER = "B took 1.20 times as long to reach the goal in the 9 episodes that both solved"
MORE = "B solved significantly more episodes than A: 95 % against 50 % of 40 episodes"
FEWER = "B solved significantly fewer episodes than A: 50 % against 95 % of 40 episodes"
LITTLE = "B solved significantly fewer episodes than A: 98 % against 100 % of 300 episodes"
HALF, MOST, FEW = (solved * "s" + (40 - solved) * "t" for solved in (20, 38, 10))


@pytest.mark.parametrize(
    ("a", "b", "sentence"),
    [
        ((NINE + "t", 2.0), (NINE + "s", 1.7), f"{FASTER}{APART} (B solved 10, A 9)."),
        ((NINE + "t", 2.0), (NINE + "t", 2.4), f"{SLOWER}{APART} (both solved the same 9)."),
        (
            (NINE + "t", 2.0),
            (NINE + "s", 2.0),
            "10 episodes cannot tell B and A apart in success (B solved 10, A 9) or in time to success.",
        ),
        ("sst", "sss", "3 episodes cannot tell B and A apart in success (B solved 3, A 2)."),
        (
            "sst",
            ("sst", None, 0.6),
            "3 episodes cannot tell B and A apart in success (both solved the same 2).",
        ),
        ("ttt", ("ttt", None, 0.6), "3 episodes cannot tell B and A apart in success (both solved none)."),
        ("sst", "sst", "B and A acted alike, bit for bit: both solved 2 of 3 episodes."),
        (HALF, MOST, f"{MORE}."),
        (
            (NINE + 31 * "t", 2.0),
            (NINE + 31 * "s", 1.7),
            f"{MORE.replace('95', '100').replace('50', '22')}; {FASTER}.",
        ),
        (MOST, HALF, f"{FEWER}."),
        ("s" * 300, "s" * 294 + "t" * 6, f"{LITTLE}, though at most 5 points."),
        (
            200 * "s",
            (200 * "s", None, 0.6),
            "B is as good as A within 5 points: 100 % against 100 % of 200 episodes.",
        ),
        ("sset", "ssst", "No verdict: 1 of 4 episodes ended in an error, more than 2 %."),
    ],
)
def test_two_runs(a, b, sentence, tmp_path):
    assert concluded(tmp_path, a, b) == sentence


@pytest.mark.parametrize(
    ("runs", "sentence"),
    [
        ((HALF, FEW, MOST), "C solved most, significantly more than A: 95 % against 50 % of 40 episodes"),
        (
            (MOST, FEW, HALF),
            "A solved most, significantly more than the next, C: 95 % against 50 % of 40 episodes",
        ),
        (
            ("ssttt", "ssttt", "ssstt"),
            "No run solved significantly more than A; the best other, C: 60 % against 40 % of 5 episodes",
        ),
        (
            ((NINE, 2.0), (NINE, 1.7), (NINE, 1.9)),
            "All 3 runs solved the same 9 of 9 episodes; " + FASTER.replace("the time", "A's time"),
        ),
        (("sse", "ses", "see"), "No verdict: too many episodes ended in an error"),
    ],
)
def test_several_runs_are_concluded_by_the_best_of_them_and_the_first(runs, sentence, tmp_path):
    assert concluded(tmp_path, *runs) == f"{sentence}; the report compares each with A."


def test_one_run_is_concluded_by_its_success_rate_with_interval():
    assert conclude_run("A", rate(9, 10), 10) == "A solved 90 % of 10 episodes (95 % interval 60 to 98 %)."
    failed = "1 of 2 episodes ended in an error"
    assert conclude_run("A", rate(1, 1), 2) == (
        f"Too many errors for a verdict: {failed}; of the others, A solved 100 % of 1 episode "
        "(95 % interval 21 to 100 %)."
    )
    assert conclude_run("A", None, 1) == "No episode of A is graded: 1 of 1 episode ended in an error."
