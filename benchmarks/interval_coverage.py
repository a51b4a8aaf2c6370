"""Simulated coverage of every interval in use, and error rates of verdicts.

`python -m benchmarks.interval_coverage` takes a few minutes on one core. Random numbers are seeded. Coverage
is of existing intervals: if all episodes agree, a bootstrap has none.

A rate of the record has: `what`, the interval or the verdict; `of`, the simulated truth; `episodes` of a
repetition (for ratios of a benchmark, its repetitions); `percent` of repetitions whose interval covers the
truth, or with that verdict; `repetitions` with an interval, and `without` one.
"""

import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cyclopts import App

from benchmarks.record import record
from configs.cli import run_app
from contracts.episode import EpisodeKey, EpisodeResult, Outcome, RequestCounts, Share
from eval.bench.measurement import paired_ratio
from eval.metrics.language import percentage, share_difference
from eval.metrics.noninferiority import PairCounts, Verdict, corrected_verdicts, verdict_of
from eval.metrics.simulated_time import restricted_times, success_curve, time_ratio
from eval.metrics.statistics import (
    Interval,
    cluster_bootstrap_95,
    mean_difference,
    paired_difference_95,
    rate_95,
    ratio_of_sums,
    wilson_95,
)
from eval.report.comparison import Outcomes, PairTable
from eval.report.comparison_verdict import TIME_MARGIN, judge_time

SIZES = (10, 50, 200, 500)
RATES = (0.05, 0.5, 0.9)
DISCORDANT = (0.0, 0.05, 0.1, 0.3)
"""Shares of the pairs that one run alone solves."""
MARGIN = 0.05
SUITES = 4
SEEDS = 3
_WRONG = {0.0: (Verdict.INFERIOR, Verdict.SUPERIOR), -MARGIN: (Verdict.NON_INFERIOR, Verdict.SUPERIOR)}
"""True difference to the verdicts that are wrong then."""
_LIMIT_S = 30.0  # time limit of a simulated episode
_BOOTSTRAPS = {10: 1000, 50: 500, 200: 300, 500: 200}
"""Episodes to repetitions; a bootstrap over more of them takes longer."""

_STATES = itertools.count()  # of simulated episodes

app = App(name="python -m benchmarks.interval_coverage")


Rate = dict[str, Any]
"""A simulated rate, as in the record."""
Repeat = Callable[[int], range]
"""Scales a number of repetitions."""

_wilson, _tango = functools.cache(wilson_95), functools.cache(paired_difference_95)


@app.default
def main(
    *,
    output: Path = Path("benchmarks/results/interval_coverage.json"),
    scale: float = 1.0,
) -> None:
    """Simulate, and write the rates to a file.

    Args:
        output: The file.
        scale: Factor of the number of repetitions; below 1 for a trial.
    """
    begun = time.monotonic()
    rates = list(simulate(scale))
    record({"coverage": rates, "seconds": round(time.monotonic() - begun, 1)}, output)


def simulate(scale: float) -> Iterator[Rate]:
    """Every rate."""
    for part in PARTS:
        yield from part(np.random.default_rng(0), lambda count: range(max(2, round(scale * count))))


def success(rng: np.random.Generator, repeat: Repeat) -> Iterator[Rate]:
    """Intervals of a success rate."""
    for rate, n in itertools.product(RATES, SIZES):
        found = [_wilson(int(rng.binomial(n, rate)), n) for _ in repeat(20_000)]
        yield _coverage("success rate (Wilson)", f"rate {rate:g}", n, found, rate)


def paired_success(rng: np.random.Generator, repeat: Repeat) -> Iterator[Rate]:
    """Intervals of a paired difference of success rates, and wrong verdicts.

    These tell identical runs apart, or call runs at the margin non-inferior.
    """
    truths = [(gap, share) for gap in (*_WRONG, -0.2) for share in DISCORDANT if share >= abs(gap)]
    for (gap, discordant), n in itertools.product(truths, SIZES):
        found = [_tango(*_draw_pairs(rng, n, gap, discordant), n) for _ in repeat(20_000)]
        of = f"difference {gap:g}, discordant {discordant:g}"
        yield _coverage("paired difference (Tango)", of, n, found, gap)
        if wrong := _WRONG.get(gap):
            called = [verdict_of(each, MARGIN) in wrong for each in found if each is not None]
            yield _share(f"called {' or '.join(wrong)}", of, n, called)


def seeds(rng: np.random.Generator, repeat: Repeat) -> Iterator[Rate]:
    """Intervals over initial states that are played with several seeds, alike to some correlation."""
    for (rate, alike), n in itertools.product(itertools.product(RATES, (0.0, 0.3, 1.0)), SIZES[:-1]):
        states = np.repeat(np.arange(n), SEEDS).tolist()
        found, differences, unpaired = [], [], []
        for _ in repeat(_BOOTSTRAPS[n]):
            solved = [_alike(rng, n, rate, alike).tolist() for _ in range(2)]
            found.append(rate_95(solved[0], states))
            a, b = (
                Outcomes(solved=each, states=states, seeds=(), n_errors=0, n_episodes=len(each))
                for each in solved
            )
            table = PairTable(n_episodes=len(states), a=a, b=b)
            differences.append(table.ci95)
            unpaired.append(dataclasses.replace(table, paired=False).ci95)
        of = f"rate {rate:g}, correlation {alike:g}"
        yield _coverage(f"success rate, {SEEDS} seeds (Wilson)", of, n, found, rate)
        yield _coverage(f"paired difference, {SEEDS} seeds (Tango)", of, n, differences, 0.0)
        yield _coverage(f"difference, {SEEDS} seeds (Agresti and Caffo)", of, n, unpaired, 0.0)


def _alike(rng: np.random.Generator, n: int, rate: float, correlation: float) -> np.ndarray:
    """Outcomes of all seeds of each initial state, of a rate that differs between states."""
    if correlation == 1:
        return np.repeat(rng.random(n) < rate, SEEDS)
    spread = (1 - correlation) / correlation if correlation else np.inf
    rates = np.full(n, rate) if np.isinf(spread) else rng.beta(spread * rate, spread * (1 - rate), n)
    return rng.random(n * SEEDS) < np.repeat(rates, SEEDS)


def suites(rng: np.random.Generator, repeat: Repeat) -> Iterator[Rate]:
    """Rates at which any of several suites of equal size has a wrong verdict."""
    for (gap, wrong), n in itertools.product(_WRONG.items(), SIZES):
        found = []
        for _ in repeat(2000):
            drawn = [_draw_pairs(rng, n, gap, 0.1) for _ in range(SUITES)]
            counts = [PairCounts(only_a=a, only_b=b, pairs=n) for a, b in drawn]
            found.append(not set(wrong).isdisjoint(corrected_verdicts(counts, MARGIN)))
        what = f"any of {SUITES} suites {' or '.join(wrong)}"
        yield _share(what, f"difference {gap:g}, discordant 0.1", n, found)


def bootstrap(
    what: str,
    interval: Callable[[np.random.Generator, int, float], Interval | None],
    truth: Callable[[float], float],
    rng: np.random.Generator,
    repeat: Repeat,
    *,
    of: str = "rate {:g}",
    settings: Sequence[float] = RATES,
) -> Iterator[Rate]:
    """Bootstrap intervals of simulated episodes, in every setting; `interval` draws and resamples some."""
    for setting, n in itertools.product(settings, SIZES):
        found = [interval(rng, n, setting) for _ in repeat(_BOOTSTRAPS[n])]
        yield _coverage(f"{what} (bootstrap)", of.format(setting, 0.8 * setting), n, found, truth(setting))


def texts(rng: np.random.Generator, n: int, rate: float) -> Interval | None:
    """Of a percentage of texts: 8 to 30 an episode, and episodes differ (correlation 1/9)."""
    row = percentage(_shares(rng, *_episodes(rng, n, rate)), range(n))
    return None if row is None else row.ci95


def text_difference(rng: np.random.Generator, n: int, rate: float) -> Interval | None:
    """Of the difference of two percentages of texts over the same episodes."""
    count, right = _episodes(rng, n, rate)
    row = share_difference(_shares(rng, count, 0.8 * right), _shares(rng, count, right), range(n))
    return None if row is None else row.ci95


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
    return None if found is None else found.ci95


def _restricted_truth(rate: float) -> float:
    a, b = (share * 7.5 + (1 - share) * _LIMIT_S for share in (rate, 0.8 * rate))
    return b / a


def motion(rng: np.random.Generator, n: int, ratio: float) -> Interval | None:
    """Of a paired difference of means of a skewed measure, whose scatter is half its median."""
    pairs = np.exp(0.5 * rng.standard_normal((n, 2))) * (1, ratio)
    found = mean_difference(pairs.tolist(), range(n))
    return None if found is None else found.ci95


def times(rng: np.random.Generator, repeat: Repeat) -> Iterator[Rate]:
    """Intervals of the ratio of times to success, and their verdicts.

    Of pairs solved by both, in which either run needs a second try (1.8 times as long) in one of ten.
    """
    kinds = {1.0: (Verdict.INFERIOR, Verdict.SUPERIOR), 1 + TIME_MARGIN / 100: (Verdict.NON_INFERIOR,)}
    for (ratio, wrong), n in itertools.product(kinds.items(), SIZES):
        found = []
        for _ in repeat(_BOOTSTRAPS[n]):
            seconds = rng.uniform(3, 12, n)
            noise = np.exp(0.1 * rng.standard_normal((2, n)) + np.log(1.8) * (rng.random((2, n)) < 0.1))
            both = zip((seconds * noise[0]).tolist(), (ratio * seconds * noise[1]).tolist(), strict=True)
            found.append(time_ratio([(_episode(a), _episode(b)) for a, b in both]))
        of = f"ratio {ratio:g}"
        yield _coverage(
            "time ratio (bootstrap)", of, n, [None if each is None else each.ci95 for each in found], ratio
        )
        judged = [judgement.verdict in wrong for each in found if (judgement := judge_time(each))]
        yield _share(f"time called {' or '.join(wrong)}", of, n, judged)


def bench_ratios(rng: np.random.Generator, repeat: Repeat) -> Iterator[Rate]:
    """Intervals of a benchmark's ratio, under common drift and long-tailed noise of 2 %."""
    for n in (6, 10, 20, 50):
        found = []
        for _ in repeat(500):
            drift = np.exp(np.cumsum(rng.normal(0, 0.3, n)))
            noise = np.exp(0.02 * rng.standard_t(3, (2, n)))
            found.append(paired_ratio(3 * drift * noise[0], drift * noise[1]).ci95)
        yield _coverage("bench ratio (order statistics)", "ratio 3", n, found, 3)


def curves(rng: np.random.Generator, repeat: Repeat) -> Iterator[Rate]:
    """The band of success over time at the times by which a half and all of the successes are expected.

    Successes come at every half second up to 12, all alike.
    """
    for rate, n in itertools.product(RATES, SIZES):
        bands: dict[float, list[Interval]] = {6.0: [], 12.0: []}
        for _ in repeat(500):
            solved = rng.random(n) < rate
            seconds = 0.5 * rng.integers(1, 25, n)
            ends = zip(seconds.tolist(), solved, strict=True)
            curve = success_curve([_episode(s if yes else None) for s, yes in ends])
            for until, found in bands.items():
                found.append([rate.interval for at, rate in curve if at <= until][-1])
        for until, found in bands.items():
            of = f"rate {rate:g}, {100 * until / 12:g} % of it by then"
            yield _coverage("success by a time (Wilson)", of, n, found, 100 * rate * until / 12)


PARTS: Sequence[Callable[[np.random.Generator, Repeat], Iterator[Rate]]] = (
    success,
    paired_success,
    seeds,
    suites,
    functools.partial(bootstrap, "texts", texts, lambda rate: 100 * rate),
    functools.partial(
        bootstrap, "difference of texts", text_difference, lambda rate: 20 * rate, of="rate {:g} and {:g}"
    ),
    functools.partial(bootstrap, "currency of texts", currency, lambda rate: rate),
    functools.partial(
        bootstrap, "restricted mean time", restricted, _restricted_truth, of="rate {:g} and {:g}"
    ),
    functools.partial(
        bootstrap,
        "quality of motion",
        motion,
        lambda ratio: (ratio - 1) * math.exp(0.125),
        of="ratio {:g}",
        settings=(1.0, 1.2),
    ),
    times,
    bench_ratios,
    curves,
)
"""Simulate the rates of an interval each, with a source of random numbers of their own."""


def _coverage(what: str, of: str, n: int, found: Sequence[Interval | None], truth: float) -> Rate:
    # The tolerance is for rounding at a bound.
    covered = [each.low - 1e-9 <= truth <= each.high + 1e-9 for each in found if each is not None]
    return _share(what, of, n, covered, without=len(found) - len(covered))


def _share(what: str, of: str, n: int, happened: Sequence[bool], *, without: int = 0) -> Rate:
    percent = round(100 * sum(happened) / len(happened), 2) if happened else float("nan")
    repetitions = {"repetitions": len(happened), "without": without}
    return {"what": what, "of": of, "episodes": n, "percent": percent, **repetitions}


def _draw_pairs(rng: np.random.Generator, n: int, gap: float, discordant: float) -> tuple[int, int]:
    """Pairs that A alone and that B alone solved."""
    shares = [(discordant - gap) / 2, (discordant + gap) / 2, 1 - discordant]
    only_a, only_b, _ = rng.multinomial(n, shares).tolist()
    return only_a, only_b


def _episodes(rng: np.random.Generator, n: int, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """The number of texts of each episode, and the rate at which they are right."""
    return rng.integers(8, 31, n), rng.beta(8 * rate, 8 * (1 - rate), n)


def _shares(rng: np.random.Generator, of: np.ndarray, right: np.ndarray) -> list[Share]:
    hits = rng.binomial(of, right)
    return [Share(hits=h, of=n) for h, n in zip(hits.tolist(), of.tolist(), strict=True)]


def _episode(seconds: float | None) -> EpisodeResult:
    """An episode solved after `seconds` of simulated time, or not within its limit if None."""
    return EpisodeResult(
        key=EpisodeKey(suite="simulated", task_id=0, init_id=next(_STATES), seed=0),
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


if __name__ == "__main__":
    run_app(app)
