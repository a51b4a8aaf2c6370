"""Verdicts of a comparison on success and on time, in a sentence each, and its tables of 80 columns."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape

from configs.assets import badge, badged
from contracts.clock import MEASURED, PAUSED
from contracts.errors import UsageError, pluralize
from eval.metrics.action_difference import ActionDifference
from eval.metrics.noninferiority import (
    ERROR_BUDGET,
    Verdict,
    corrected_verdicts,
    episodes_needed,
    verdict_of,
)
from eval.metrics.simulated_time import RestrictedTimes, TimeRatio
from eval.metrics.statistics import Interval, MeanDifference
from eval.records.protocol import format_inputs
from eval.report.comparison import Comparison, Outcomes, PairTable, TextPairs
from eval.report.result_tables import MEASURES
from eval.report.table import Column, Table, format_clock_of, percentage, to_terminal

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
    per_suite = corrected(comparison.per_suite, margin)
    return Judgements(success=success, time=time, restricted=restricted, per_suite=per_suite)


def corrected(tables: Mapping[str, PairTable], margin: float) -> dict[str, Verdict]:
    """The verdicts on success by name, corrected for their number; the margin is in points."""
    graded = {name: pairs for name, pairs in tables.items() if not pairs.has_too_many_errors}
    verdicts = corrected_verdicts([pairs.counts for pairs in graded.values()], margin / 100)
    return dict.fromkeys(tables, Verdict.TOO_MANY_ERRORS) | dict(zip(graded, verdicts, strict=True))


def judge(pairs: PairTable, margin: float = MARGIN, *, a: str = "A", b: str = "B") -> Judgement:
    """Compare the 95 % interval of B's success rate minus A's with the margin.

    A significant loss within the margin is `non-inferior` too; the sentence says that it is a loss.

    Raises:
        UsageError: The margin is not between 0 and 100 points.
    """
    if not 0 < margin < 100:
        raise UsageError(f"a margin of {margin:g} points; give one above 0 and below 100, such as {MARGIN:g}")
    interval, difference = pairs.ci95, pairs.difference
    if interval is None or difference is None or pairs.has_too_many_errors:
        worst = max(pairs.a, pairs.b, key=lambda of: of.n_errors / of.n_episodes)
        errors = f"{worst.n_errors} of {pluralize(worst.n_episodes, 'episode')}"
        sentence = f"No verdict: {errors} ended in an error, more than {ERROR_BUDGET:g} %."
        return Judgement(verdict=Verdict.TOO_MANY_ERRORS, margin=margin, sentence=sentence)
    verdict, needed = verdict_of(interval, margin), None
    lead = _lead(verdict, interval, a, b, f"(margin {margin:g} points)")
    alone = f"{pairs.only_a} solved by {a} alone, {pairs.only_b} by {b} alone"
    if not pairs.paired:
        both = f"{a} solved {sum(pairs.a.solved)}, {b} {sum(pairs.b.solved)}"
        alone = f"not paired, as initial states are unknown: {both}"
    sentence = (
        f"{lead}: {format_points(difference)} points, {format_between(interval)}, {pairs.size} ({alone})"
    )
    if verdict is Verdict.INCONCLUSIVE:
        effective = episodes_needed(pairs.counts, margin / 100)
        needed = None if effective is None else math.ceil(effective / pairs.independent)
        if needed is None:
            sentence += "; no number of episodes would settle it"
        else:
            unit = 10 ** max(0, len(str(needed)) - 2)  # two digits, rounded up
            shown = f"{b} is {'as good' if difference > -margin else 'worse by more than the margin'}"
            enough = f"about {math.ceil(needed / unit) * unit} episodes would show that {shown}"
            sentence += f"; if that difference is right, {enough}"
    return Judgement(verdict=verdict, margin=margin, sentence=f"{sentence}.", episodes_needed=needed)


def judge_time(
    times: TimeRatio | RestrictedTimes | None, margin: float = TIME_MARGIN, *, a: str = "A", b: str = "B"
) -> Judgement | None:
    """Compare the 95 % interval of a ratio of times, B over A, with the margin in percent; None without one.

    Raises:
        UsageError: The margin is not a number above 0 %.
    """
    if not 0 < margin < math.inf:
        raise UsageError(f"a time margin of {margin:g} %; give one above 0, such as {TIME_MARGIN:g}")
    if times is None:
        return None
    interval = times.ci95
    between = "no interval" if interval is None else f"95 % {interval.low:.2f} to {interval.high:.2f}"
    numbers = f"{times.ratio:.2f} times as long, {between}"
    if isinstance(times, TimeRatio):
        measure = "in time to success"
        numbers += f", {pluralize(times.n_pairs, 'episode')} solved by both"
    else:
        measure, seconds = "in restricted mean time", times.seconds
        between = "" if seconds.ci95 is None else f", {format_between(seconds.ci95, digits=2)}"
        numbers = f"{format_points(seconds.difference, digits=2)} s{between}, {numbers}"
        numbers += f", {pluralize(seconds.n_pairs, 'episode')}"
    gain, verdict = None, Verdict.INCONCLUSIVE
    if interval is not None:
        gain = Interval(low=-math.log(interval.high), high=-math.log(interval.low))
        verdict = verdict_of(gain, math.log1p(margin / 100))
    lead = _lead(verdict, gain, a, b, f"{measure} (margin {margin:g} %)")
    return Judgement(verdict=verdict, margin=margin, sentence=f"{lead}: {numbers}.")


def _lead(verdict: Verdict, gain: Interval | None, a: str, b: str, how: str) -> str:
    """The verdict in words; a significant loss is stated even if it is within the margin."""
    worse = gain is not None and gain.high < 0
    if verdict is Verdict.INCONCLUSIVE:
        if worse:
            return f"{b} is worse than {a} {how}; by how much remains open"
        return f"It remains open whether {b} is as good as {a} {how}"
    though = ", though worse" if worse and verdict is Verdict.NON_INFERIOR else ""
    return f"{b} is {verdict} to {a} {how}{though}"


def format_points(value: float, digits: int = 1) -> str:
    """A difference with its sign, such as `−1.1`."""
    return f"{value:+.{digits}f}".replace("-", "−")


def format_between(interval: Interval, digits: int = 1) -> str:
    """An interval of a difference."""
    return f"95 % {format_points(interval.low, digits)} to {format_points(interval.high, digits)}"


_MEASURES_NOTE = (
    "Motion in pairs that both solved, texts in all. Less jerk is smoother; jump at chunks: of actions where "
    "the chunk changes, relative to inside chunks. True now: share of simulated time (docs/comparing.md)."
)
_STATISTICS_NOTE = "B minus A in points, with Tango's interval for pairs; p is McNemar's, exact"
_APART_NOTE = "B minus A in points; interval and p are Agresti and Caffo's for episodes that are not paired"
_IN_TURNS_NOTE = (
    "The runs alternated episode by episode, so slow drift of the machine affects both; short "
    "disturbances may not."
)
_NOT_IN_TURNS_NOTE = "The runs did not alternate: latency differences include the machine's drift."
_SEEDS_NOTE = "± is the standard deviation over seeds; interval and p are over initial states"
_WHEN = {"at_request": "when requested", "on_delivery": "on delivery"}


class Side(NamedTuple):
    """A row of a comparison: what is compared, A's and B's value, and B's minus A's."""

    name: str
    of: PairTable | MeanDifference
    p_value: float | None = None  # McNemar's
    verdict: Verdict | None = None


def _compared(first: str, form: str, *, unit: str = "") -> list[Column]:
    """Both values, their difference and its interval."""
    return [
        Column(first, lambda row: row.name, unit=unit, align="left"),
        Column("A", lambda row: row.of.a, form),
        Column("B", lambda row: row.of.b, form),
        Column("B minus A", lambda row: row.of.difference, f"+{form}"),
        Column("95 %", lambda row: row.of.ci95, lambda ci: f"{ci.low:+{form}} to {ci.high:+{form}}"),
    ]


def _rate(side: Outcomes) -> str | None:
    """A success rate, with the standard deviation over seeds if there are several."""
    if side.percent is None:
        return None
    spread = "" if side.by_seed is None else f" ± {side.by_seed.sd:.1f}"
    return percentage(side.percent, 1, f"{spread} %")


_NAME, _, _, *_DIFFERENCE = _compared("solved", ".1f")
RATES = [
    _NAME,
    Column("A", lambda row: _rate(row.of.a)),
    Column("B", lambda row: _rate(row.of.b)),
    *_DIFFERENCE,
    Column("p", lambda row: row.p_value, ".2g"),
]
PAIRS = [
    dataclasses.replace(_NAME, heading="in pairs"),
    Column("pairs", lambda row: row.of.graded),
    Column("both", lambda row: row.of.both),
    Column("only A", lambda row: row.of.only_a),
    Column("only B", lambda row: row.of.only_b),
    Column("neither", lambda row: row.of.neither),
    Column("verdict on B", lambda row: row.verdict),
]
APART = [
    dataclasses.replace(_NAME, heading="not paired"),
    Column("A", lambda row: f"{sum(row.of.a.solved)}/{len(row.of.a.solved)}"),
    Column("B", lambda row: f"{sum(row.of.b.solved)}/{len(row.of.b.solved)}"),
    PAIRS[-1],
]
MEASURES_COLUMNS = [*_compared("measure", ".2f"), Column("pairs", lambda row: row.of.n_pairs)]
TEXT_COLUMNS = _compared("language", ".1f", unit="%")
LATENCY = [
    Column("latency", lambda row: f"{row[0]}, {row[2]}", unit="ms", align="left"),
    Column("A", lambda row: getattr(row[1].a, row[2]), ".1f"),
    Column("B", lambda row: getattr(row[1].b, row[2]), ".1f"),
    Column("B/A", lambda row: row[1].ratio(row[2]), ".2f"),
]


def show(comparison: Comparison, judgements: Judgements, console: Console) -> None:
    """Print a comparison: runs, outcomes, verdicts, actions, latency and texts."""

    def show_table(columns: Sequence[Column], rows: Sequence[Any], note: str = "") -> None:
        console.print()
        table = Table(columns=columns, groups=[rows]).marked(badge(comparison.a.assets.name))
        console.print(to_terminal(table, ruled=False))
        if note:
            console.print(f"[dim]{note}[/]")

    p_values = {**comparison.suite_p_values, "all": comparison.overall.p_value}
    verdicts = {**judgements.per_suite, "all": judgements.success.verdict}
    tables = dict(comparison.per_suite)
    if len(tables) > 1:
        tables["all"] = comparison.overall
    sides = [Side(name, pairs, p_values.get(name), verdicts[name]) for name, pairs in tables.items()]
    _show_runs(comparison, console)
    suites = len(comparison.suite_p_values)
    together = f"; the {suites} suites' p and verdicts are corrected together (Holm)" if suites > 1 else ""
    seeds = "" if comparison.overall.a.by_seed is None else f"; {_SEEDS_NOTE}"
    note = _STATISTICS_NOTE if comparison.overall.paired else _APART_NOTE
    show_table(RATES, sides, f"{note}{together}{seeds}.")
    show_table(PAIRS if comparison.overall.paired else APART, sides)
    errors_a, errors_b = comparison.overall.a.n_errors, comparison.overall.b.n_errors
    if errors_a or errors_b:
        console.print(f"Left out, ended in an error: {errors_a} in A, {errors_b} in B.")
    console.print()
    for sentence in judgements.sentences:
        console.print(f"[bold]{escape(sentence)}[/]")
    if not comparison.a.imported and not comparison.b.imported:
        _show_acting(comparison, console)
    if comparison.latency and comparison.a.clock in (PAUSED, MEASURED):
        rows = [(*each, quantile) for each in comparison.latency.items() for quantile in ("p50", "p95")]
        show_table(LATENCY, rows, _IN_TURNS_NOTE if comparison.in_turns else _NOT_IN_TURNS_NOTE)
    if comparison.measures:
        show_table(MEASURES_COLUMNS, [Side(*each) for each in comparison.measures.items()], _MEASURES_NOTE)
    if comparison.texts:
        texts = [
            Side(f"{MEASURES[texts.task]}, {_WHEN[when]}", difference)
            for texts in comparison.texts
            for when, difference in texts.differences.items()
        ]
        if texts:
            show_table(TEXT_COLUMNS, texts)
        else:
            console.print()
        for each in comparison.texts:
            console.print(f"[dim]{escape(_format_pairs(each))}[/]")


def _show_acting(comparison: Comparison, console: Console) -> None:
    """Print how much the actions differ, and what the clock charged."""
    if comparison.a.clock == PAUSED or comparison.actions.bitwise_equal:  # else not of the same moments
        console.print(f"\n{_format_actions(comparison.actions)}")
    alike = ": modes act alike by construction, whatever their latency (use --clock to charge it)"
    is_by_mode = comparison.actions.bitwise_equal and comparison.a.mode != comparison.b.mode
    clock = f"The clock was paused{alike if is_by_mode else ''}."
    if comparison.a.clock != PAUSED:
        clock = f"Clock {comparison.a.clock}: {format_clock_of(comparison.a)}."
    console.print(f"[dim]{escape(clock)}[/]")


def _show_runs(comparison: Comparison, console: Console) -> None:
    a, b = comparison.a, comparison.b
    for name, run in (("A", a), ("B", b)):
        dtype = "" if a.dtype == b.dtype else run.dtype or "its own dtype"
        texts = "" if a.feedback == b.feedback else f"feedback {run.feedback or 'not read'}"
        mode = f"mode {run.mode}" if {a.mode, b.mode} != {"actions"} else ""
        assets = badged(f"assets {run.assets}", run.assets.name) if run.assets.digest else ""
        parts = [run.policy, run.weights, dtype, mode, texts, assets]
        if run.imported:
            parts.append(f"imported from {run.imported.runner} as played under {run.protocol_name}")
        what = ", ".join(part for part in parts if part)
        console.print(f"[bold]{name}[/]  {escape(run.run_id)}\n   [dim]{escape(what)}[/]", soft_wrap=True)
        if a.policy_inputs != b.policy_inputs:
            console.print(f"   [dim]sees {escape(format_inputs(run.policy_inputs))}[/]", soft_wrap=True)
    if comparison.partial:
        common = pluralize(comparison.overall.n_episodes, "episode")
        states = [
            f"{name} has {pluralize(run.n_planned, 'planned episode')} and is {run.status}"
            for name, run in (("A", a), ("B", b))
        ]
        console.print(f"\n[yellow]Only the {common} that both have: {escape('; '.join(states))}.[/]")


def _format_pairs(texts: TextPairs) -> str:
    """The numbers of paired and unpaired texts; oracles are named."""
    parts = [
        f"{texts.task}: {pluralize(texts.pairs, 'text')} graded in both",
        *(f"{n} in {name} alone" for name, n in (("A", texts.only_a), ("B", texts.only_b)) if n),
    ]
    if not texts.paired:
        of_a = pluralize(texts.only_a, "graded text")
        parts = [f"{texts.task}: all {of_a} of A against all {texts.only_b} of B"]
    oracles = (("A", texts.oracle_a), ("B", texts.oracle_b))
    parts += [f"{name}'s are an oracle's" for name, oracle in oracles if oracle]
    return "; ".join(parts) + "."


def _format_actions(actions: ActionDifference) -> str:
    over = f"over {pluralize(actions.n_queries, 'query')}"
    if actions.largest is None:
        largest = "unknown, the runs recorded no common query"
    elif actions.bitwise_equal:
        largest = f"[green]0, bitwise equal[/] {over}"
    elif actions.largest == 0:
        largest = f"0 {over}"
    else:
        size = "infinite (NaN on one side)" if math.isinf(actions.largest) else f"{actions.largest:.3g}"
        largest = f"[yellow]{size}[/] {over}, first reached in {actions.key}, query {actions.query}"
    uneven = ""
    if actions.n_uneven:
        uneven = f"; numbers of queries differ in {pluralize(actions.n_uneven, 'episode')}"
    return f"Largest action difference: {largest}{uneven}."
