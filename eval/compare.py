"""`oxygen-eval compare RUN_A RUN_B`: two runs over the same episodes, side by side."""

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.text import Text

from configs.cli import run_app
from configs.console import TextConsole, visible_text
from configs.paths import usable_file
from contracts.errors import UsageError
from eval.metrics.simulated_time import RestrictedTimes, TimeRatio
from eval.metrics.statistics import rate_95, scaled
from eval.records.json_files import write_json
from eval.records.reader import RunRecords
from eval.records.schema import RunFolder
from eval.report.comparison import Comparison, PairTable, compare
from eval.report.comparison_verdict import Judgement, Judgements, judge_all, show
from eval.report.conclusion import conclude
from eval.report.figures import draw_success_curves

app = App(name="oxygen-eval compare")

_PROVENANCE = ("started", "finished", "config", "weights_sha256", "git", "versions", "hardware")


@app.default
def main(
    run_a: Path,
    run_b: Path,
    /,
    *,
    margin: float | None = None,
    time_margin: float | None = None,
    partial: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[Path | None, Parameter(name="--json")] = None,
    plot: Path | None = None,
) -> None:
    """Compare two runs of the same episodes: success, time to success, actions, latency, texts.

    Args:
        run_a: Folder of the reference run.
        run_b: Folder of the run to judge, with the same protocol, assets and episodes.
        margin: Non-inferiority margin of B's success rate, percentage points. Default: declared by run A.
        time_margin: Non-inferiority margin of B's time to success, percent. Default: likewise.
        partial: Compare only the episodes that both runs have.
        json: Also write the comparison and the runs' provenance to this file.
        plot: Also draw success over time to this PNG file.
    """
    if json is not None:
        usable_file(json, "--json")
    picture = None if plot is None else usable_file(plot, "--plot")
    if picture is not None and picture.suffix.lower() != ".png":
        raise UsageError(f"cannot draw {str(plot)!r}; --plot takes a file whose name ends in .png")
    runs = RunRecords(RunFolder(run_a)), RunRecords(RunFolder(run_b))
    comparison = compare(*runs, partial=partial)
    margin = comparison.a.margin if margin is None else margin
    time_margin = comparison.a.time_margin if time_margin is None else time_margin
    judgements = judge_all(comparison, margin, time_margin)
    if json is not None:
        provenance = {
            name: {part: manifest[part] for part in _PROVENANCE if part in manifest}
            for name, manifest in zip("ab", (run.folder.read_manifest() for run in runs), strict=True)
        }
        write_json(json, {**to_json(comparison, judgements), "provenance": provenance})
    if picture is not None:
        draw_success_curves(comparison, picture)
    console = TextConsole()
    first, second = comparison.names
    sentence = conclude(first, {second: (comparison, judgements)})
    console.print(Text(visible_text(sentence), style="bold"), end="\n\n")
    show(comparison, judgements, console)


def to_json(comparison: Comparison, judgements: Judgements) -> dict[str, Any]:
    """A comparison as JSON types; an infinite difference, which JSON cannot express, is a string."""
    p_values, times, restricted = comparison.suite_p_values, comparison.time_ratio, comparison.restricted
    actions: dict[str, Any] = dataclasses.asdict(comparison.actions)
    if comparison.actions.largest is not None and math.isinf(comparison.actions.largest):
        actions["largest"] = "infinite"
    texts: list[dict[str, Any]] = [dataclasses.asdict(each) for each in comparison.texts]

    def ratio(of: TimeRatio | RestrictedTimes, judged: Judgement | None) -> dict[str, Any]:
        verdict = judged and dataclasses.asdict(judged)
        return {"b_over_a": of.ratio, "b_over_a_ci95": of.ci95, "verdict": verdict}

    return {
        "a": comparison.a.to_json(),
        "b": comparison.b.to_json(),
        "in_turns": comparison.in_turns,
        "partial": comparison.partial,
        "overall": _pairs_to_json(comparison.overall),
        "verdict": dataclasses.asdict(judgements.success),
        "per_suite": {
            suite: {
                **_pairs_to_json(pairs),
                "mcnemar_p_holm": p_values.get(suite),
                "verdict": judgements.per_suite[suite],
            }
            for suite, pairs in comparison.per_suite.items()
        },
        "time_to_success": times and {"n_pairs": times.n_pairs, **ratio(times, judgements.time)},
        "restricted_mean_time": restricted
        and {**dataclasses.asdict(restricted.seconds), **ratio(restricted, judgements.restricted)},
        "currency": {task: dataclasses.asdict(each) for task, each in comparison.currency.items()},
        "motion": {measure: dataclasses.asdict(each) for measure, each in comparison.motion.items()},
        "success_over_time": {
            run: [
                {"seconds": seconds, "pc_success": rate.percent, "pc_success_ci95": rate.interval}
                for seconds, rate in curve
            ]
            for run, curve in (("a", comparison.curve_a), ("b", comparison.curve_b))
        },
        "actions": actions,
        "latency_ms": {
            stage: {**dataclasses.asdict(each), "b_over_a": {name: each.ratio(name) for name in vars(each.a)}}
            for stage, each in comparison.latency.items()
        },
        "texts": [
            {"task": each["task"], "when": when, **difference}
            for each in texts
            for when, difference in each.pop("differences").items()
        ],
        "text_pairs": texts,
    }


def _pairs_to_json(pairs: PairTable) -> dict[str, Any]:
    found = {name: getattr(pairs, name) for name in ("n_episodes", "both", "only_a", "only_b", "neither")}
    for name, side in (("a", pairs.a), ("b", pairs.b)):
        found[f"n_errors_{name}"] = side.n_errors
        found[f"pc_success_{name}"] = side.percent
        found[f"pc_success_ci95_{name}"] = scaled(rate_95(side.solved, side.states), 100)
        found[f"seeds_{name}"] = side.by_seed and dataclasses.asdict(side.by_seed)
    return {
        **found,
        "paired": pairs.paired,
        "n_pairs": pairs.graded if pairs.paired else 0,
        "n_states": len({*pairs.a.states}),
        "difference": pairs.difference,
        "difference_ci95": pairs.ci95,
        "mcnemar_p": pairs.p_value if pairs.paired else None,
        "p_value": pairs.p_value,
    }


if __name__ == "__main__":
    run_app(app)
