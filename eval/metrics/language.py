"""Grades texts against the ground truth, at request and on delivery.

Texts are parsed by `sim_envs.truth.wording`; those that cannot be parsed are counted and not graded. Scores
are counts out of totals, so that episodes, tasks and suites add up.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

from eval.records.query_logs import QueryRecord, delivery_step
from eval.records.schema import Share, Shares, TextScores
from oxygen.policy.reply import Text
from sim_envs.truth.ground_truth import CompletedAction, Memory, Narration, Truth
from sim_envs.truth.textual_memory import normalize, parse_textual_memory, write_textual_memory
from sim_envs.truth.wording import narrate, parse_memory, parse_narration, remember

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
    return {
        "precision": Share(hits=right, of=len(items)),
        "recall": Share(hits=right, of=len(true)),
        "f1": Share(hits=2 * right, of=len(items) + len(true)),
        "order": _order(predicted.done, truth.memory.done),
    }


def grade_textual_memory(text: str, truth: Truth) -> Shares | None:
    """OxyGen's exact match and word F1, and F1 over predicates if it can be parsed; None without a truth.

    The first two need no parser and score any text, as in OxyGen's evaluation.
    """
    true, predicted = truth.textual_memory, parse_textual_memory(text)
    if true is None:
        return None
    sentence = write_textual_memory(true)
    shares = {
        "exact": _hit(normalize(text) == normalize(sentence)),
        "words": Share(hits=_word_f1(text, sentence), of=1),
    }
    if predicted is not None:
        right = (Counter(predicted) & Counter(true)).total()
        shares["predicates"] = Share(hits=2 * right, of=len(predicted) + len(true))
    return shares


def _word_f1(text: str, true: str) -> float:
    said, meant = (Counter(normalize(each).split()) for each in (text, true))
    return 2 * (said & meant).total() / (said.total() + meant.total())


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
    return None if truth.textual_memory is None else write_textual_memory(truth.textual_memory)


class EpisodeGrader:
    """Grades the texts of one episode."""

    def __init__(self, *, control_hz: float) -> None:
        self._control_hz = control_hz
        self._truths: list[Truth | None] = []
        self._steps: list[int] = []
        self._due: list[Text] = []  # at later control steps
        self._last: defaultdict[str, _LastText] = defaultdict(_LastText)
        self._watched: Truth | None = None  # the last truth between queries
        self._tasks: defaultdict[str, _TaskGrader] = defaultdict(_TaskGrader)

    def add(self, query: QueryRecord) -> None:
        """Add one query, with the texts it delivered until the first control step of the next one."""
        self._truths.append(query.truth)
        self._steps.append(query.step)
        self._due += sorted(query.delivered, key=delivery_step)
        for now in sorted(query.truths)[:-1]:  # the last step is the next query's
            while self._due and delivery_step(self._due[0]) <= now:
                text = self._due.pop(0)
                if text.task in HEADLINES:
                    self._last[text.task].replace(text)
            true = query.truths[now]
            if true is not None:
                self._watched = true
                for last in self._last.values():
                    last.watch(true)
        for text in query.delivered:
            if text.task in HEADLINES:
                steps = delivery_step(text) - self._steps[text.requested_query]
                truths = self._truths[text.requested_query], query.truth_on_delivery(text)
                self._tasks[text.task].add(text, truths, steps / self._control_hz)

    def scores(self) -> dict[str, TextScores]:
        """Language task to scores; tasks without finished texts are absent."""
        known = [task for task in self._tasks if self._watched and true_text(task, self._watched) is not None]
        current_s = {task: self._last[task].current_steps / self._control_hz for task in known}
        return {task: grader.scores(current_s.get(task)) for task, grader in self._tasks.items()}


class _TaskGrader:
    """Sums the scores of one language task."""

    def __init__(self) -> None:
        self._counts = {"texts": 0, "not_graded": 0, "oracle": 0}
        self._staleness_s = 0.0
        self._at_request: defaultdict[str, Share] = defaultdict(Share)
        self._on_delivery: defaultdict[str, Share] = defaultdict(Share)

    def add(self, text: Text, truths: tuple[Truth | None, Truth | None], seconds: float) -> None:
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

    def scores(self, current_s: float | None) -> TextScores:
        return TextScores(
            **self._counts,
            at_request=dict(self._at_request),
            on_delivery=dict(self._on_delivery),
            staleness_s=self._staleness_s,
            current_s=current_s,
        )


class _LastText:
    """The text of a language task that was delivered last, and for how many control steps it was true.

    Attributes:
        current_steps: Control steps, each weighted by the text's score at that step.
    """

    def __init__(self) -> None:
        self._text: Text | None = None
        self._truth: Truth | None = None  # that `_score` is against
        self._score = 0.0
        self.current_steps = 0.0

    def replace(self, text: Text) -> None:
        self._text, self._truth = text, None

    def watch(self, truth: Truth) -> None:
        """Add a control step during which `truth` holds."""
        if self._text is not None and truth != self._truth:
            shares = grade_text(self._text.task, self._text.text, truth)
            share = Share(of=1) if shares is None else shares[HEADLINES[self._text.task]]
            self._truth, self._score = truth, share.hits / share.of if share.of else 1.0
        self.current_steps += self._score


def grade_text(task: str, text: str, truth: Truth) -> Shares | None:
    """Score a text of a graded language task; None if it cannot be graded in this world."""
    if task == "textual_memory":
        return grade_textual_memory(text, truth)
    parse, grade = _GRADERS[task]
    predicted = parse(text, truth.nouns)
    return None if predicted is None else grade(predicted, truth)


_GRADERS: Mapping[str, tuple[Callable[..., Any], Callable[..., Shares]]] = {
    "narration": (parse_narration, grade_narration),
    "memory": (parse_memory, grade_memory),
}


def _hit(right: bool) -> Share:  # noqa: FBT001 - the share of one
    return Share(hits=int(right), of=1)


def _items(memory: Memory) -> frozenset[Any]:
    return frozenset(memory.done) | memory.facts


def _order(predicted: Sequence[CompletedAction], true: Sequence[CompletedAction]) -> Share:
    both = [true.index(action) for action in predicted if action in true]
    pairs = list(combinations(both, 2))
    return Share(hits=sum(first < second for first, second in pairs), of=len(pairs))
