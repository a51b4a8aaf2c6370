"""A verdict follows from the paired interval and the margin; beyond the error budget there is none."""

import pytest

from configs.errors import UsageError
from eval.metrics.noninferiority import Verdict
from eval.report.comparison import PairTable
from eval.report.comparison_verdict import judge


def table(both, only_a=0, only_b=0, neither=0, errors=0) -> PairTable:
    return PairTable(
        n_episodes=both + only_a + only_b + neither + errors,
        both=both,
        only_a=only_a,
        only_b=only_b,
        neither=neither,
        n_errors_a=0,
        n_errors_b=errors,
    )


@pytest.mark.parametrize(
    ("pairs", "margin", "verdict", "sentence"),
    [
        (
            table(185, neither=15),
            5,
            Verdict.NON_INFERIOR,
            "is non-inferior to isolated (margin 5 points): +0.0 points, 95 % −1.9 to +1.9, 200 episodes (0",
        ),
        (
            table(970, only_a=20, neither=10),
            5,
            Verdict.NON_INFERIOR,
            "(margin 5 points), though worse: −2.0 points, 95 % −3.1 to −1.3, 1000 episodes (20 solved by",
        ),
        (table(10), 30, Verdict.NON_INFERIOR, "(margin 30 points)"),
        (
            table(100, only_b=40, neither=60),
            5,
            Verdict.SUPERIOR,
            "unified is superior to isolated (margin 5 points): +20.0 points, 95 %",
        ),
        (table(100, only_a=40, neither=60), 5, Verdict.INFERIOR, "unified is inferior to isolated (margin 5"),
        (
            table(10),
            5,
            Verdict.INCONCLUSIVE,
            "; if that difference is right, about 330 episodes would show that it is non-inferior.",
        ),
        (
            table(180, only_a=14, only_b=2, neither=4),
            5,
            Verdict.INCONCLUSIVE,
            "unified is worse than isolated (margin 5 points), but by how much is inconclusive: −6.0 points",
        ),
        (
            table(80, only_a=14, only_b=6),
            5,
            Verdict.INCONCLUSIVE,
            "if that difference is right, about 1800 episodes would show that it is inferior.",
        ),
        (table(93, only_a=6, only_b=1), 5, Verdict.INCONCLUSIVE, "; no number of episodes would settle it."),
        (
            table(990, errors=21),
            5,
            Verdict.TOO_MANY_ERRORS,
            "21 of 1011 episodes ended in an error",
        ),
    ],
)
def test_the_verdict_is_what_the_interval_says_beside_the_margin(pairs, margin, verdict, sentence):
    found = judge(pairs, margin, a="isolated", b="unified")
    assert (found.verdict, found.margin) == (verdict, margin)
    assert sentence in found.sentence


def test_errors_within_the_budget_do_not_stop_a_verdict():
    assert judge(table(98, errors=2)).verdict is Verdict.NON_INFERIOR


@pytest.mark.parametrize("margin", [0, -5, 100, float("nan")])
def test_a_margin_that_is_none_is_refused(margin):
    with pytest.raises(UsageError, match=f"a margin of {margin:g} points"):
        judge(table(10), margin)
