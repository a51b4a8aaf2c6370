"""Whether B is worse than A, in one sentence: by the paired interval, and by a margin chosen beforehand."""

import dataclasses
import enum

from configs.cli import counted
from configs.errors import UsageError
from eval.metrics.error_budget import ERROR_BUDGET, exceeds
from eval.report.comparison import PairTable

MARGIN = 5.0
"""Percentage points that B may lose and still count as no worse, unless another margin is given."""


class Verdict(enum.StrEnum):
    """What can be said of B."""

    NO_WORSE = "no worse"
    WORSE = "worse"
    CANNOT_TELL = "cannot tell"
    TOO_MANY_ERRORS = "too many errors"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judgement:
    """A verdict on B, the margin it was reached by (percentage points), and the sentence that says both."""

    verdict: Verdict
    margin: float
    sentence: str


def judge(pairs: PairTable, margin: float = MARGIN) -> Judgement:
    """Hold the 95 % interval of B's success rate minus A's against the margin.

    Its lower end above minus the margin is the usual test of non-inferiority, one-sided at 2.5 %. So a small
    loss that is certain is `no worse` too; the interval beside it says that it is a loss.

    Raises:
        UsageError: The margin is not between 0 and 100 points.
    """
    if not 0 < margin < 100:
        raise UsageError(f"a margin of {margin:g} points; give one above 0 and below 100, such as {MARGIN:g}")
    verdict, sentence = _judge(pairs, margin)
    return Judgement(verdict=verdict, margin=margin, sentence=sentence)


def _judge(pairs: PairTable, margin: float) -> tuple[Verdict, str]:
    interval, difference = pairs.difference_ci95, pairs.difference
    errors = max(pairs.n_errors_a, pairs.n_errors_b)
    if interval is None or difference is None or exceeds(errors, pairs.n_episodes):
        return Verdict.TOO_MANY_ERRORS, (
            f"No verdict: {errors} of {counted(pairs.n_episodes, 'episode')} ended in an error, more than "
            f"{ERROR_BUDGET:g} %."
        )
    between = f"95 % from {interval.low:+.1f} to {interval.high:+.1f}"
    if interval.low > -margin:
        return (
            Verdict.NO_WORSE,
            f"B is no worse than A by more than {margin:g} points: {difference:+.1f}, {between}.",
        )
    if interval.high < 0:
        return Verdict.WORSE, f"B is worse than A: {difference:+.1f} points, {between}."
    return Verdict.CANNOT_TELL, (
        f"Whether B is worse than A by more than {margin:g} points: cannot tell with "
        f"{counted(pairs.graded, 'episode')} (difference {difference:+.1f}, {between})."
    )
