"""`python -m eval.compare RUN_A RUN_B`: two runs over the same episodes, side by side."""

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console

from configs.cli import run_app
from configs.errors import UsageError
from eval.metrics.statistics import Interval
from eval.records.json_files import write_json
from eval.records.schema import RunFolder
from eval.report.comparison import Comparison, PairTable, compare, compare_common
from eval.report.comparison_tables import show
from eval.report.comparison_texts import TextPairs
from eval.report.comparison_verdict import MARGIN, judge

app = App(name="python -m eval.compare", version_flags=[])

_PROVENANCE = ("started", "finished", "config", "weights_sha256", "git", "versions", "hardware")


@app.default
def main(
    run_a: Path,
    run_b: Path,
    /,
    *,
    margin: float = MARGIN,
    partial: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """Compare two runs of the same episodes: outcomes in pairs, actions, latency.

    Args:
        run_a: A run's folder.
        run_b: Another one, of the same protocol, assets and episodes.
        margin: Percentage points of success that B may lose and still count as no worse.
        partial: Compare the episodes that both have, where a run is unfinished or has others.
        json: Also write the comparison to this file, with what the runs came from.
    """
    folders = RunFolder(run_a), RunFolder(run_b)
    comparison = compare_common(*folders) if partial else compare(*folders)
    judgement = judge(comparison.overall, margin)
    if json is not None:
        provenance = dict(zip(("a", "b"), map(_provenance, folders), strict=True))
        verdict = dataclasses.asdict(judgement)
        _write(json, {**to_json(comparison), "verdict": verdict, "provenance": provenance})
    show(comparison, Console(highlight=False), margin=margin)


def to_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain JSON types; an infinite difference, which JSON has no word for, is a string."""
    actions: dict[str, Any] = dataclasses.asdict(comparison.actions)
    if comparison.actions.largest is not None and math.isinf(comparison.actions.largest):
        actions["largest"] = "infinite"
    return {
        "a": dataclasses.asdict(comparison.a),
        "b": dataclasses.asdict(comparison.b),
        "in_turns": comparison.in_turns,
        "partial": comparison.partial,
        "overall": _pairs_to_json(comparison.overall),
        "per_suite": {
            suite: {**_pairs_to_json(pairs), "mcnemar_p_holm": comparison.suite_p_values.get(suite)}
            for suite, pairs in comparison.per_suite.items()
        },
        "actions": actions,
        "latency_ms": {
            stage: {
                "a": dict(latency.a),
                "b": dict(latency.b),
                "b_over_a": {name: latency.ratio(name) for name in latency.a},
            }
            for stage, latency in comparison.latency.items()
        },
        "texts": [dataclasses.asdict(each) for texts in comparison.texts for each in texts.differences],
        "text_pairs": [_text_pairs_to_json(texts) for texts in comparison.texts],
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
        "difference": pairs.difference,
        "difference_ci95": _ends(pairs.difference_ci95),
        "mcnemar_p": pairs.mcnemar_p,
    }


def _text_pairs_to_json(texts: TextPairs) -> dict[str, Any]:
    content: dict[str, Any] = dataclasses.asdict(texts)
    del content["differences"]
    return content


def _ends(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]


def _percent(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [100 * interval.low, 100 * interval.high]


def _write(path: Path, content: dict[str, Any]) -> None:
    try:
        write_json(path, content)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}; give --json another file") from None


if __name__ == "__main__":
    run_app(app)
