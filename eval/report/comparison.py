"""Paired comparison of two runs over the same episodes: success, actions, latency, texts."""

import dataclasses
import functools
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Self

from contracts.clock import PAUSED
from contracts.episode import EpisodeResult, Outcome, Share, graded_only, solved, states_of
from contracts.errors import UsageError, pluralize
from contracts.latency import Quantiles
from contracts.query import QueryRecord
from contracts.text import Text, TextRequest
from contracts.truth import Truth
from eval.metrics.action_difference import ActionDifference, EpisodeQueries, action_difference
from eval.metrics.language import (
    HEADLINES,
    ORACLE,
    currency_differences,
    grade_text,
    share_difference,
)
from eval.metrics.motion_quality import motion_differences
from eval.metrics.noninferiority import Counts, PairCounts, TwoRates, exceeds
from eval.metrics.rows import LATENCY_STAGES, Seeds
from eval.metrics.simulated_time import (
    RestrictedTimes,
    TimeRatio,
    restricted_times,
    success_curve,
    time_ratio,
)
from eval.metrics.statistics import (
    Interval,
    MeanDifference,
    Rate,
    holm,
    independent_share,
    mcnemar_exact,
    quantiles,
    scaled,
)
from eval.records.reader import RunIdentity, RunRecords
from eval.report.labels import labels_of
from eval.report.pairing import of_common_tasks, require_one_world, require_same_episodes


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestedText:
    """A text that was requested in an episode, and what became of it."""

    request: TextRequest
    asked: QueryRecord  # the query that requested it
    ended: QueryRecord | None  # the query that delivered or dropped it; None if the episode ended before
    text: Text | None  # the text; None if it was not delivered

    @property
    def truths(self) -> tuple[Truth | None, Truth | None]:
        """Ground truth when it was requested, and on delivery; None where there is none."""
        arrived = None if self.text is None or self.ended is None else self.ended.truth_on_delivery(self.text)
        return self.asked.truth, arrived


def requested_texts(queries: Sequence[QueryRecord]) -> list[RequestedText]:
    """All texts requested in an episode, in order."""
    ended: dict[int, tuple[QueryRecord, Text | None]] = {}
    for query in queries:
        ended |= {request.request_id: (query, None) for request in query.dropped}
        ended |= {text.request_id: (query, text) for text in query.delivered}
    return [
        RequestedText(request=request, asked=query, ended=at, text=text)
        for query in queries
        for request in query.requested
        for at, text in [ended.get(request.request_id, (None, None))]
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextPairs:
    """The texts of one language task, paired by episode and by the query that requested them."""

    task: str
    paired: bool  # else all graded texts of A are compared with all of B
    pairs: int  # texts graded in both runs
    only_a: int  # texts graded in A alone, or all of A's; `only_b` likewise
    only_b: int
    oracle_a: bool  # whether A's were generated from the ground truth; `oracle_b` likewise
    oracle_b: bool
    # The headline measure in percent, by the truth that grades the texts: `at_request` and `on_delivery`;
    # empty if there is no pair, or nothing to grade.
    differences: Mapping[str, MeanDifference]


_Scores = tuple[Share, Share]
"""A text's headline measure at request and on delivery."""
_Place = tuple[int, int]
"""The query that requested a text, and its index among those requested there."""


def compare_texts(episodes: Sequence[EpisodeQueries], *, in_pairs: bool) -> list[TextPairs]:
    """Compare the texts of both runs, by language task; tasks without graded texts are left out.

    With `in_pairs`, texts are pairs if they were requested in the same query of the same episode. Holds on
    clock `paused`, where both runs issue that query at the same time. Other clocks charge latency, so only
    episodes are paired: all graded texts of one run are compared with all of the other.
    """
    pairs = []
    for task in HEADLINES:
        texts = [(_texts(task, episode.a), _texts(task, episode.b)) for episode in episodes]
        both = [a.keys() & b.keys() if in_pairs else set[_Place]() for a, b in texts]
        n_pairs = sum(map(len, both))
        only_a, only_b = (sum(len(each[side]) for each in texts) - n_pairs for side in (0, 1))
        graded = [
            [[side[at] for at in side if at in common or not in_pairs] for side in each]
            for each, common in zip(texts, both, strict=True)
        ]
        differences, states = {}, [episode.key.state for episode in episodes]
        for moment, when in enumerate(("at_request", "on_delivery")):
            a, b = (
                [sum((scores[moment] for scores in texts[side]), Share()) for texts in graded]
                for side in (0, 1)
            )
            if (found := share_difference(a, b, states)) is not None:
                differences[when] = found
        if differences or (in_pairs and (n_pairs or only_a or only_b)):
            pairs.append(
                TextPairs(
                    task=task,
                    paired=in_pairs,
                    pairs=n_pairs,
                    only_a=only_a,
                    only_b=only_b,
                    oracle_a=any(_is_oracle(task, episode.a) for episode in episodes),
                    oracle_b=any(_is_oracle(task, episode.b) for episode in episodes),
                    differences=differences,
                )
            )
    return pairs


def _is_oracle(task: str, queries: Sequence[QueryRecord]) -> bool:
    return any(text.task == task and text.reason == ORACLE for query in queries for text in query.delivered)


def _texts(task: str, queries: Sequence[QueryRecord]) -> dict[_Place, _Scores]:
    """The scores of an episode's graded texts of the task."""
    graded: dict[_Place, _Scores] = {}
    places = Counter[int]()
    of_task = [each for each in requested_texts(queries) if each.request.task == task]
    for each in sorted(of_task, key=lambda each: each.request.request_id):
        query = each.request.query
        at = query, places[query]
        places[query] += 1
        if each.text is not None:
            requested, delivered = (headline_share(task, each.text.text, truth) for truth in each.truths)
            if requested is not None and delivered is not None:
                graded[at] = requested, delivered
    return graded


@functools.lru_cache(maxsize=4096)  # texts and truths repeat over queries
def headline_share(task: str, generated: str, truth: Truth | None) -> Share | None:
    """The headline measure of a text; None without a truth, or if the text cannot be read."""
    shares = None if truth is None else grade_text(task, generated, truth)
    return None if shares is None else shares.get(HEADLINES[task], Share())


Pair = tuple[EpisodeResult, EpisodeResult]
"""The same episode in runs A and B."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcomes:
    """The graded episodes of one run: whether each was solved, its initial state, and its seed."""

    solved: Sequence[bool]
    states: Sequence[Hashable]  # episodes of other seeds share them
    seeds: Sequence[int]
    n_errors: int  # episodes that ended in an error
    n_episodes: int  # all of the run, those among them

    @classmethod
    def of(cls, graded: Sequence[EpisodeResult], all_of_run: Sequence[EpisodeResult]) -> Self:
        """The outcomes of the graded episodes of a run, and the number of its errors."""
        return cls(
            solved=[*map(solved, graded)],
            states=states_of(graded),
            seeds=[episode.key.seed for episode in graded],
            n_errors=sum(episode.outcome is Outcome.ERROR for episode in all_of_run),
            n_episodes=len(all_of_run),
        )

    @property
    def percent(self) -> float | None:
        """The success rate."""
        return 100 * sum(self.solved) / len(self.solved) if self.solved else None

    @property
    def by_seed(self) -> Seeds | None:
        """The success rates by seed; None with one seed."""
        return Seeds.of(zip(self.seeds, self.solved, strict=True))

    @functools.cached_property
    def independent(self) -> float:
        """The effective number of episodes over their number."""
        return independent_share(self.solved, self.states)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairTable:
    """Outcomes of the graded episodes of two runs: in pairs, or apart where initial states are unknown."""

    n_episodes: int  # episodes that both have, those with an error among them; of the smaller run, if apart
    a: Outcomes  # without those of pairs in which a run ended in an error
    b: Outcomes
    paired: bool = True  # whether the episodes of `a` and `b` are pairs, in this order

    @functools.cached_property
    def _counts(self) -> Counter[tuple[bool, bool]]:
        return Counter(zip(self.a.solved, self.b.solved, strict=True) if self.paired else ())

    @property
    def both(self) -> int:
        """Pairs that both runs solved."""
        return self._counts[True, True]

    @property
    def only_a(self) -> int:
        """Pairs that A alone solved."""
        return self._counts[True, False]

    @property
    def only_b(self) -> int:
        """Pairs that B alone solved."""
        return self._counts[False, True]

    @property
    def neither(self) -> int:
        """Pairs that no run solved."""
        return self._counts[False, False]

    @property
    def agrees(self) -> bool:
        """Whether all are pairs with the same outcome."""
        return self.paired and not self.only_a and not self.only_b

    @property
    def graded(self) -> int:
        """Graded pairs; episodes of the smaller run, if apart."""
        return min(len(self.a.solved), len(self.b.solved))

    @property
    def has_too_many_errors(self) -> bool:
        """Whether there are too many errors, or too few graded episodes, for a verdict."""
        return not self.graded or any(exceeds(of.n_errors, of.n_episodes) for of in (self.a, self.b))

    @property
    def size(self) -> str:
        """How many episodes there are, in words."""
        a, b = len(self.a.solved), len(self.b.solved)
        return f"{'' if a == b else f'{a} and '}{pluralize(b, 'episode')}"

    @functools.cached_property
    def _gains(self) -> list[int]:
        return [b - a for a, b in zip(self.a.solved, self.b.solved, strict=True)]

    @functools.cached_property
    def independent(self) -> float:
        """The effective number of pairs over their number: below 1 with several seeds; the least if apart."""
        if not self.graded:
            return 1.0
        if not self.paired:
            return min(self.a.independent, self.b.independent)
        return independent_share(self._gains, self.a.states)

    @functools.cached_property
    def counts(self) -> Counts:
        """The effective counts for a verdict; requires a graded episode in both."""
        if self.paired:
            share = self.independent
            only_a, only_b, pairs = share * self.only_a, share * self.only_b, share * self.graded
            return PairCounts(only_a=only_a, only_b=only_b, pairs=pairs)
        (solved_a, of_a), (solved_b, of_b) = (
            (side.independent * sum(side.solved), side.independent * len(side.solved))
            for side in (self.a, self.b)
        )
        return TwoRates(solved_a=solved_a, of_a=of_a, solved_b=solved_b, of_b=of_b)

    @property
    def difference(self) -> float | None:
        """B's success rate minus A's, percentage points."""
        if not self.graded:
            return None
        return 100 * (sum(self._gains) / self.graded if self.paired else self.counts.difference)

    @property
    def ci95(self) -> Interval | None:
        """Its 95 % interval, over initial states, percentage points."""
        return scaled(self.counts.interval, 100) if self.graded else None

    @property
    def p_value(self) -> float:
        """Two-sided p-value of the runs' difference, over initial states; exact for pairs."""
        if not self.paired:
            below = self.counts.p_value(above=0.0)
            return 2 * min(below, 1 - below)
        differences = Counter[Hashable]()
        for state, gain in zip(self.a.states, self._gains, strict=True):
            differences[state] += gain
        return mcnemar_exact(differences.values())


def is_graded(pair: Pair) -> bool:
    """Whether neither episode of a pair ended in an error."""
    return all(episode.outcome is not Outcome.ERROR for episode in pair)


def outcomes_of(pairs: Sequence[Pair]) -> PairTable:
    """The outcomes of pairs of episodes."""
    graded = [pair for pair in pairs if is_graded(pair)]
    a, b = (Outcomes.of([pair[side] for pair in graded], [pair[side] for pair in pairs]) for side in (0, 1))
    return PairTable(n_episodes=len(pairs), a=a, b=b)


def outcomes_apart(a: Sequence[EpisodeResult], b: Sequence[EpisodeResult]) -> PairTable:
    """The outcomes of episodes that are not paired."""
    sides = [Outcomes.of(graded_only(of_run), of_run) for of_run in (a, b)]
    return PairTable(n_episodes=min(len(a), len(b)), a=sides[0], b=sides[1], paired=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageLatency:
    """Quantiles of one stage in both runs, milliseconds, over the queries of the graded pairs."""

    a: Quantiles
    b: Quantiles

    def ratio(self, quantile: str) -> float | None:
        """B's quantile over A's; None if A's is 0."""
        a, b = (getattr(side, quantile) for side in (self.a, self.b))
        return b / a if a else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """Paired comparison of run B with run A."""

    a: RunIdentity
    b: RunIdentity
    overall: PairTable
    per_suite: Mapping[str, PairTable]
    actions: ActionDifference
    latency: Mapping[str, StageLatency]
    texts: Sequence[TextPairs]
    time_ratio: TimeRatio | None = None  # B's simulated seconds to success over A's; None if no pair has both
    # Restricted mean times over the graded pairs; None if no time was recorded.
    restricted: RestrictedTimes | None = None
    # Language task to the percentage of simulated time in which its last text is true, over the graded pairs,
    # for tasks that both runs recorded.
    currency: Mapping[str, MeanDifference] = dataclasses.field(default_factory=dict)
    # Measure of `MotionQuality` to its difference, over the pairs that both solved.
    motion: Mapping[str, MeanDifference] = dataclasses.field(default_factory=dict)
    # The rate of the graded pairs that A solved by each time; `curve_b` likewise. Empty if times are not
    # recorded.
    curve_a: Sequence[tuple[float, Rate]] = ()
    curve_b: Sequence[tuple[float, Rate]] = ()
    # Whether a run is unfinished or has episodes that the other lacks: then only common ones are compared.
    partial: bool = False

    @property
    def names(self) -> tuple[str, str]:
        """Names of A and B in sentences: their labels, unless these are long."""
        a, b = labels_of([self.a, self.b])
        return (a, b) if max(len(a), len(b)) <= _LONGEST_NAME else ("A", "B")

    @property
    def measures(self) -> dict[str, MeanDifference]:
        """Quality of motion and currency of texts, by heading."""
        current = {f"{task} true now (%)": each for task, each in self.currency.items()}
        return {_MOTION_HEADINGS[name]: each for name, each in self.motion.items()} | current

    @property
    def suite_p_values(self) -> dict[str, float]:
        """The p-value of each suite with graded episodes, Holm-corrected if there are several."""
        p_values = {suite: pairs.p_value for suite, pairs in self.per_suite.items() if pairs.graded}
        return dict(zip(p_values, holm(list(p_values.values())), strict=True))

    @property
    def in_turns(self) -> bool:
        """Whether every episode was played in both runs before the next one."""
        return self.a.run_id in self.b.variants and self.b.run_id in self.a.variants


def _latency(episodes: Sequence[EpisodeQueries]) -> dict[str, StageLatency]:
    """The latency of the stages that both runs recorded."""
    latency = {}
    for stage in LATENCY_STAGES:
        a = quantiles(q.timings_ms[stage] for e in episodes for q in e.a if stage in q.timings_ms)
        b = quantiles(q.timings_ms[stage] for e in episodes for q in e.b if stage in q.timings_ms)
        if a and b:
            latency[stage] = StageLatency(a=a, b=b)
    return latency


_MOTION_HEADINGS = {
    "log_dimensionless_jerk": "log jerk",
    "path_length_m": "path (m)",
    "chunk_jump_ratio": "jump at chunks",
    "gripper_toggles": "gripper toggles",
}
_LONGEST_NAME = 24  # maximum length of a label that names a run in a sentence


def compare(run_a: RunRecords, run_b: RunRecords, *, partial: bool = False) -> Comparison:
    """Compare two runs of the same episodes in the same world; their policies' inputs may differ.

    Episodes of an imported run whose initial states are unknown are not paired, but of the same tasks.

    With `partial`, runs may be unfinished or lack episodes of the other; only common ones are compared.

    Raises:
        UsageError: if a run cannot be read or is unfinished, the two differ in protocol, assets or episodes,
            or no pair of episodes is graded in both.
    """
    identities = require_one_world(run_a, run_b, partial=partial)
    unfinished = [identity for identity in identities if identity.status != "complete"]
    a, b = run_a.episodes, run_b.episodes
    paired = all(identity.names_states for identity in identities)
    if not paired:
        a, b = of_common_tasks(run_a, run_b, partial=partial)
    elif not partial or not a.keys() & b.keys():
        require_same_episodes(run_a, run_b)
    if unfinished and not partial:
        run = unfinished[0]
        raise UsageError(
            f"{run.run_id} has {pluralize(run.n_planned, 'planned episode')} and is {run.status}; complete "
            "it with --resume, or give --partial to compare the episodes that both have"
        )
    pairs = [(a[key], b[key]) for key in sorted(a.keys() & b.keys()) if paired]
    graded = list(filter(is_graded, pairs))

    def outcomes(suites: Collection[str]) -> PairTable:
        if paired:
            return outcomes_of([pair for pair in pairs if pair[0].key.suite in suites])
        of_a, of_b = ([episode for episode in of.values() if episode.key.suite in suites] for of in (a, b))
        return outcomes_apart(of_a, of_b)

    suites = dict.fromkeys(key.suite for key in sorted(a) if not paired or key in b)
    overall = outcomes(suites)
    if not overall.graded:
        why = f"of {len(pairs)} that both have, each is an error in one" if pairs else "none is recorded"
        raise UsageError(f"{run_a.folder.run_id} and {run_b.folder.run_id} share no graded episode: {why}")
    queries = [EpisodeQueries(key=x.key, a=run_a.queries(x.key), b=run_b.queries(x.key)) for x, _ in graded]
    return Comparison(
        a=identities[0],
        b=identities[1],
        overall=overall,
        per_suite={suite: outcomes([suite]) for suite in suites},
        actions=action_difference(queries),
        latency=_latency(queries),
        texts=compare_texts(queries, in_pairs=identities[0].clock == PAUSED),
        time_ratio=time_ratio(graded),
        restricted=restricted_times(graded, identities[0].limits_s),
        currency=currency_differences(graded),
        motion=motion_differences(graded),
        curve_a=success_curve([x for x, _ in graded]),
        curve_b=success_curve([y for _, y in graded]),
        partial=bool(unfinished)
        or (a.keys() != b.keys() if paired else len(a) < len(run_a.episodes) or len(b) < len(run_b.episodes)),
    )
