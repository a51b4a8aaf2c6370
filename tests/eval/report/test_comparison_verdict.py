"""A verdict follows from the paired interval and the margin; beyond the error budget there is none."""

import pytest

from configs.errors import UsageError
from eval.report.comparison import PairTable
from eval.report.comparison_verdict import Verdict, judge


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
            Verdict.NO_WORSE,
            "B is no worse than A by more than 5 points: +0.0, 95 % from -1.9 to +1.9.",
        ),
        (
            table(10),
            5,
            Verdict.CANNOT_TELL,
            "than 5 points: cannot tell with 10 episodes (difference +0.0, 95 % from -27.8 to +27.8).",
        ),
        (table(10), 30, Verdict.NO_WORSE, "by more than 30 points"),
        (table(100, only_a=40, neither=60), 5, Verdict.WORSE, "B is worse than A: -20.0 points, 95 % from"),
        (table(100, only_b=40, neither=60), 5, Verdict.NO_WORSE, "+20.0"),
        (table(970, only_a=20, neither=10), 5, Verdict.NO_WORSE, "-2.0, 95 % from -3.1 to -1.3."),
        (
            table(990, errors=21),
            5,
            Verdict.TOO_MANY_ERRORS,
            "21 of 1011 episodes ended in an error, more than 2",
        ),
    ],
)
def test_the_verdict_is_what_the_interval_says_beside_the_margin(pairs, margin, verdict, sentence):
    found = judge(pairs, margin)
    assert (found.verdict, found.margin) == (verdict, margin)
    assert sentence in found.sentence


def test_errors_within_the_budget_do_not_stop_a_verdict():
    assert judge(table(98, errors=2)).verdict is Verdict.NO_WORSE


@pytest.mark.parametrize("margin", [0, -5, 100, float("nan")])
def test_a_margin_that_is_none_is_refused(margin):
    with pytest.raises(UsageError, match=f"a margin of {margin:g} points"):
        judge(table(10), margin)
