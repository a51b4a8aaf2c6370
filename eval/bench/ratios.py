"""Ratios of two modes that were run in turns: paired by repetition, with a bootstrap interval."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eval.bench.schedule import StageTimes
from eval.statistics import Interval, cluster_bootstrap_95


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ratio:
    """A ratio and its 95 % interval, which is None where one repetition is all there is."""

    value: float
    ci95: Interval | None


def paired_ratio(
    numerators: Sequence[float], denominators: Sequence[float], *, expected: Sequence[float] | None = None
) -> Ratio:
    """The median over repetitions of numerator by denominator, and by what was `expected` of it if given.

    The machine's drift is common to both sides of a repetition, so it cancels before anything is averaged;
    the median forgives a repetition that was disturbed. Interval: percentile bootstrap over repetitions.

    Raises:
        ValueError: No repetitions, or not as many on each side.
    """
    if not numerators:
        raise ValueError("a ratio of no repetitions")
    by = expected or (1.0,) * len(numerators)
    ratios = np.array([a / b / c for a, b, c in zip(numerators, denominators, by, strict=True)])
    return Ratio(value=float(np.median(ratios)), ci95=cluster_bootstrap_95(np.median, ratios))


def decode_growth(stages: Sequence[StageTimes]) -> Ratio | None:
    """A decode step of the largest batch by one of the smallest, paired; None where there is but one size."""
    sizes = sorted(stages[0].decode)
    if len(sizes) < 2:
        return None
    least, *_, most = sizes
    return paired_ratio([times.decode[most] for times in stages], [times.decode[least] for times in stages])
