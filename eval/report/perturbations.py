"""Runs of perturbed episodes beside their controls: a row per perturbation, and what it shows."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from contracts.errors import pluralize
from contracts.perturbation import format_perturbations
from eval.metrics.noninferiority import Verdict
from eval.records.reader import RunIdentity
from eval.report.comparison import Comparison, PairTable
from eval.report.comparison_verdict import Judgements, corrected, format_between, format_points
from eval.report.result_tables import percent
from eval.report.table import Column, Table, differ, percentage


def control_of(run: RunIdentity, others: Sequence[RunIdentity]) -> RunIdentity | None:
    """A run of the same suites without perturbations, by the same policy; None if there is none."""
    for other in others if run.perturb else ():
        is_control = not other.perturb and run.control_hashes.items() <= other.control_hashes.items()
        if is_control and run.policy_and_schedule == other.policy_and_schedule:
            return other
    return None


class PerturbedRow(NamedTuple):
    """A perturbation's effect on a policy."""

    run: RunIdentity  # the perturbed one
    pairs: PairTable  # A is the control
    verdict: Verdict  # corrected for the number of perturbations


def perturbed_rows(judged: Mapping[str, tuple[Comparison, Judgements]]) -> list[PerturbedRow]:
    """The comparisons of perturbed runs with their controls, by dimension and severity."""
    margin = max((judgements.success.margin for _, judgements in judged.values()), default=0.0)
    found = [each for each, _ in judged.values() if each.b.perturb and not each.a.perturb]
    verdicts = corrected({each.b.run_id: each.overall for each in found}, margin)
    rows = [PerturbedRow(each.b, each.overall, verdicts[each.b.run_id]) for each in found]
    return sorted(rows, key=lambda row: (row.run.mode, row.run.perturb))


NOTE = (
    "perturbed minus control in points, by pairs of the same episode, with Tango's interval; verdicts "
    "against the margin are corrected together (Holm)"
)
COLUMNS = [
    Column("perturbation", lambda row: format_perturbations(row.run.perturb), align="left"),
    Column("mode", lambda row: row.run.mode, align="left", choices=True, when=differ),
    Column("control", lambda row: row.pairs.a.percent, percent),
    Column("perturbed", lambda row: row.pairs.b.percent, percent),
    Column("difference", lambda row: row.pairs.difference, "+.1f", legend=NOTE),
    Column("95 %", lambda row: row.pairs.ci95, lambda ci: f"{ci.low:+.1f} to {ci.high:+.1f}"),
    Column("pairs", lambda row: row.pairs.graded, optional=1),
    Column("verdict", lambda row: row.verdict, align="left"),
]


def perturbations_table(rows: Sequence[PerturbedRow], title: str = "") -> Table:
    """A row per perturbation and mode."""
    return Table(columns=COLUMNS, groups=[rows], title=title)


def conclude_perturbed(rows: Sequence[PerturbedRow]) -> str:
    """The perturbation that costs most, with its interval, of those without too many errors."""
    rows = [row for row in rows if row.verdict is not Verdict.TOO_MANY_ERRORS]
    if not rows:
        return "No verdict: too many episodes ended in an error."
    worst = min(rows, key=lambda row: (row.pairs.difference or 0.0, row.run.perturb))
    in_modes = len({row.run.mode for row in rows}) > 1
    name = format_perturbations(worst.run.perturb) + (f" in {worst.run.mode}" if in_modes else "")
    pairs, interval = worst.pairs, worst.pairs.ci95
    assert interval is not None, "those without are left out"
    rates = f"{percentage(pairs.b.percent, 0)} % against {percentage(pairs.a.percent, 0)} % in the control"
    numbers = (
        f"{format_points(pairs.difference or 0.0)} points, {format_between(interval)}, "
        f"{pluralize(pairs.graded, 'pair')}"
    )
    inferior = [row for row in rows if row.verdict is Verdict.INFERIOR]
    kind = "perturbed run" if in_modes else "perturbation"
    among = f" of {pluralize(len(rows), kind)}" if len(rows) > 1 else ""
    if interval.high >= 0:
        is_open = any(row.verdict is Verdict.INCONCLUSIVE for row in rows)
        lead = (
            "Too few pairs to tell whether success suffers"
            if is_open
            else "Success suffers by less than the margin"
        )
        where = f"any{among}; the largest difference is under {name}" if among else name
        return f"{lead} under {where}: {rates} ({numbers})."
    if not among:
        return f"{name} costs success: {rates} ({numbers})."
    shown = {0: "none is", 1: "one is"}.get(len(inferior), f"{len(inferior)} are")
    return f"{name} costs most{among}: {rates} ({numbers}); {shown} shown to cost more than the margin."
