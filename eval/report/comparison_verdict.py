"""Verdicts of a comparison on success and on time to success, in a sentence each."""

import dataclasses
import math
from collections.abc import Mapping

from configs.errors import UsageError, pluralize
from eval.metrics.noninferiority import (
    ERROR_BUDGET,
    Verdict,
    corrected_verdicts,
    episodes_needed,
    exceeds,
    verdict_of,
)
from eval.metrics.simulated_time import RestrictedTimes, TimeRatio
from eval.metrics.statistics import Interval
from eval.report.comparison import Comparison, PairTable

MARGIN = 5.0
"""Default non-inferiority margin of the success rate, percentage points."""
TIME_MARGIN = 10.0
"""Default non-inferiority margin of the time to success, percent."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judgement:
    """A verdict on B."""

    verdict: Verdict
    margin: float  # its margin: percentage points of success, or percent of time
    sentence: str  # verdict, margin and numbers in one sentence
    # If success is inconclusive, the episodes that would settle it; None if none would.
    episodes_needed: int | None = None
    needed_for: Verdict | None = None  # the verdict that they would give if the present estimate is right


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judgements:
    """All verdicts of a comparison."""

    success: Judgement  # on the pooled pairs, uncorrected: the primary test
    time: Judgement | None  # on time to success; None if no episode has a ratio, or errors allow no verdict
    # On restricted mean time; None if no time was recorded, or errors allow no verdict.
    restricted: Judgement | None
    per_suite: Mapping[str, Verdict]  # on success, corrected for the number of suites

    @property
    def sentences(self) -> list[str]:
        """The verdicts in a sentence each."""
        return [each.sentence for each in (self.success, self.time, self.restricted) if each is not None]


def judge_all(comparison: Comparison, margin: float = MARGIN, time_margin: float = TIME_MARGIN) -> Judgements:
    """Every verdict of a comparison.

    Raises:
        UsageError: A margin is out of range.
    """
    a, b = comparison.names
    success = judge(comparison.overall, margin, a=a, b=b)
    time = judge_time(comparison.time_ratio, time_margin, a=a, b=b)
    restricted = judge_time(comparison.restricted, time_margin, a=a, b=b)
    if success.verdict is Verdict.TOO_MANY_ERRORS:
        time = restricted = None
    per_suite = dict.fromkeys(comparison.per_suite, Verdict.TOO_MANY_ERRORS)
    graded = {
        suite: pairs for suite, pairs in comparison.per_suite.items() if not _has_too_many_errors(pairs)
    }
    verdicts = corrected_verdicts([pairs.counts for pairs in graded.values()], margin / 100)
    per_suite |= dict(zip(graded, verdicts, strict=True))
    return Judgements(success=success, time=time, restricted=restricted, per_suite=per_suite)


def judge(pairs: PairTable, margin: float = MARGIN, *, a: str = "A", b: str = "B") -> Judgement:
    """Compare the 95 % interval of B's success rate minus A's with the margin.

    A significant loss within the margin is `non-inferior` too; the sentence says that it is a loss.

    Args:
        pairs: The pairs of episodes.
        margin: Percentage points.
        a: Name of A.
        b: Name of B.

    Raises:
        UsageError: The margin is not between 0 and 100 points.
    """
    if not 0 < margin < 100:
        raise UsageError(f"a margin of {margin:g} points; give one above 0 and below 100, such as {MARGIN:g}")
    interval, difference = pairs.difference_ci95, pairs.difference
    if interval is None or difference is None or _has_too_many_errors(pairs):
        errors, total = max(pairs.n_errors_a, pairs.n_errors_b), pluralize(pairs.n_episodes, "episode")
        sentence = f"No verdict: {errors} of {total} ended in an error, more than {ERROR_BUDGET:g} %."
        return Judgement(verdict=Verdict.TOO_MANY_ERRORS, margin=margin, sentence=sentence)
    verdict = verdict_of(interval, margin)
    episodes = pluralize(pairs.graded, "episode")
    numbers = f"{format_points(difference)} points, {format_between(interval)}, {episodes}"
    numbers += f" ({pairs.only_a} solved by {a} alone, {pairs.only_b} by {b} alone)"
    lead = _lead(verdict, interval, a, b, f"(margin {margin:g} points)")
    if verdict is not Verdict.INCONCLUSIVE:
        return Judgement(verdict=verdict, margin=margin, sentence=f"{lead}: {numbers}.")
    needed = episodes_needed(pairs.counts, margin / 100)
    if needed is None:
        sentence = f"{lead}: {numbers}; no number of episodes would settle it."
        return Judgement(verdict=verdict, margin=margin, sentence=sentence)
    expected = Verdict.NON_INFERIOR if difference > -margin else Verdict.INFERIOR
    unit = 10 ** max(0, len(str(needed)) - 2)  # two digits, rounded up
    enough = f"about {math.ceil(needed / unit) * unit} episodes would show that it is {expected.value}"
    sentence = f"{lead}: {numbers}; if that difference is right, {enough}."
    return Judgement(
        verdict=verdict, margin=margin, sentence=sentence, episodes_needed=needed, needed_for=expected
    )


def judge_time(
    times: TimeRatio | RestrictedTimes | None, margin: float = TIME_MARGIN, *, a: str = "A", b: str = "B"
) -> Judgement | None:
    """Compare the 95 % interval of a ratio of times, B over A, with the margin.

    Args:
        times: The ratio of times to success, or of restricted mean times; without one there is no verdict.
        margin: Percent that B may take longer.
        a: Name of A.
        b: Name of B.

    Raises:
        UsageError: The margin is not above 0 %, or no number.
    """
    if not 0 < margin < math.inf:
        raise UsageError(f"a time margin of {margin:g} %; give one above 0, such as {TIME_MARGIN:g}")
    if times is None:
        return None
    numbers = format_ratio(times)
    if isinstance(times, TimeRatio):
        measure = "in time to success"
        numbers += f", {pluralize(times.n_pairs, 'episode')} solved by both"
    else:
        measure, seconds = "in restricted mean time", times.seconds
        between = "" if seconds.ci95 is None else f", {format_between(seconds.ci95, digits=2)}"
        numbers = f"{format_points(seconds.difference, digits=2)} s{between}, {numbers}"
        numbers += f", {pluralize(seconds.n_pairs, 'episode')}"
    how = f"{measure} (margin {margin:g} %)"
    if times.ci95 is None:
        lead, verdict = _format_open(a, b, how), Verdict.INCONCLUSIVE
    else:
        gain = Interval(low=-math.log(times.ci95.high), high=-math.log(times.ci95.low))
        verdict = verdict_of(gain, math.log1p(margin / 100))
        lead = _lead(verdict, gain, a, b, how)
    return Judgement(verdict=verdict, margin=margin, sentence=f"{lead}: {numbers}.")


def _has_too_many_errors(pairs: PairTable) -> bool:
    return not pairs.graded or exceeds(max(pairs.n_errors_a, pairs.n_errors_b), pairs.n_episodes)


def _lead(verdict: Verdict, gain: Interval, a: str, b: str, how: str) -> str:
    """The verdict in words; a significant loss is stated even if it is within the margin."""
    worse = gain.high < 0
    if verdict is Verdict.INCONCLUSIVE:
        if worse:
            return f"{b} is worse than {a} {how}, but by how much is inconclusive"
        return _format_open(a, b, how)
    though = ", though worse" if worse and verdict is Verdict.NON_INFERIOR else ""
    return f"{b} is {verdict} to {a} {how}{though}"


def _format_open(a: str, b: str, how: str) -> str:
    return f"Whether {b} is non-inferior to {a} {how} is inconclusive"


def format_points(value: float, digits: int = 1) -> str:
    """A difference with its sign, such as `−1.1`."""
    return f"{value:+.{digits}f}".replace("-", "−")


def format_between(interval: Interval, digits: int = 1) -> str:
    """An interval of a difference."""
    return f"95 % {format_points(interval.low, digits)} to {format_points(interval.high, digits)}"


def format_ratio(times: TimeRatio | RestrictedTimes) -> str:
    """A ratio of times, with its interval or that there is none."""
    interval = times.ci95
    between = "no interval" if interval is None else f"95 % {interval.low:.2f} to {interval.high:.2f}"
    return f"{times.ratio:.2f} times as long, {between}"
