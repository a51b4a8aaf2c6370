"""A comparison in a few lines: success, time to success, restricted mean time, texts, clock."""

from collections.abc import Iterator

from eval.metrics.noninferiority import Verdict
from eval.report.comparison import Comparison
from eval.report.comparison_verdict import (
    MARGIN,
    TIME_MARGIN,
    Judgement,
    format_between,
    format_needed,
    format_points,
    format_times_interval,
    judge_all,
)
from eval.report.labels import PAUSED


def verdict_lines(
    comparison: Comparison, margin: float = MARGIN, time_margin: float = TIME_MARGIN
) -> list[str]:
    """The verdicts in at most six lines of 80 columns, for the end of a run.

    Args:
        comparison: The comparison.
        margin: Non-inferiority margin of the success rate, percentage points.
        time_margin: Non-inferiority margin of the time to success, percent.

    Raises:
        UsageError: A margin is out of range.
    """
    judgements = judge_all(comparison, margin, time_margin)
    a, b = comparison.names
    lines = [f"{b} compared with {a}, clock {comparison.a.clock}:"]
    lines.append(_line("success", judgements.success, _format_success(comparison, judgements.success)))
    success = judgements.success
    if success.needed_for is not None and success.episodes_needed is not None:
        needed = f"{success.needed_for.value} with {format_needed(success.episodes_needed)}"
        lines.append(f"{'':<15} {needed} episodes, at that difference")
    if judgements.time is not None:
        lines.append(_line("time to success", judgements.time, _format_time(comparison, judgements.time)))
    if judgements.restricted is not None:
        numbers = _format_restricted(comparison, judgements.restricted)
        lines.append(_line("restricted mean", judgements.restricted, numbers))
    texts = "; ".join(_format_texts(comparison)).replace(" ms", " ms stale", 1)
    return [*lines, f"{'texts (points)':<15} {texts}"] if texts else lines


def format_clock(comparison: Comparison) -> str | None:
    """The clock in one line; None on clock `paused` if actions differ."""
    clock, waiting = comparison.a.clock, comparison.a.while_waiting
    if clock != PAUSED:
        overlap = "" if comparison.a.overlap == "skip" else f", overlap {comparison.a.overlap}"
        return f"Clock: {clock}{f', {waiting} while waiting' if waiting else ''}{overlap}."
    if comparison.actions.bitwise_equal:
        return (
            "The clock was paused: modes act alike by construction, whatever their latency (use --clock to "
            "charge it)."
        )
    return None


def _line(label: str, judgement: Judgement, numbers: str) -> str:
    return f"{label:<15} {judgement.verdict.value:<12} {numbers}".rstrip()


def _format_success(comparison: Comparison, judgement: Judgement) -> str:
    interval, difference = comparison.overall.difference_ci95, comparison.overall.difference
    if judgement.verdict is Verdict.TOO_MANY_ERRORS or interval is None or difference is None:
        return ""
    numbers = f"{format_points(difference)} points, {format_between(interval)}"
    if judgement.verdict is Verdict.INCONCLUSIVE:
        return f"{numbers}; none suffices" if judgement.episodes_needed is None else numbers
    return f"{numbers}, margin {judgement.margin:g}"


def _format_time(comparison: Comparison, judgement: Judgement) -> str:
    times = comparison.time_ratio
    assert times is not None
    return f"{times.ratio:.2f} times as long, {format_times_interval(times)}, margin {judgement.margin:g} %"


def _format_restricted(comparison: Comparison, judgement: Judgement) -> str:
    times = comparison.restricted
    assert times is not None
    return f"{times.ratio:.2f} times as long, {format_times_interval(times)}, margin {judgement.margin:g} %"


def _format_texts(comparison: Comparison) -> Iterator[str]:
    """Difference of accuracy on delivery for each language task, and the staleness in A and in B."""
    for texts in comparison.texts:
        found = next((each for each in texts.differences if each.when == "on_delivery"), None)
        if found is not None:
            line, staleness = (
                f"{texts.task} {format_points(found.difference)}",
                comparison.staleness.get(found.task),
            )
            if staleness is None or staleness.a is None or staleness.b is None:
                yield line
            else:
                yield f"{line}, {1000 * staleness.a:.0f}→{1000 * staleness.b:.0f} ms"
