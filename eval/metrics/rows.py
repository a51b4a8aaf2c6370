"""Rows of results: success rates with intervals, times, latencies and texts of some episodes.

Errors of the program are not failures of the policy and count only in `n_errors` and wall time. Invalid
actions are failures: they count in `n_invalid_actions` and `n_episodes`.
"""

import dataclasses
import functools
import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from contracts.episode import EpisodeKey, EpisodeResult, Outcome, graded_only, solved, states_of
from contracts.latency import Quantiles
from contracts.query import QueryRecord
from eval.metrics.language import TextRow, mean_staleness_ms, summarize_language
from eval.metrics.motion_quality import Mean, summarize_motion
from eval.metrics.simulated_time import SimulatedTime, summarize_time
from eval.metrics.statistics import Interval, Rate, quantiles, success_rate
from eval.records.reader import RunRecords

LATENCY_STAGES = ("action", "frame")
"""Until the actions were computed, and until the query was complete."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seeds:
    """Success rates of several seeds, percent, as papers print them."""

    rates: Mapping[int, float]  # by seed
    mean: float
    sd: float  # sample standard deviation

    @classmethod
    def of(cls, outcomes: Iterable[tuple[int, float]]) -> Self | None:
        """The success rates of outcomes (0 to 1) by their seeds; None with fewer than two seeds."""
        found = defaultdict[int, list[float]](list)
        for seed, outcome in outcomes:
            found[seed].append(100 * outcome)
        rates = {seed: statistics.fmean(of_seed) for seed, of_seed in sorted(found.items())}
        if len(rates) < 2:
            return None
        return cls(rates=rates, mean=statistics.fmean(rates.values()), sd=statistics.stdev(rates.values()))


def rate_of(episodes: Sequence[EpisodeResult]) -> Rate | None:
    """The success rate of graded episodes; None without one."""
    graded = graded_only(episodes)
    return success_rate([*map(solved, graded)], states_of(graded))


def rates_of(episodes: Sequence[EpisodeResult]) -> dict[str, Any]:
    """The fields of a row that are rates of all its episodes."""
    graded, rate = graded_only(episodes), rate_of(episodes)
    has_errors = len(graded) < len(episodes)
    return {
        "pc_success": None if rate is None else rate.percent,
        "pc_success_ci95": None if rate is None else rate.interval,
        "pc_with_errors": 100 * sum(map(solved, graded)) / len(episodes) if has_errors else None,
        "seeds": Seeds.of((episode.key.seed, solved(episode)) for episode in graded),
    }


Kinds = Mapping[str, Sequence[EpisodeResult]]


def kinds_of(episodes: Iterable[EpisodeResult]) -> tuple[Kinds, Kinds]:
    """Episodes by category, and by difficulty, by their names in tables; empty if there are not several."""
    categories, levels = (defaultdict[str, list[EpisodeResult]](list) for _ in range(2))
    for episode in episodes:
        if episode.category:
            categories[episode.category].append(episode)
        if episode.difficulty is not None:
            levels[f"difficulty {episode.difficulty}"].append(episode)
    ordered = [dict(sorted(kinds.items())) if len(kinds) > 1 else {} for kinds in (categories, levels)]
    return ordered[0], ordered[1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueryTimes:
    """Measurements of an episode's queries, one number per query that has it."""

    stages_ms: Mapping[str, Sequence[float]]  # by stage, on the machine that ran
    charged_ms: Sequence[tuple[float, float]]  # simulated, until the actions and until the next query
    a: Sequence[int]  # control steps until its actions arrived
    b: Sequence[int]  # control steps until the next query, which the last query lacks
    prompt_ages: Sequence[int]  # ages of the observations that texts in the prompt describe, control steps


def times_of(queries: Sequence[QueryRecord]) -> QueryTimes:
    """The times of an episode's queries."""
    timed = [query for query in queries if query.latency is not None]
    return QueryTimes(
        stages_ms={
            stage: [query.timings_ms[stage] for query in queries if stage in query.timings_ms]
            for stage in LATENCY_STAGES
        },
        charged_ms=[(query.latency.actions_ms, query.latency.busy_ms) for query in timed if query.latency],
        a=[query.actions_step - query.step for query in timed],
        b=[query.steps for query in timed][:-1],
        prompt_ages=[
            query.step - text.observed_step
            for query in queries
            for text in query.fed.values()
            if text.observed_step is not None
        ],
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Charged:
    """Mean simulated latency of a query, milliseconds."""

    actions: float  # until the actions
    busy: float  # until the next query can start


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spread:
    """Median, least and most of some numbers."""

    median: float
    least: float
    most: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class ControlSteps:
    """Control steps until a query's actions arrive, and until the next query."""

    a: Spread
    b: Spread | None = None  # None if every episode had one query

    @property
    def constant(self) -> tuple[float, float] | None:
        """(a, b), if every query has the same."""
        if self.b is None or self.a.least != self.a.most or self.b.least != self.b.most:
            return None
        return self.a.median, self.b.median


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row(SimulatedTime):
    """Results over graded episodes; `n_errors` and `wall_s` are over all. Defaults mean not known."""

    n_episodes: int
    n_success: int
    n_invalid_actions: int = 0
    n_errors: int = 0
    n_without_truth: int = 0
    pc_success: float | None = None
    pc_success_ci95: Interval | None = None  # Wilson's, over initial states
    pc_with_errors: float | None = None  # if errors were failures, as openpi counts them; None without errors
    seeds: Seeds | None = None  # None with one seed
    pc_progress: float | None = None  # mean; None unless all episodes have recorded it
    mean_steps: float | None = None  # None unless all episodes have recorded them
    latency_ms: Mapping[str, Quantiles] = dataclasses.field(default_factory=dict)  # stage to quantiles
    charged_ms: Charged | None = None  # None on clock `paused`, as `control_steps`
    control_steps: ControlSteps | None = None
    tokens: int = 0
    compiles_after_warm_up: int | None = None
    policy_s: float = 0.0  # seconds spent in policy calls
    tokens_per_s: float | None = None  # of them
    staleness_ms: float | None = None  # mean simulated time from request to delivery of texts
    texts: Mapping[str, TextRow] = dataclasses.field(default_factory=dict)  # by language task
    motion: Mapping[str, Mean] = dataclasses.field(default_factory=dict)  # by measure
    prompt_age_steps: float | None = None  # mean age of the observations that texts in prompts describe
    successes: Sequence[bool] = ()  # of each episode
    videos: Sequence[str] = ()  # paths in the run's folder
    wall_s: float | None = None  # of all episodes, errors included; None unless all have recorded it


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskRow(Row):
    """The results of one task."""

    suite: str
    task_id: int
    task: str  # the suite's name of it
    instruction: str  # the suite's own
    wordings: Sequence[str]  # the instructions given to the policy


def row_of(
    episodes: Sequence[EpisodeResult], times: Mapping[EpisodeKey, QueryTimes], limits_s: Mapping[str, float]
) -> Row:
    """The results of some episodes.

    Latency quantiles are wall times over all queries. `limits_s` is each suite's step limit in simulated
    seconds, as far as it is known.
    """
    graded = graded_only(episodes)
    policy_s = sum(episode.policy_s for episode in graded)
    tokens = sum(episode.tokens for episode in graded)
    compiles = [e.compiles_after_warm_up for e in graded if e.compiles_after_warm_up is not None]
    of_queries = [times[episode.key] for episode in graded]
    charged = [both for each in of_queries for both in each.charged_ms]
    a, b = (_spread([steps for each in of_queries for steps in getattr(each, name)]) for name in ("a", "b"))
    latency_ms = {s: quantiles(ms for each in of_queries for ms in each.stages_ms[s]) for s in LATENCY_STAGES}
    ages = [age for each in of_queries for age in each.prompt_ages]
    progress = [episode.progress for episode in graded if episode.progress is not None]
    progress = progress if len(progress) == len(graded) else []
    has_steps = all(episode.known_steps is not None for episode in graded)
    return Row(
        n_episodes=len(graded),
        n_success=sum(map(solved, graded)),
        n_invalid_actions=sum(episode.outcome is Outcome.INVALID_ACTION for episode in graded),
        n_errors=len(episodes) - len(graded),
        n_without_truth=sum(episode.truth_error is not None for episode in graded),
        **rates_of(episodes),
        pc_progress=100 * statistics.fmean(progress) if progress else None,
        mean_steps=statistics.fmean(each.steps for each in graded) if graded and has_steps else None,
        **vars(summarize_time(graded, limits_s)),
        latency_ms={stage: summary for stage, summary in latency_ms.items() if summary is not None},
        charged_ms=Charged(
            actions=statistics.fmean(actions for actions, _ in charged),
            busy=statistics.fmean(busy for _, busy in charged),
        )
        if charged
        else None,
        control_steps=None if a is None else ControlSteps(a=a, b=b),
        tokens=tokens,
        compiles_after_warm_up=max(compiles, default=None),
        policy_s=policy_s,
        tokens_per_s=tokens / policy_s if policy_s > 0 else None,
        staleness_ms=mean_staleness_ms(graded),
        texts=summarize_language(graded),
        motion=summarize_motion(graded),
        prompt_age_steps=statistics.fmean(ages) if ages else None,
        successes=[solved(episode) for episode in graded],
        videos=[episode.video for episode in graded if episode.video is not None],
        wall_s=sum(took) if all(took := [episode.wall_s for episode in episodes]) else None,
    )


def _spread(steps: Sequence[int]) -> Spread | None:
    if not steps:
        return None
    return Spread(median=statistics.median(steps), least=min(steps), most=max(steps))


@dataclasses.dataclass(frozen=True)
class RunRows:
    """The rows of a run, each computed from its records when it is first asked for.

    Asking for one raises a UsageError if a record cannot be read.
    """

    records: RunRecords

    @functools.cached_property
    def overall(self) -> Row:
        """All episodes."""
        return self._row(list(self._sorted))

    @functools.cached_property
    def suites(self) -> Mapping[str, Row]:
        """By suite, in the order in which they were first recorded."""
        names = dict.fromkeys(key.suite for key in self.records.episodes)
        return {name: self._row([each for each in self._sorted if each.key.suite == name]) for name in names}

    @functools.cached_property
    def kinds(self) -> Sequence[Mapping[str, Row]]:
        """By category, and by difficulty, as `kinds_of`."""
        kinds = filter(None, kinds_of(self._sorted))
        return [{name: self._row(list(of_kind)) for name, of_kind in each.items()} for each in kinds]

    @functools.cached_property
    def seeds(self) -> Mapping[int, Row]:
        """By seed."""
        seeds = sorted({key.seed for key in self.records.episodes})
        if len(seeds) == 1:
            return {seeds[0]: self.overall}
        return {seed: self._row([each for each in self._sorted if each.key.seed == seed]) for seed in seeds}

    @functools.cached_property
    def tasks(self) -> Sequence[TaskRow]:
        """By suite and task."""
        groups = itertools.groupby(self._sorted, lambda episode: (episode.key.suite, episode.key.task_id))
        return [self._task(list(members)) for _, members in groups]

    @functools.cached_property
    def _sorted(self) -> Sequence[EpisodeResult]:
        """The episodes by key: intervals depend on their order."""
        return [episode for _, episode in sorted(self.records.episodes.items())]

    @functools.cached_property
    def _limits_s(self) -> Mapping[str, float]:
        return self.records.identity.limits_s

    @functools.cached_property
    def _times(self) -> Mapping[EpisodeKey, QueryTimes]:
        return {key: times_of(self.records.queries(key)) for key in self.records.episodes}

    def _row(self, episodes: Sequence[EpisodeResult]) -> Row:
        return row_of(episodes, self._times, self._limits_s)

    def _task(self, episodes: Sequence[EpisodeResult]) -> TaskRow:
        first = episodes[0]
        return TaskRow(
            **vars(self._row(episodes)),
            suite=first.key.suite,
            task_id=first.key.task_id,
            task=first.task,
            instruction=first.instruction,
            wordings=list(dict.fromkeys(episode.language for episode in episodes)),
        )
