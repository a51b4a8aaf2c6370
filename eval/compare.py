"""`python -m eval.compare RUN_A RUN_B`: two runs over the same episodes, side by side."""

import dataclasses
import math
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from configs.errors import UsageError
from eval.action_difference import ActionDifference
from eval.cli import run_app
from eval.comparison import Comparison, PairTable, StageLatency, TextDifference, compare
from eval.json_files import write_json
from eval.recorded import RunIdentity
from eval.records import RunFolder
from eval.statistics import Interval

app = App(name="python -m eval.compare", version_flags=[])

_PROVENANCE = ("started", "finished", "config", "weights_sha256", "git", "versions", "hardware")


@app.default
def main(
    run_a: Path, run_b: Path, /, *, json: Annotated[Path | None, Parameter(name="--json")] = None
) -> None:
    """Compare two runs of the same episodes: outcomes in pairs, actions, latency.

    Args:
        run_a: A run's folder.
        run_b: Another one, of the same protocol, assets and episodes.
        json: Also write the comparison to this file, with what the runs came from.
    """
    folders = RunFolder(run_a), RunFolder(run_b)
    comparison = compare(*folders)
    if json is not None:
        provenance = dict(zip(("a", "b"), map(_provenance, folders), strict=True))
        _write(json, {**to_json(comparison), "provenance": provenance})
    # In a pipe nobody's window limits the width.
    show(comparison, Console(highlight=False, width=None if sys.stdout.isatty() else 160))


def show(comparison: Comparison, console: Console) -> None:
    """Print the comparison for a person."""
    console.print(f"[bold]A[/] {_describe(comparison.a)}\n[bold]B[/] {_describe(comparison.b)}\n")
    console.print(_outcome_table(comparison))
    errors = comparison.overall.n_errors_a, comparison.overall.n_errors_b
    if any(errors):
        console.print(f"Left out, ended in an error: {errors[0]} in A, {errors[1]} in B.")
    console.print(_say_actions(comparison.actions))
    for stage, latency in comparison.latency.items():
        console.print(_say_latency(stage, latency))
    for text in comparison.texts:
        console.print(_say_text(text))
    if comparison.latency:
        console.print(f"[dim]{_say_turns(comparison)}[/]")


def to_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain JSON types; an infinite difference, which JSON has no word for, is a string."""
    actions = dataclasses.asdict(comparison.actions)
    if comparison.actions.largest is not None and math.isinf(comparison.actions.largest):
        actions["largest"] = "infinite"
    return {
        "a": dataclasses.asdict(comparison.a),
        "b": dataclasses.asdict(comparison.b),
        "in_turns": comparison.in_turns,
        "overall": _pairs_to_json(comparison.overall),
        "per_suite": {suite: _pairs_to_json(pairs) for suite, pairs in comparison.per_suite.items()},
        "actions": actions,
        "latency_ms": {
            stage: {
                "a": dict(latency.a),
                "b": dict(latency.b),
                "b_over_a": {name: latency.ratio(name) for name in latency.a},
            }
            for stage, latency in comparison.latency.items()
        },
        "texts": [dataclasses.asdict(text) for text in comparison.texts],
    }


def _provenance(folder: RunFolder) -> dict[str, Any]:
    """What a record needs to be understood, and run again, once the run's folder is gone."""
    manifest = folder.read_manifest()
    return {part: manifest[part] for part in _PROVENANCE if part in manifest}


def _pairs_to_json(pairs: PairTable) -> dict[str, Any]:
    return {
        **dataclasses.asdict(pairs),
        "n_pairs": pairs.graded,
        "pc_success_a": pairs.percent_a,
        "pc_success_b": pairs.percent_b,
        "pc_success_ci95_a": _percent(pairs.interval_a),
        "pc_success_ci95_b": _percent(pairs.interval_b),
        "mcnemar_p": pairs.mcnemar_p,
    }


def _percent(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [100 * interval.low, 100 * interval.high]


def _outcome_table(comparison: Comparison) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("suite", no_wrap=True)
    for heading in ("pairs", "both", "only A", "only B", "neither", "A", "B", "McNemar p"):
        table.add_column(heading, justify="right")
    rows = dict(comparison.per_suite)
    if len(rows) > 1:
        rows["all"] = comparison.overall
    for name, pairs in rows.items():
        counts = (pairs.graded, pairs.both, pairs.only_a, pairs.only_b, pairs.neither)
        rates = (_rate(pairs.percent_a, pairs.interval_a), _rate(pairs.percent_b, pairs.interval_b))
        p_value = f"{pairs.mcnemar_p:.2g}" if pairs.graded else "–"
        table.add_row(escape(name), *map(str, counts), *rates, p_value)
    return table


def _describe(run: RunIdentity) -> str:
    what = f"{run.policy}, mode {run.mode}, assets {run.assets}"
    return f"{escape(run.run_id)}  [dim]{escape(what)}[/]"


def _rate(percent: float | None, interval: Interval | None) -> str:
    if percent is None or interval is None:
        return "–"
    return f"{percent:.1f} % [dim]({100 * interval.low:.1f} – {100 * interval.high:.1f})[/]"


def _say_actions(actions: ActionDifference) -> str:
    parts = [_say_largest(actions)]
    if actions.n_uneven and actions.first_uneven_counts:
        a, b = actions.first_uneven_counts
        parts.append(
            f"numbers of queries differ in {actions.n_uneven} episodes "
            f"(first {actions.first_uneven}: {a} in A, {b} in B)"
        )
    return "Largest action difference: " + "; ".join(parts) + "."


def _say_largest(actions: ActionDifference) -> str:
    if actions.largest is None:
        return "unknown, the runs recorded no common query"
    over = f"over {actions.n_queries} queries"
    if actions.bitwise_equal:
        return f"[green]0, bitwise equal[/] {over}"
    if actions.largest == 0:
        return f"0 {over}"
    size = "infinite (NaN on one side)" if math.isinf(actions.largest) else f"{actions.largest:.3g}"
    return f"[yellow]{size}[/] {over}, first reached in {actions.key}, query {actions.query}"


def _say_turns(comparison: Comparison) -> str:
    if comparison.in_turns:
        return (
            "Every episode was played in both before the next one: the machine's slow drift is in both "
            "alike; short disturbances may not be."
        )
    return "Two runs, one after the other: the machine's drift is in these latencies."


def _say_latency(stage: str, latency: StageLatency) -> str:
    quantiles = [
        f"{name} {latency.a[name]:.1f} → {latency.b[name]:.1f} ms"
        + ("" if ratio is None else f" (B/A {ratio:.2f})")
        for name in ("p50", "p95")
        for ratio in [latency.ratio(name)]
    ]
    return f"Latency, {stage}: {', '.join(quantiles)}."


def _say_text(text: TextDifference) -> str:
    """One line: the same texts' scores in both runs, and how far apart they are."""
    measure = {"narration": "narrations wholly right", "memory": "F1 of memory"}[text.task]
    interval = (
        "" if text.interval is None else f" [dim]({text.interval[0]:+.1f} – {text.interval[1]:+.1f})[/]"
    )
    return (
        f"Language, {measure} when {text.when}: {text.a:.1f} → {text.b:.1f} %, "
        f"difference {text.difference:+.1f}{interval}."
    )


def _write(path: Path, content: dict[str, Any]) -> None:
    try:
        write_json(path, content)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}; give --json another file") from None


if __name__ == "__main__":
    run_app(app)
