"""Simulated coverage of every interval in use, and error rates of verdicts.

`python -m benchmarks.interval_coverage` takes a few minutes on one core. Random numbers are seeded. Coverage
is of existing intervals: if all episodes agree, a bootstrap has none.

A rate of the record has: `what`, the interval or the verdict; `of`, the simulated truth; `episodes` of a
repetition (for ratios of a benchmark, its repetitions); `percent` of repetitions whose interval covers the
truth, or with that verdict; `repetitions` with an interval, and `without` one.
"""

import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cyclopts import App

from benchmarks.record import write_record
from configs.cli import run_app
from eval.bench.measurement import paired_ratio
from eval.metrics.language import difference, percentage
from eval.metrics.noninferiority import PairCounts, Verdict, corrected_verdicts, verdict_of
from eval.metrics.simulated_time import restricted_times, success_curve, time_ratio
from eval.metrics.statistics import (
    Interval,
    cluster_bootstrap_95,
    mean_difference,
    paired_difference_95,
    ratio_of_sums,
    wilson_95,
)
from eval.records.schema import EpisodeResult, Outcome, RequestCounts, Share
from eval.report.comparison_verdict import TIME_MARGIN, judge_time
from sim_envs.world import EpisodeKey

SIZES = (10, 50, 200, 500)
RATES = (0.05, 0.5, 0.9)
DISCORDANT = (0.0, 0.05, 0.1, 0.3)
"""Shares of the pairs that one run alone solves."""
MARGIN = 0.05
SUITES = 4
_WRONG = {0.0: (Verdict.INFERIOR, Verdict.SUPERIOR), -MARGIN: (Verdict.NON_INFERIOR, Verdict.SUPERIOR)}
"""True difference to the verdicts that are wrong then."""
_LIMIT_S = 30.0  # time limit of a simulated episode

app = App(name="python -m benchmarks.interval_coverage")


Rate = dict[str, Any]
"""A simulated rate, as in the record."""
Part = Callable[[float, np.random.Generator], Iterator[Rate]]
"""Simulates the rates of one interval, given a factor of the repetitions and a source of random numbers."""


@app.default
def main(
    *,
    output: Path = Path("benchmarks/results/interval_coverage.json"),
    scale: float = 1.0,
) -> None:
    """Simulate, write the rates to a file, and print them as a table.

    Args:
        output: The file.
        scale: Factor of the number of repetitions; below 1 for a trial.
    """
    begun = time.monotonic()
    rates = list(simulate(scale))
    write_record({"coverage": rates, "seconds": round(time.monotonic() - begun, 1)}, output)
    print(f"{'what':<50} {'truth':<36} {'n':>4} {'percent':>8} {'of':>6} {'without':>8}")
    for rate in rates:
        print(
            f"{rate['what']:<50} {rate['of']:<36} {rate['episodes']:>4} {rate['percent']:>8.1f} "
            f"{rate['repetitions']:>6} {rate['without'] or '':>8}"
        )


def simulate(scale: float = 1.0) -> Iterator[Rate]:
    """Every rate, in the order of the table."""
    for part in PARTS:
        yield from part(scale, np.random.default_rng(0))


def wilson(scale: float, rng: np.random.Generator) -> Iterator[Rate]:
    """Intervals of a success rate."""
    for rate, n in itertools.product(RATES, SIZES):
        sampled = rng.binomial(n, rate, _times(20_000, scale)).tolist()
        interval = functools.cache(functools.partial(wilson_95, trials=n))
        yield _coverage(
            "success rate (Wilson)", f"rate {rate:g}", n, (interval(each) for each in sampled), rate
        )


def tango(scale: float, rng: np.random.Generator) -> Iterator[Rate]:
    """Intervals of a paired difference of success rates."""
    for (gap, discordant), n in itertools.product(_pair_truths((0.0, -MARGIN, -0.2)), SIZES):
        sampled = _draw_pairs(rng, n, gap, discordant, _times(20_000, scale))
        found = (_interval(*pair, n) for pair in sampled)
        yield _coverage("paired difference (Tango)", _format_pairs(gap, discordant), n, found, gap)


def by_rate(
    what: str,
    interval: Callable[[np.random.Generator, int, float], Interval | None],
    truth: Callable[[float], float],
    of: str = "rate {:g}",
) -> Part:
    """Bootstrap intervals of simulated episodes, at every rate; `interval` draws and resamples some."""

    def part(scale: float, rng: np.random.Generator) -> Iterator[Rate]:
        for rate, n in itertools.product(RATES, SIZES):
            found = (interval(rng, n, rate) for _ in range(_bootstraps(n, scale)))
            yield _coverage(f"{what} (bootstrap)", of.format(rate, 0.8 * rate), n, found, truth(rate))

    return part


def texts(rng: np.random.Generator, n: int, rate: float) -> Interval | None:
    """Of a percentage of texts: 8 to 30 an episode, and episodes differ (correlation 1/9)."""
    return _ends(percentage(_shares(rng, *_episodes(rng, n, rate))))


def text_difference(rng: np.random.Generator, n: int, rate: float) -> Interval | None:
    """Of the difference of two percentages of texts over the same episodes."""
    count, right = _episodes(rng, n, rate)
    return _ends(difference(_shares(rng, count, right), _shares(rng, count, 0.8 * right)))


def currency(rng: np.random.Generator, n: int, rate: float) -> Interval | None:
    """Of the share of simulated time in which the last text is true."""
    seconds = rng.uniform(4, 14, n)
    true = seconds * rng.beta(8 * rate, 8 * (1 - rate), n)
    return cluster_bootstrap_95(ratio_of_sums, true, seconds, method="percentile")


def restricted(rng: np.random.Generator, n: int, rate: float) -> Interval | None:
    """Of the ratio of restricted mean times: A solves at a rate, B at 0.8 of it, in 3 to 12 s."""
    solved = rng.random((n, 2)) < (rate, 0.8 * rate)
    seconds = np.where(solved, rng.uniform(3, 12, (n, 2)), np.nan)
    a, b = ([_episode(None if np.isnan(s) else s) for s in column] for column in seconds.T.tolist())
    found = restricted_times(list(zip(a, b, strict=True)), {"simulated": _LIMIT_S})
    return found and found.ci95


def _restricted_truth(rate: float) -> float:
    a, b = (share * 7.5 + (1 - share) * _LIMIT_S for share in (rate, 0.8 * rate))
    return b / a


def motion(scale: float, rng: np.random.Generator) -> Iterator[Rate]:
    """Intervals of a paired difference of means of a skewed measure, whose scatter is half its median."""
    for ratio, n in itertools.product((1.0, 1.2), SIZES):
        sampled = (
            np.exp(0.5 * rng.standard_normal((n, 2))) * (1, ratio) for _ in range(_bootstraps(n, scale))
        )
        found = (mean_difference(pairs.tolist()) for pairs in sampled)
        truth = (ratio - 1) * np.exp(0.125)
        intervals = (each and each.ci95 for each in found)
        yield _coverage("quality of motion (bootstrap)", f"ratio {ratio:g}", n, intervals, truth)


def times(scale: float, rng: np.random.Generator) -> Iterator[Rate]:
    """Intervals of the ratio of times to success, and their verdicts."""
    kinds = {1.0: (Verdict.INFERIOR, Verdict.SUPERIOR), 1 + TIME_MARGIN / 100: (Verdict.NON_INFERIOR,)}
    for (ratio, wrong), n in itertools.product(kinds.items(), SIZES):
        found = [time_ratio(_timed(rng, n, ratio)) for _ in range(_bootstraps(n, scale))]
        of = f"ratio {ratio:g}"
        yield _coverage("time ratio (bootstrap)", of, n, (each and each.ci95 for each in found), ratio)
        judged = [judgement.verdict for each in found if (judgement := judge_time(each))]
        yield _share(f"time called {_format(wrong)}", of, n, [verdict in wrong for verdict in judged])


def bench_ratios(scale: float, rng: np.random.Generator) -> Iterator[Rate]:
    """Intervals of a benchmark's ratio, under common drift and long-tailed noise of 2 %."""
    for n in (6, 10, 20, 50):
        sampled = (
            (np.exp(np.cumsum(rng.normal(0, 0.3, n))), np.exp(0.02 * rng.standard_t(3, (2, n))))
            for _ in range(_times(500, scale))
        )
        intervals = (paired_ratio(3 * drift * noise[0], drift * noise[1]).ci95 for drift, noise in sampled)
        yield _coverage("bench ratio (order statistics)", "ratio 3", n, intervals, 3)


def curves(scale: float, rng: np.random.Generator) -> Iterator[Rate]:
    """The band of success over time at the times by which a half and all of the successes are expected."""
    for rate, n in itertools.product(RATES, SIZES):
        sampled = [_curve_bands(rng, n, rate) for _ in range(_times(500, scale))]
        for place, part in enumerate((0.5, 1.0)):
            of = f"rate {rate:g}, {100 * part:g} % of it by then"
            bands = (bands[place] for bands in sampled)
            yield _coverage("success by a time (Wilson)", of, n, bands, 100 * rate * part)


def verdicts(scale: float, rng: np.random.Generator) -> Iterator[Rate]:
    """Rates at which identical runs are told apart, and runs at the margin are called non-inferior."""
    for (gap, discordant), n in itertools.product(_pair_truths(_WRONG), SIZES):
        sampled = _draw_pairs(rng, n, gap, discordant, _times(20_000, scale))
        wrong = [verdict_of(_interval(*pair, n), MARGIN) in _WRONG[gap] for pair in sampled]
        yield _share(f"called {_format(_WRONG[gap])}", _format_pairs(gap, discordant), n, wrong)


def holm_verdicts(scale: float, rng: np.random.Generator) -> Iterator[Rate]:
    """Rates at which any of several suites of equal size has a wrong verdict."""
    for (gap, wrong), n in itertools.product(_WRONG.items(), SIZES):
        pairs = _draw_pairs(rng, n, gap, 0.1, _times(2000, scale) * SUITES)
        sampled = (PairCounts(only_a=a, only_b=b, pairs=n) for a, b in pairs)
        found = [
            not set(wrong).isdisjoint(corrected_verdicts(suites, MARGIN))
            for suites in zip(*[sampled] * SUITES, strict=True)
        ]
        yield _share(f"any of {SUITES} suites {_format(wrong)}", _format_pairs(gap, 0.1), n, found)


PARTS: Sequence[Part] = (
    wilson,
    tango,
    by_rate("texts", texts, lambda rate: 100 * rate),
    by_rate("difference of texts", text_difference, lambda rate: 20 * rate, "rate {:g} and {:g}"),
    by_rate("currency of texts", currency, lambda rate: rate),
    times,
    by_rate("restricted mean time", restricted, _restricted_truth, "rate {:g} and {:g}"),
    motion,
    bench_ratios,
    curves,
    verdicts,
    holm_verdicts,
)


def _times(repetitions: int, scale: float) -> int:
    return max(2, round(scale * repetitions))


def _bootstraps(n: int, scale: float) -> int:
    """Repetitions; a bootstrap over more episodes takes longer."""
    return _times({10: 1000, 50: 500, 200: 300, 500: 200}[n], scale)


def _coverage(what: str, of: str, n: int, intervals: Iterable[Interval | None], truth: float) -> Rate:
    found = list(intervals)
    # The tolerance is for rounding at a bound.
    covered = [each.low - 1e-9 <= truth <= each.high + 1e-9 for each in found if each is not None]
    return _share(what, of, n, covered, without=len(found) - len(covered))


def _share(what: str, of: str, n: int, happened: Sequence[bool], *, without: int = 0) -> Rate:
    percent = round(100 * sum(happened) / len(happened), 2) if happened else float("nan")
    repetitions = {"repetitions": len(happened), "without": without}
    return {"what": what, "of": of, "episodes": n, "percent": percent, **repetitions}


def _format(verdicts: Iterable[Verdict]) -> str:
    return " or ".join(verdicts)


def _pair_truths(gaps: Iterable[float]) -> Iterator[tuple[float, float]]:
    """B minus A, and the share of discordant pairs: none is less than the difference."""
    for gap in gaps:
        yield from ((gap, discordant) for discordant in DISCORDANT if discordant >= abs(gap))


def _format_pairs(gap: float, discordant: float) -> str:
    return f"difference {gap:g}, discordant {discordant:g}"


def _draw_pairs(
    rng: np.random.Generator, n: int, gap: float, discordant: float, repetitions: int
) -> list[tuple[int, int]]:
    """Pairs that A alone and that B alone solved."""
    shares = [(discordant - gap) / 2, (discordant + gap) / 2, 1 - discordant]
    return [(a, b) for a, b, _ in rng.multinomial(n, shares, repetitions).tolist()]


@functools.cache
def _interval(only_a: int, only_b: int, pairs: int) -> Interval:
    found = paired_difference_95(only_a, only_b, pairs)
    assert found is not None
    return found


def _episodes(rng: np.random.Generator, n: int, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """The number of texts of each episode, and the rate at which they are right."""
    return rng.integers(8, 31, n), rng.beta(8 * rate, 8 * (1 - rate), n)


def _shares(rng: np.random.Generator, of: np.ndarray, right: np.ndarray) -> list[Share]:
    hits = rng.binomial(of, right)
    return [Share(hits=h, of=n) for h, n in zip(hits.tolist(), of.tolist(), strict=True)]


def _ends(row: dict | None) -> Interval | None:
    return None if row is None or row["ci95"] is None else Interval(low=row["ci95"][0], high=row["ci95"][1])


def _episode(seconds: float | None) -> EpisodeResult:
    """An episode solved after `seconds` of simulated time, or not within its limit if None."""
    return EpisodeResult(
        key=EpisodeKey(suite="simulated", task_id=0, init_id=0, seed=0),
        task="",
        instruction="",
        language="",
        outcome=Outcome.TIMEOUT if seconds is None else Outcome.SUCCESS,
        steps=0,
        queries=0,
        latency_ms={},
        tokens=0,
        requests=RequestCounts(),
        policy_s=0.0,
        wall_s=0.0,
        simulated_s=_LIMIT_S if seconds is None else seconds,
    )


def _timed(rng: np.random.Generator, n: int, ratio: float) -> list[tuple[EpisodeResult, EpisodeResult]]:
    """Pairs solved by both, in which either run needs a second try (1.8 times as long) in one of ten."""
    seconds = rng.uniform(3, 12, n)
    noise = np.exp(0.1 * rng.standard_normal((2, n)) + np.log(1.8) * (rng.random((2, n)) < 0.1))
    a, b = seconds * noise[0], ratio * seconds * noise[1]
    return [(_episode(x), _episode(y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]


def _curve_bands(rng: np.random.Generator, n: int, rate: float) -> list[Interval]:
    """The band at 6 seconds and at 12: successes come at every half second up to 12, all alike."""
    solved = rng.random(n) < rate
    seconds = 0.5 * rng.integers(1, 25, n)
    curve = success_curve(
        [_episode(s if yes else None) for s, yes in zip(seconds.tolist(), solved, strict=True)]
    )
    points = [[each for each in curve if each.seconds <= at][-1] for at in (6.0, 12.0)]
    return [Interval(low=point.low, high=point.high) for point in points]


if __name__ == "__main__":
    run_app(app)
