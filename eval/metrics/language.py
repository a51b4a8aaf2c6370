"""Grades texts against the ground truth, at request and on delivery, and sums grades over episodes.

Texts are parsed by `sim_envs.truth.wording`; those that cannot be parsed are counted and not graded. Scores
are counts out of totals, so that episodes, tasks and suites add up.
"""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from contracts.episode import EpisodeResult, Share, Shares, TextScores, states_of
from contracts.query import QueryRecord
from contracts.text import Text
from contracts.truth import Memory, Narration, Truth
from eval.metrics.statistics import Interval, MeanDifference, cluster_bootstrap_95, ratio_of_sums, scaled
from sim_envs.truth.textual_memory import normalize, parse_textual_memory, write_textual_memory
from sim_envs.truth.wording import narrate, parse_memory, parse_narration, remember

_Columns = tuple[np.ndarray, np.ndarray]
"""A part and the whole, by episode."""

ORACLE = "oracle"
"""Finish reason of texts written from the truth."""


def grade_narration(predicted: Narration, truth: Truth) -> Shares:
    """Scores of phase, object and target; `all` requires all three.

    A superfluous object or target counts only in `all`.
    """
    true = truth.narration
    shares = {"phase": _hit(predicted.phase == true.phase), "all": _hit(predicted == true)}
    if true.object is not None:
        shares["object"] = _hit(predicted.object == true.object)
    if true.target is not None:
        shares["target"] = _hit(predicted.target == true.target)
    return shares


def grade_memory(predicted: Memory, truth: Truth) -> Shares:
    """Precision, recall and F1 over completed actions and facts, and the order of the actions.

    F1 is 2·correct / (said + true). `order` is the fraction of pairs of correctly remembered actions that are
    in the right order.
    """
    items, true = _items(predicted), _items(truth.memory)
    right = len(items & true)
    places = [truth.memory.done.index(action) for action in predicted.done if action in truth.memory.done]
    pairs = list(combinations(places, 2))
    return {
        "precision": Share(hits=right, of=len(items)),
        "recall": Share(hits=right, of=len(true)),
        "f1": Share(hits=2 * right, of=len(items) + len(true)),
        "order": Share(hits=sum(first < second for first, second in pairs), of=len(pairs)),
    }


def grade_textual_memory(text: str, truth: Truth) -> Shares | None:
    """OxyGen's exact match and word F1, and F1 over predicates if it can be parsed; None without a truth.

    The first two need no parser and score any text, as in OxyGen's evaluation.
    """
    true, predicted = truth.textual_memory, parse_textual_memory(text)
    if true is None:
        return None
    sentence = write_textual_memory(true)
    said, meant = (Counter(normalize(each).split()) for each in (text, sentence))
    shares = {
        "exact": _hit(normalize(text) == normalize(sentence)),
        "words": Share(hits=2 * (said & meant).total() / (said.total() + meant.total()), of=1),
    }
    if predicted is not None:
        right = (Counter(predicted) & Counter(true)).total()
        shares["predicates"] = Share(hits=2 * right, of=len(predicted) + len(true))
    return shares


def grade_part(task: str, text: str, truth: Truth) -> Share | None:
    """Correct items out of those in one part of a memory or textual memory; None if it cannot be parsed.

    "Nothing done yet" is one item.
    """
    if task == "textual_memory":
        said, true = parse_textual_memory(text), truth.textual_memory
        if said is None or true is None:
            return None
        return Share(hits=sum(fact in true for fact in said), of=len(said)) if said else _hit(not true)
    predicted = parse_memory(text, truth.nouns)
    if predicted is None:
        return None
    return grade_memory(predicted, truth)["precision"] if _items(predicted) else _hit(not truth.memory.done)


HEADLINES = {"narration": "all", "memory": "f1", "textual_memory": "exact"}
"""The graded language tasks, and the measure shown for each in tables."""


def true_text(task: str, truth: Truth, wording: int = 0) -> str | None:
    """The text of a graded language task that is right; None if the world has no truth for it."""
    if task == "narration":
        return narrate(truth.narration, wording, truth.nouns)
    if task == "memory":
        return remember(truth.memory, wording, truth.nouns)
    if task == "textual_memory" and truth.textual_memory is not None:
        return write_textual_memory(truth.textual_memory)
    return None


class EpisodeGrader:
    """Grades the texts of one episode."""

    def __init__(self, *, control_hz: float) -> None:
        self._control_hz = control_hz
        self._issued: list[tuple[int, Truth | None]] = []  # control step and truth of each query
        self._due: list[Text] = []  # at later control steps
        self._watched: Truth | None = None  # the last truth between queries
        self._tasks: defaultdict[str, _TaskGrader] = defaultdict(_TaskGrader)

    def add(self, query: QueryRecord) -> None:
        """Add one query, with the texts it delivered until the first control step of the next one."""
        self._issued.append((query.step, query.truth))
        self._due += sorted(query.delivered, key=lambda text: text.delivery_step)
        for text in query.delivered:
            if text.task in HEADLINES:
                step, truth = self._issued[text.requested_query]
                seconds = (text.delivery_step - step) / self._control_hz
                self._tasks[text.task].add(text, (truth, query.truth_on_delivery(text)), seconds)
        for now in sorted(query.truths)[:-1]:  # the last step is the next query's
            while self._due and self._due[0].delivery_step <= now:
                text = self._due.pop(0)
                if text.task in HEADLINES:
                    self._tasks[text.task].deliver(text)
            if (true := query.truths[now]) is not None:
                self._watched = true
                for task in self._tasks.values():
                    task.watch(true)

    def scores(self) -> dict[str, TextScores]:
        """Language task to scores; tasks without finished texts are absent."""
        watched = self._watched
        known = {name for name in self._tasks if watched and true_text(name, watched) is not None}
        return {
            name: task.scores(task.current_steps / self._control_hz if name in known else None)
            for name, task in self._tasks.items()
        }


class _TaskGrader:
    """Sums the scores of one language task, and the control steps in which its last text is true."""

    def __init__(self) -> None:
        self._counts = {"texts": 0, "not_graded": 0, "oracle": 0}
        self._staleness_s = 0.0
        self._at_request: defaultdict[str, Share] = defaultdict(Share)
        self._on_delivery: defaultdict[str, Share] = defaultdict(Share)
        self._last: Text | None = None
        self._truth: Truth | None = None  # that `_score` of the last text is against
        self._score = 0.0
        self.current_steps = 0.0  # each weighted by the text's score at that step

    def add(self, text: Text, truths: tuple[Truth | None, Truth | None], seconds: float) -> None:
        """Grade a text against the truth at its request and on its delivery, `seconds` later."""
        self._counts["texts"] += 1
        self._counts["oracle"] += text.reason == ORACLE
        self._staleness_s += seconds
        grades = [None if truth is None else grade_text(text.task, text.text, truth) for truth in truths]
        if None in grades:
            self._counts["not_graded"] += 1
            return
        if text.task == "textual_memory" and "predicates" not in (grades[0] or ()):
            self._counts["not_graded"] += 1
        for grade, sums in zip(grades, (self._at_request, self._on_delivery), strict=True):
            assert grade is not None
            for measure, share in grade.items():
                sums[measure] += share

    def deliver(self, text: Text) -> None:
        """Make a text the last one."""
        self._last, self._truth = text, None

    def watch(self, truth: Truth) -> None:
        """Add a control step during which `truth` holds."""
        if self._last is not None and truth != self._truth:
            shares = grade_text(self._last.task, self._last.text, truth)
            share = Share(of=1) if shares is None else shares[HEADLINES[self._last.task]]
            self._truth, self._score = truth, share.hits / share.of if share.of else 1.0
        self.current_steps += self._score

    def scores(self, current_s: float | None) -> TextScores:
        """The sums."""
        return TextScores(
            **self._counts,
            at_request=dict(self._at_request),
            on_delivery=dict(self._on_delivery),
            staleness_s=self._staleness_s,
            current_s=current_s,
        )


def grade_text(task: str, text: str, truth: Truth) -> Shares | None:
    """Score a text of a graded language task; None if it cannot be graded in this world."""
    if task == "textual_memory":
        return grade_textual_memory(text, truth)
    if task == "narration":
        narration = parse_narration(text, truth.nouns)
        return None if narration is None else grade_narration(narration, truth)
    memory = parse_memory(text, truth.nouns)
    return None if memory is None else grade_memory(memory, truth)


def _hit(right: bool) -> Share:  # noqa: FBT001 - the share of one
    return Share(hits=int(right), of=1)


def _items(memory: Memory) -> frozenset[Any]:
    return frozenset(memory.done) | memory.facts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Percentage:
    """A pooled percentage."""

    pc: float
    ci95: Interval | None  # its 95 % bootstrap interval over episodes; None for few, or if all agree
    n: int  # decisions, or episodes


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextRow:
    """The texts of one language task in some episodes."""

    n_texts: int  # finished texts
    n_not_graded: int
    n_oracle: int
    staleness_ms: float | None  # mean simulated time from request to delivery
    at_request: Mapping[str, Percentage]  # by measure, over all graded texts
    on_delivery: Mapping[str, Percentage]
    # Currency: simulated time in which the text delivered last is true, memories by the F1 of their items;
    # None on clock `paused`.
    current: Percentage | None


def summarize_language(episodes: Sequence[EpisodeResult]) -> dict[str, TextRow]:
    """Language task to its row; empty if no text was finished."""
    rows = {}
    for task in HEADLINES:
        told = [episode for episode in episodes if task in episode.texts]
        scores, states = [episode.texts[task] for episode in told], states_of(told)
        if scores:
            columns = _current_columns(task, episodes)
            rows[task] = TextRow(
                n_texts=sum(score.texts for score in scores),
                n_not_graded=sum(score.not_graded for score in scores),
                n_oracle=sum(score.oracle for score in scores),
                staleness_ms=mean_staleness_ms(episodes, [task]),
                at_request=_percentages([score.at_request for score in scores], states),
                on_delivery=_percentages([score.on_delivery for score in scores], states),
                current=columns
                and _pooled(*columns, states_of(episodes), n=len(episodes), method="percentile"),
            )
    return rows


def currency_differences(
    pairs: Sequence[tuple[EpisodeResult, EpisodeResult]],
) -> dict[str, MeanDifference]:
    """Language task to the percentage of time in which its last text is true, in A and B.

    Over pairs (A, B), for tasks that both runs have texts of; the interval is over episodes.
    """
    found = {}
    for task in HEADLINES:
        a, b = (_current_columns(task, [pair[side] for pair in pairs]) for side in (0, 1))
        if a is not None and b is not None:
            states = states_of(pair[0] for pair in pairs)
            found[task] = _difference(a, b, states, method="percentile")
    return found


def _current_columns(task: str, episodes: Sequence[EpisodeResult]) -> _Columns | None:
    """Seconds in which the last text was true, and all seconds, by episode.

    An episode without a text counts as one in which nothing was true. None if no episode has a text of the
    task, or one with texts has no record of it.
    """
    seconds = [episode.texts[task].current_s if task in episode.texts else 0.0 for episode in episodes]
    total = np.array([episode.simulated_s or 0.0 for episode in episodes])
    if None in seconds or not total.sum() or not any(task in episode.texts for episode in episodes):
        return None
    return np.array(seconds, np.float64), total


def mean_staleness_ms(
    episodes: Sequence[EpisodeResult], tasks: Iterable[str] = tuple(HEADLINES)
) -> float | None:
    """Mean simulated milliseconds from request to delivery of the tasks' texts; None without texts."""
    scores = [episode.texts[task] for task in tasks for episode in episodes if task in episode.texts]
    texts = sum(score.texts for score in scores)
    return 1e3 * sum(score.staleness_s for score in scores) / texts if texts else None


def _percentages(shares: Sequence[Mapping[str, Share]], states: Sequence[Hashable]) -> dict[str, Percentage]:
    measures = dict.fromkeys(measure for share in shares for measure in share)
    rows = {m: percentage([share.get(m, Share()) for share in shares], states) for m in measures}
    return {measure: row for measure, row in rows.items() if row is not None}


def percentage(shares: Sequence[Share], states: Sequence[Hashable]) -> Percentage | None:
    """Pooled percentage of the episodes of these initial states, with interval; None if all totals are 0."""
    kept = [number for number, share in enumerate(shares) if share.of]
    hits, of = _columns([shares[number] for number in kept])
    return _pooled(hits, of, [states[number] for number in kept], n=int(of.sum())) if kept else None


def _pooled(
    part: np.ndarray, whole: np.ndarray, states: Sequence[Hashable], *, n: int, **how: Any
) -> Percentage:
    interval = cluster_bootstrap_95(ratio_of_sums, part, whole, clusters=states, **how)
    return Percentage(pc=100 * float(ratio_of_sums(part, whole)), ci95=scaled(interval, 100), n=n)


def share_difference(
    a: Sequence[Share], b: Sequence[Share], states: Sequence[Hashable]
) -> MeanDifference | None:
    """Pooled percentages of A and B, paired by episode; None if one of the two is undefined."""
    kept = [number for number, pair in enumerate(zip(a, b, strict=True)) if any(share.of for share in pair)]
    of_a, of_b = (_columns([side[number] for number in kept]) for side in (a, b))
    if not of_a[1].sum() or not of_b[1].sum():
        return None
    return _difference(of_a, of_b, [states[number] for number in kept])


def _difference(a: _Columns, b: _Columns, states: Sequence[Hashable], **how: Any) -> MeanDifference:
    def gain(a: np.ndarray, of_a: np.ndarray, b: np.ndarray, of_b: np.ndarray, axis: int = -1) -> np.ndarray:
        return 100 * (ratio_of_sums(b, of_b, axis) - ratio_of_sums(a, of_a, axis))

    return MeanDifference(
        a=100 * float(ratio_of_sums(*a)),
        b=100 * float(ratio_of_sums(*b)),
        difference=float(gain(*a, *b)),
        ci95=cluster_bootstrap_95(gain, *a, *b, clusters=states, **how),
        n_pairs=len(a[0]),
    )


def _columns(shares: Sequence[Share]) -> _Columns:
    return np.array([share.hits for share in shares], float), np.array([share.of for share in shares], float)
