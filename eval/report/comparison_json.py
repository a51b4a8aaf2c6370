"""A comparison and its verdicts as JSON."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from eval.metrics.statistics import ends
from eval.metrics.time_to_success import CurvePoint, TimeRatio
from eval.report.comparison import Comparison, StageLatency
from eval.report.comparison_texts import TextPairs
from eval.report.comparison_verdict import Judgements
from eval.report.pair_table import PairTable


def to_json(comparison: Comparison, judgements: Judgements) -> dict[str, Any]:
    """The comparison; an infinite difference, which JSON has no word for, is a string."""
    p_values = comparison.suite_p_values
    actions: dict[str, Any] = dataclasses.asdict(comparison.actions)
    if comparison.actions.largest is not None and math.isinf(comparison.actions.largest):
        actions["largest"] = "infinite"
    return {
        "a": dataclasses.asdict(comparison.a),
        "b": dataclasses.asdict(comparison.b),
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
        "time_to_success": _times_to_json(comparison.time_ratio, judgements),
        "success_over_time": {
            "a": _curve_to_json(comparison.curve_a),
            "b": _curve_to_json(comparison.curve_b),
        },
        "actions": actions,
        "latency_ms": _latency_to_json(comparison.latency),
        "texts": [dataclasses.asdict(each) for texts in comparison.texts for each in texts.differences],
        "text_pairs": [_text_pairs_to_json(texts) for texts in comparison.texts],
        "staleness_s": {task: dataclasses.asdict(each) for task, each in comparison.staleness.items()},
    }


def _times_to_json(times: TimeRatio | None, judgements: Judgements) -> dict[str, Any] | None:
    if times is None:
        return None
    return {
        "n_pairs": times.n_pairs,
        "b_over_a": times.ratio,
        "b_over_a_ci95": ends(times.ci95),
        "verdict": None if judgements.time is None else dataclasses.asdict(judgements.time),
    }


def _curve_to_json(curve: Sequence[CurvePoint]) -> list[dict[str, Any]]:
    return [
        {"seconds": point.seconds, "pc_success": point.percent, "pc_success_ci95": [point.low, point.high]}
        for point in curve
    ]


def _latency_to_json(stages: Mapping[str, StageLatency]) -> dict[str, Any]:
    return {
        stage: {
            "a": dict(latency.a),
            "b": dict(latency.b),
            "b_over_a": {name: latency.ratio(name) for name in latency.a},
        }
        for stage, latency in stages.items()
    }


def _pairs_to_json(pairs: PairTable) -> dict[str, Any]:
    return {
        **dataclasses.asdict(pairs),
        "n_pairs": pairs.graded,
        "pc_success_a": pairs.percent_a,
        "pc_success_b": pairs.percent_b,
        "pc_success_ci95_a": ends(pairs.interval_a, 100),
        "pc_success_ci95_b": ends(pairs.interval_b, 100),
        "difference": pairs.difference,
        "difference_ci95": ends(pairs.difference_ci95),
        "mcnemar_p": pairs.mcnemar_p,
    }


def _text_pairs_to_json(texts: TextPairs) -> dict[str, Any]:
    content: dict[str, Any] = dataclasses.asdict(texts)
    del content["differences"]
    return content
