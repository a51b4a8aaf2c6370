"""Paired comparison of two runs over the same episodes: success, actions, latency, texts."""

import dataclasses
from collections.abc import Mapping, Sequence

from configs.cli import counted
from configs.errors import UsageError
from eval.metrics.action_difference import ActionDifference, EpisodeQueries, action_difference
from eval.metrics.language import HEADLINES
from eval.metrics.noninferiority import PairCounts
from eval.metrics.statistics import Interval, holm, mcnemar_exact, paired_difference_95, quantiles, wilson_95
from eval.metrics.success import LATENCY_STAGES
from eval.metrics.time_to_success import CurvePoint, TimeRatio, success_curve, time_ratio
from eval.records.reader import RunIdentity, read_episodes, read_identity, read_queries
from eval.records.schema import EpisodeResult, Outcome, RunFolder
from eval.report.clock_words import PAUSED
from eval.report.comparison_texts import TextPairs, all_texts, pair_texts
from sim_envs.world import EpisodeKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairTable:
    """Outcomes of the graded pairs.

    Attributes:
        n_episodes: All pairs of episodes, those with an error among them.
        both: Pairs that both runs solved; `only_a`, `only_b` and `neither` likewise.
        n_errors_a: Episodes that ended in an error in A; such pairs are not graded.
        n_errors_b: The same for B.
    """

    n_episodes: int
    both: int
    only_a: int
    only_b: int
    neither: int
    n_errors_a: int
    n_errors_b: int

    @property
    def graded(self) -> int:
        """Pairs in which neither run ended in an error."""
        return self.both + self.only_a + self.only_b + self.neither

    @property
    def counts(self) -> PairCounts:
        """What a verdict needs of them; of at least one graded pair."""
        return PairCounts(only_a=self.only_a, only_b=self.only_b, pairs=self.graded)

    @property
    def percent_a(self) -> float | None:
        """A's success rate over the graded pairs."""
        return 100 * (self.both + self.only_a) / self.graded if self.graded else None

    @property
    def percent_b(self) -> float | None:
        """B's success rate over the graded pairs."""
        return 100 * (self.both + self.only_b) / self.graded if self.graded else None

    @property
    def interval_a(self) -> Interval | None:
        """95 % Wilson interval of A's success rate."""
        return wilson_95(self.both + self.only_a, self.graded)

    @property
    def interval_b(self) -> Interval | None:
        """95 % Wilson interval of B's success rate."""
        return wilson_95(self.both + self.only_b, self.graded)

    @property
    def difference(self) -> float | None:
        """B's success rate minus A's, percentage points."""
        return 100 * (self.only_b - self.only_a) / self.graded if self.graded else None

    @property
    def difference_ci95(self) -> Interval | None:
        """Its 95 % paired score interval (Tango), percentage points."""
        interval = paired_difference_95(self.only_a, self.only_b, self.graded)
        return None if interval is None else Interval(low=100 * interval.low, high=100 * interval.high)

    @property
    def mcnemar_p(self) -> float:
        """Exact two-sided p-value of the runs' difference."""
        return mcnemar_exact(self.only_a, self.only_b)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageLatency:
    """Quantiles of one stage in both runs, milliseconds, over the queries of the graded pairs."""

    a: Mapping[str, float]
    b: Mapping[str, float]

    def ratio(self, quantile: str) -> float | None:
        """B's over A's; None where A's is 0."""
        return self.b[quantile] / self.a[quantile] if self.a[quantile] else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Staleness:
    """Mean simulated seconds from a text's query to its delivery in both runs; None where a run has none."""

    a: float | None
    b: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """What two runs say about each other.

    Attributes:
        time_ratio: B's simulated seconds to success over A's; None where no pair tells.
        curve_a: The share of the graded pairs that A solved by each time; `curve_b` likewise. Empty where
            times are not recorded.
        staleness: Language task to how stale its finished texts were, over the graded pairs.
        partial: Whether a run is unfinished or has episodes that the other has not: then only those that
            both have are compared.
    """

    a: RunIdentity
    b: RunIdentity
    overall: PairTable
    per_suite: Mapping[str, PairTable]
    actions: ActionDifference
    latency: Mapping[str, StageLatency]
    texts: Sequence[TextPairs]
    time_ratio: TimeRatio | None = None
    curve_a: Sequence[CurvePoint] = ()
    curve_b: Sequence[CurvePoint] = ()
    staleness: Mapping[str, Staleness] = dataclasses.field(default_factory=dict)
    partial: bool = False

    @property
    def names(self) -> tuple[str, str]:
        """What to call A and B in a sentence."""
        return tell_apart(self.a, self.b)

    @property
    def suite_p_values(self) -> dict[str, float]:
        """McNemar's p-value of every suite with a graded pair; of several, corrected for their number."""
        p_values = {suite: pairs.mcnemar_p for suite, pairs in self.per_suite.items() if pairs.graded}
        return dict(zip(p_values, holm(list(p_values.values())), strict=True))

    @property
    def in_turns(self) -> bool:
        """Whether every episode was played in both runs before the next one."""
        return self.a.run_id in self.b.variants and self.b.run_id in self.a.variants


Pair = tuple[EpisodeResult, EpisodeResult]

_LONGEST_NAME = 16
"""Characters of a policy's or a mode's name for which a sentence has room."""


def tell_apart(a: RunIdentity, b: RunIdentity) -> tuple[str, str]:
    """What to call two runs: their modes, else their policies, where these differ."""
    for names in ((a.mode, b.mode), (a.policy, b.policy)):
        if names[0] != names[1] and max(map(len, names)) <= _LONGEST_NAME:
            return names
    return "A", "B"


def compare(run_a: RunFolder, run_b: RunFolder) -> Comparison:
    """Compare two runs of the same episodes in the same world. What their policies see of it may differ.

    Raises:
        UsageError: if a run cannot be read or is unfinished, the two differ in protocol, assets or episodes,
            or no pair of episodes is graded in both.
    """
    for identity in require_one_world(run_a, run_b):
        _refuse_unfinished(identity)
    return _compare(run_a, run_b, _pair_up(run_a, run_b))


def compare_common(run_a: RunFolder, run_b: RunFolder) -> Comparison:
    """Compare two runs, finished or not, on the episodes that both have.

    Raises:
        UsageError: if a run cannot be read, the two differ in protocol or assets, or no pair of episodes is
            graded in both.
    """
    statuses = {identity.status for identity in require_one_world(run_a, run_b)}
    a, b = read_episodes(run_a), read_episodes(run_b)
    found = _compare(run_a, run_b, [(a[key], b[key]) for key in sorted(a.keys() & b.keys())])
    return dataclasses.replace(found, partial=statuses != {"complete"} or a.keys() != b.keys())


def _compare(run_a: RunFolder, run_b: RunFolder, pairs: Sequence[Pair]) -> Comparison:
    graded = list(filter(_is_graded, pairs))
    if not graded:
        raise UsageError(
            f"{_names(run_a, run_b)} share no graded episode: each of the {len(pairs)} that both have is an "
            "error in one"
        )
    queries = [
        EpisodeQueries(key=x.key, a=read_queries(run_a, x.key), b=read_queries(run_b, x.key))
        for x, _ in graded
    ]
    suites = dict.fromkeys(x.key.suite for x, _ in pairs)
    identity = read_identity(run_a)
    return Comparison(
        a=identity,
        b=read_identity(run_b),
        overall=outcomes_of(pairs),
        per_suite={each: outcomes_of([p for p in pairs if p[0].key.suite == each]) for each in suites},
        actions=action_difference(queries),
        latency=_latency(queries),
        texts=pair_texts(queries) if identity.clock == PAUSED else all_texts(queries),
        time_ratio=time_ratio(graded),
        curve_a=success_curve([a for a, _ in graded]),
        curve_b=success_curve([b for _, b in graded]),
        staleness=_staleness(graded),
    )


def _refuse_unfinished(run: RunIdentity) -> None:
    if run.status != "complete":
        raise UsageError(
            f"{run.run_id} is {run.status}, of {counted(run.n_planned, 'episode')}; complete it with "
            "--resume, or give --partial to compare the episodes that both have"
        )


def require_one_world(run_a: RunFolder, run_b: RunFolder) -> tuple[RunIdentity, RunIdentity]:
    """The identities of two runs that may be compared, finished or not.

    Raises:
        UsageError: A run cannot be read, or the two differ in assets or protocol.
    """
    a, b = read_identity(run_a), read_identity(run_b)
    if a.assets.digest != b.assets.digest:
        raise UsageError(
            f"{a.run_id} and {b.run_id} used different assets, {a.assets} and {b.assets}; "
            "run both with the same"
        )
    if a.protocol_hash != b.protocol_hash:
        raise UsageError(
            f"{a.run_id} and {b.run_id} ran under different protocols ({a.protocol_hash} and "
            f"{b.protocol_hash}); run both with the same protocol options, versions and assets"
        )
    return a, b


def _pair_up(run_a: RunFolder, run_b: RunFolder) -> list[Pair]:
    a, b = read_episodes(run_a), read_episodes(run_b)
    lacks = [
        _missing(run, sorted(other.keys() - own.keys()))
        for run, own, other in ((run_a, a, b), (run_b, b, a))
        if other.keys() - own.keys()
    ]
    if lacks:
        raise UsageError(
            f"the runs must hold the same episodes: {'; '.join(lacks)}; "
            "complete both with --resume, or run both with the same options"
        )
    if not a:
        raise UsageError(f"{_names(run_a, run_b)} hold no episodes")
    return [(a[key], b[key]) for key in sorted(a)]


def _missing(run: RunFolder, keys: Sequence[EpisodeKey]) -> str:
    first = ", ".join(map(str, keys[:3]))
    return f"{run.run_id} lacks {first}{f', … ({len(keys)} in all)' if len(keys) > 3 else ''}"


def _names(run_a: RunFolder, run_b: RunFolder) -> str:
    return f"{run_a.run_id} and {run_b.run_id}"


def _is_graded(pair: Pair) -> bool:
    return all(episode.outcome is not Outcome.ERROR for episode in pair)


def outcomes_of(pairs: Sequence[Pair]) -> PairTable:
    """Count how the episodes of some pairs ended."""
    graded = filter(_is_graded, pairs)
    solved = [(a.outcome is Outcome.SUCCESS, b.outcome is Outcome.SUCCESS) for a, b in graded]
    return PairTable(
        n_episodes=len(pairs),
        both=solved.count((True, True)),
        only_a=solved.count((True, False)),
        only_b=solved.count((False, True)),
        neither=solved.count((False, False)),
        n_errors_a=sum(a.outcome is Outcome.ERROR for a, _ in pairs),
        n_errors_b=sum(b.outcome is Outcome.ERROR for _, b in pairs),
    )


def _latency(episodes: Sequence[EpisodeQueries]) -> dict[str, StageLatency]:
    """Stages that both runs measured."""
    stages = {}
    for stage in LATENCY_STAGES:
        a = quantiles(q.timings_ms[stage] for e in episodes for q in e.a if stage in q.timings_ms)
        b = quantiles(q.timings_ms[stage] for e in episodes for q in e.b if stage in q.timings_ms)
        if a and b:
            stages[stage] = StageLatency(a=a, b=b)
    return stages


def _staleness(pairs: Sequence[Pair]) -> dict[str, Staleness]:
    a, b = [a for a, _ in pairs], [b for _, b in pairs]
    found = {task: Staleness(a=_mean_staleness(task, a), b=_mean_staleness(task, b)) for task in HEADLINES}
    return {task: each for task, each in found.items() if (each.a, each.b) != (None, None)}


def _mean_staleness(task: str, episodes: Sequence[EpisodeResult]) -> float | None:
    scores = [episode.texts[task] for episode in episodes if task in episode.texts]
    texts = sum(score.texts for score in scores)
    return sum(score.staleness_s for score in scores) / texts if texts else None
