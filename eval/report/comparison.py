"""Paired comparison of two runs over the same episodes: success, actions, latency, texts."""

import dataclasses
from collections.abc import Mapping, Sequence

from configs.errors import UsageError, pluralize
from eval.metrics.action_difference import ActionDifference, EpisodeQueries, action_difference
from eval.metrics.language import HEADLINES, currency_differences
from eval.metrics.motion_quality import motion_differences
from eval.metrics.simulated_time import (
    CurvePoint,
    RestrictedTimes,
    TimeRatio,
    restricted_times,
    success_curve,
    time_ratio,
)
from eval.metrics.statistics import MeanDifference, holm, quantiles
from eval.metrics.success import LATENCY_STAGES
from eval.records.query_logs import read_queries
from eval.records.reader import RunIdentity, read_episodes, read_identity
from eval.records.schema import EpisodeResult, RunFolder
from eval.report.comparison_texts import TextPairs, all_texts, pair_texts
from eval.report.labels import PAUSED
from eval.report.pair_table import Pair, PairTable, is_graded, outcomes_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageLatency:
    """Quantiles of one stage in both runs, milliseconds, over the queries of the graded pairs."""

    a: Mapping[str, float]
    b: Mapping[str, float]

    def ratio(self, quantile: str) -> float | None:
        """B's quantile over A's; None if A's is 0."""
        return self.b[quantile] / self.a[quantile] if self.a[quantile] else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Staleness:
    """Mean simulated seconds from a text's request to its delivery; None for a run without texts."""

    a: float | None
    b: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """Paired comparison of run B with run A.

    Attributes:
        time_ratio: B's simulated seconds to success over A's; None if no pair has both.
        restricted: Restricted mean times over the graded pairs; None if no time was recorded.
        currency: Language task to the percentage of simulated time in which its last text is true, over the
            graded pairs, for tasks that both runs recorded.
        motion: Measure of `MotionQuality` to its difference, over the pairs that both solved.
        curve_a: Fraction of the graded pairs that A solved by each time; `curve_b` likewise. Empty if times
            are not recorded.
        staleness: Language task to the staleness of its finished texts, over the graded pairs.
        partial: Whether a run is unfinished or has episodes that the other lacks: then only common ones are
            compared.
    """

    a: RunIdentity
    b: RunIdentity
    overall: PairTable
    per_suite: Mapping[str, PairTable]
    actions: ActionDifference
    latency: Mapping[str, StageLatency]
    texts: Sequence[TextPairs]
    time_ratio: TimeRatio | None = None
    restricted: RestrictedTimes | None = None
    currency: Mapping[str, MeanDifference] = dataclasses.field(default_factory=dict)
    motion: Mapping[str, MeanDifference] = dataclasses.field(default_factory=dict)
    curve_a: Sequence[CurvePoint] = ()
    curve_b: Sequence[CurvePoint] = ()
    staleness: Mapping[str, Staleness] = dataclasses.field(default_factory=dict)
    partial: bool = False

    @property
    def names(self) -> tuple[str, str]:
        """Names of A and B in sentences; see `run_names`."""
        return run_names(self.a, self.b)

    @property
    def suite_p_values(self) -> dict[str, float]:
        """McNemar's p-value of each suite with a graded pair, Holm-corrected if there are several."""
        p_values = {suite: pairs.mcnemar_p for suite, pairs in self.per_suite.items() if pairs.graded}
        return dict(zip(p_values, holm(list(p_values.values())), strict=True))

    @property
    def in_turns(self) -> bool:
        """Whether every episode was played in both runs before the next one."""
        return self.a.run_id in self.b.variants and self.b.run_id in self.a.variants


_LONGEST_NAME = 16
"""Maximum length of a mode or policy that names a run in a sentence."""


def run_names(a: RunIdentity, b: RunIdentity) -> tuple[str, str]:
    """Short names of two runs: what differs first of mode, policy, texts in the prompt; else `A`, `B`."""
    for names in ((a.mode, b.mode), (a.policy, b.policy), (a.feedback or "", b.feedback or "")):
        if names[0] != names[1] and all(0 < len(name) <= _LONGEST_NAME for name in names):
            return names
    return "A", "B"


def compare(run_a: RunFolder, run_b: RunFolder) -> Comparison:
    """Compare two runs of the same episodes in the same world; their policies' inputs may differ.

    Raises:
        UsageError: if a run cannot be read or is unfinished, the two differ in protocol, assets or episodes,
            or no pair of episodes is graded in both.
    """
    identities = require_one_world(run_a, run_b)
    for run in identities:
        if run.status != "complete":
            raise UsageError(
                f"{run.run_id} is {run.status}, of {pluralize(run.n_planned, 'episode')}; complete it with "
                "--resume, or give --partial to compare the episodes that both have"
            )
    return _compare(identities, (run_a, run_b), _pair_up(run_a, run_b))


def compare_common(run_a: RunFolder, run_b: RunFolder) -> Comparison:
    """Compare two runs, finished or not, on the episodes that both have.

    Raises:
        UsageError: if a run cannot be read, the two differ in protocol or assets, or no pair of episodes is
            graded in both.
    """
    identities = require_one_world(run_a, run_b)
    a, b = read_episodes(run_a), read_episodes(run_b)
    pairs = [(a[key], b[key]) for key in sorted(a.keys() & b.keys())]
    partial = a.keys() != b.keys() or any(identity.status != "complete" for identity in identities)
    return _compare(identities, (run_a, run_b), pairs, partial=partial)


def _compare(
    identities: tuple[RunIdentity, RunIdentity],
    folders: tuple[RunFolder, RunFolder],
    pairs: Sequence[Pair],
    *,
    partial: bool = False,
) -> Comparison:
    (a, b), (run_a, run_b) = identities, folders
    graded = list(filter(is_graded, pairs))
    if not graded:
        raise UsageError(
            f"{a.run_id} and {b.run_id} share no graded episode: each of the {len(pairs)} that both have "
            "is an error in one"
        )
    queries = [
        EpisodeQueries(key=x.key, a=read_queries(run_a, x.key), b=read_queries(run_b, x.key))
        for x, _ in graded
    ]
    suites = dict.fromkeys(x.key.suite for x, _ in pairs)
    return Comparison(
        a=a,
        b=b,
        overall=outcomes_of(pairs),
        per_suite={each: outcomes_of([p for p in pairs if p[0].key.suite == each]) for each in suites},
        actions=action_difference(queries),
        latency=_latency(queries),
        texts=pair_texts(queries) if a.clock == PAUSED else all_texts(queries),
        time_ratio=time_ratio(graded),
        restricted=restricted_times(graded, a.limits_s),
        currency=currency_differences(graded),
        motion=motion_differences(graded),
        curve_a=success_curve([x for x, _ in graded]),
        curve_b=success_curve([y for _, y in graded]),
        staleness=_staleness(graded),
        partial=partial,
    )


def require_one_world(run_a: RunFolder, run_b: RunFolder) -> tuple[RunIdentity, RunIdentity]:
    """The identities of two runs that may be compared, finished or not; texts in the prompt may differ.

    Raises:
        UsageError: A run cannot be read, or the two differ in assets or protocol.
    """
    a, b = read_identity(run_a), read_identity(run_b)
    if a.assets.digest != b.assets.digest:
        raise UsageError(
            f"{a.run_id} and {b.run_id} used different assets, {a.assets} and {b.assets}; "
            "run both with the same"
        )
    if a.world_hash != b.world_hash:
        raise UsageError(
            f"{a.run_id} and {b.run_id} ran under different protocols ({a.world_hash} and "
            f"{b.world_hash}); run both with the same protocol options, versions and assets"
        )
    return a, b


def _pair_up(run_a: RunFolder, run_b: RunFolder) -> list[Pair]:
    a, b = read_episodes(run_a), read_episodes(run_b)
    lacks = []
    for run, own, other in ((run_a, a, b), (run_b, b, a)):
        if missing := sorted(other.keys() - own.keys()):
            first = ", ".join(map(str, missing[:3]))
            more = f", … ({len(missing)} in all)" if len(missing) > 3 else ""
            lacks.append(f"{run.run_id} lacks {first}{more}")
    if lacks:
        raise UsageError(
            f"the runs must hold the same episodes: {'; '.join(lacks)}; "
            "complete both with --resume, or run both with the same options"
        )
    if not a:
        raise UsageError(f"{run_a.run_id} and {run_b.run_id} hold no episodes")
    return [(a[key], b[key]) for key in sorted(a)]


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
