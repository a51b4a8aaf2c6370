"""A comparison and its verdicts as JSON."""

import dataclasses
import math
from typing import Any

from eval.metrics.statistics import bounds
from eval.report.comparison import Comparison
from eval.report.comparison_verdict import Judgements
from eval.report.pair_table import PairTable


def to_json(comparison: Comparison, judgements: Judgements) -> dict[str, Any]:
    """A comparison as JSON types; an infinite difference, which JSON cannot express, is a string."""
    p_values = comparison.suite_p_values
    actions: dict[str, Any] = dataclasses.asdict(comparison.actions)
    if comparison.actions.largest is not None and math.isinf(comparison.actions.largest):
        actions["largest"] = "infinite"
    texts: list[dict[str, Any]] = [dataclasses.asdict(each) for each in comparison.texts]
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
        "time_to_success": _times_to_json(comparison, judgements),
        "restricted_mean_time": _restricted_to_json(comparison, judgements),
        "currency": {task: dataclasses.asdict(each) for task, each in comparison.currency.items()},
        "motion": {measure: dataclasses.asdict(each) for measure, each in comparison.motion.items()},
        "success_over_time": {
            run: [
                {
                    "seconds": point.seconds,
                    "pc_success": point.percent,
                    "pc_success_ci95": [point.low, point.high],
                }
                for point in curve
            ]
            for run, curve in (("a", comparison.curve_a), ("b", comparison.curve_b))
        },
        "actions": actions,
        "latency_ms": {
            stage: {
                **dataclasses.asdict(latency),
                "b_over_a": {name: latency.ratio(name) for name in latency.a},
            }
            for stage, latency in comparison.latency.items()
        },
        "texts": [difference for each in texts for difference in each.pop("differences")],
        "text_pairs": texts,
        "staleness_s": {task: dataclasses.asdict(each) for task, each in comparison.staleness.items()},
    }


def _times_to_json(comparison: Comparison, judgements: Judgements) -> dict[str, Any] | None:
    times = comparison.time_ratio
    if times is None:
        return None
    return {
        "n_pairs": times.n_pairs,
        "b_over_a": times.ratio,
        "b_over_a_ci95": bounds(times.ci95),
        "verdict": None if judgements.time is None else dataclasses.asdict(judgements.time),
    }


def _restricted_to_json(comparison: Comparison, judgements: Judgements) -> dict[str, Any] | None:
    times = comparison.restricted
    if times is None:
        return None
    return {
        **dataclasses.asdict(times.seconds),
        "b_over_a": times.ratio,
        "b_over_a_ci95": bounds(times.ci95),
        "verdict": None if judgements.restricted is None else dataclasses.asdict(judgements.restricted),
    }


def _pairs_to_json(pairs: PairTable) -> dict[str, Any]:
    return {
        **dataclasses.asdict(pairs),
        "n_pairs": pairs.graded,
        "pc_success_a": pairs.percent_a,
        "pc_success_b": pairs.percent_b,
        "pc_success_ci95_a": bounds(pairs.interval_a, 100),
        "pc_success_ci95_b": bounds(pairs.interval_b, 100),
        "difference": pairs.difference,
        "difference_ci95": bounds(pairs.difference_ci95),
        "mcnemar_p": pairs.mcnemar_p,
    }
