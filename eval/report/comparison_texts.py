"""Texts of an episode, and their paired comparison: requested in the same query, finished in both runs."""

import dataclasses
import enum
import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from eval.metrics.action_difference import EpisodeQueries
from eval.metrics.language import HEADLINES, ORACLE, difference, grade_text, percentage
from eval.records.query_logs import QueryRecord
from eval.records.schema import Share
from oxygen.policy.reply import Text, TextRequest
from sim_envs.truth.ground_truth import Truth


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
        ended |= {each.request_id: (query, None) for each in query.dropped}
        ended |= {each.request_id: (query, each) for each in query.delivered}
    return [
        RequestedText(request=request, asked=query, ended=at, text=text)
        for query in queries
        for request in query.requested
        for at, text in [ended.get(request.request_id, (None, None))]
    ]


class Unpaired(enum.StrEnum):
    """Why a graded text of one run has no counterpart in the other."""

    NOT_GRADED = "not readable"
    CUT_OFF = "cut off by the episode's end"
    DROPPED = "dropped for lack of a slot"
    NEVER = "never requested"
    OTHER_MOMENT = "at other times"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextDifference:
    """The headline measure of one language task in both runs, in percent, over the texts in pairs."""

    task: str
    when: str  # time of the ground truth that grades the texts: `at_request` or `on_delivery`
    a: float
    b: float
    difference: float  # B's minus A's, percentage points
    interval: tuple[float, float] | None  # its 95 % bootstrap interval over episodes; None if undefined


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextPairs:
    """The texts of one language task, paired by episode and by the query that requested them."""

    task: str
    # Graded in both runs: the texts that scores are of. 0 where all texts of each run are compared.
    pairs: int
    # Graded in A alone, by the reason why B has no graded text; `only_b` likewise.
    only_a: Mapping[Unpaired, int]
    only_b: Mapping[Unpaired, int]
    oracle_a: bool  # whether A's were generated from the ground truth; `oracle_b` likewise
    oracle_b: bool
    # At request and on delivery; empty if there is no pair, or nothing to grade.
    differences: Sequence[TextDifference]


_NOTHING = Share()
_When = tuple[int, int]
"""The query that requested a text, and its index among the texts of its task requested there."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Text:
    """A requested text: its scores, or why it has none."""

    reason: Unpaired | None
    oracle: bool = False
    at_request: Share = _NOTHING
    on_delivery: Share = _NOTHING


def compare_texts(episodes: Sequence[EpisodeQueries], *, in_pairs: bool) -> list[TextPairs]:
    """Compare the texts of both runs, by language task; tasks without graded texts are left out.

    Args:
        episodes: The queries of each episode in both runs.
        in_pairs: Whether texts are pairs if they were requested in the same query of the same episode. Holds
            on clock `paused`, where both runs issue that query at the same time. Other clocks charge latency,
            so only episodes are paired: all graded texts of one run are compared with all of the other.
    """
    found, never = [], _Text(reason=Unpaired.NEVER)
    for task in HEADLINES:
        graded: list[tuple[list[_Text], list[_Text]]] = []
        only_a, only_b = Counter[Unpaired](), Counter[Unpaired]()
        oracles = [False, False]
        for episode in episodes:
            a, b = _texts(task, episode.a), _texts(task, episode.b)
            for side, texts in enumerate((a, b)):
                oracles[side] |= any(text.oracle for text in texts.values())
            if in_pairs:
                pairs = [(a.get(when, never), b.get(when, never)) for when in sorted(a.keys() | b.keys())]
                both = [(x, y) for x, y in pairs if x.reason is y.reason is None]
                graded.append(([x for x, _ in both], [y for _, y in both]))
                only_a.update(y.reason for x, y in pairs if x.reason is None and y.reason is not None)
                only_b.update(x.reason for x, y in pairs if y.reason is None and x.reason is not None)
            else:
                of_a, of_b = ([text for text in each.values() if text.reason is None] for each in (a, b))
                graded.append((of_a, of_b))
                only_a[Unpaired.OTHER_MOMENT] += len(of_a)
                only_b[Unpaired.OTHER_MOMENT] += len(of_b)
        texts = TextPairs(
            task=task,
            pairs=sum(len(of_a) for of_a, _ in graded) if in_pairs else 0,
            only_a=dict(only_a),
            only_b=dict(only_b),
            oracle_a=oracles[0],
            oracle_b=oracles[1],
            differences=list(_differences(task, graded)),
        )
        if texts.differences or (in_pairs and (texts.pairs or only_a or only_b)):
            found.append(texts)
    return found


def _differences(
    task: str, by_episode: Sequence[tuple[Sequence[_Text], Sequence[_Text]]]
) -> Iterator[TextDifference]:
    """Scores of B and A, from the texts of each episode in A and in B."""
    for when in ("at_request", "on_delivery"):
        shares_a, shares_b = (
            [sum((getattr(text, when) for text in texts[side]), _NOTHING) for texts in by_episode]
            for side in (0, 1)
        )
        a, b = percentage(shares_a), percentage(shares_b)
        fall = difference(shares_b, shares_a)  # `difference` is a drop, from B to A the gain of B
        if a is not None and b is not None and fall is not None:
            interval = None if fall["ci95"] is None else (fall["ci95"][0], fall["ci95"][1])
            yield TextDifference(
                task=task, when=when, a=a["pc"], b=b["pc"], difference=fall["pc"], interval=interval
            )


def _texts(task: str, queries: Sequence[QueryRecord]) -> dict[_When, _Text]:
    """The texts of the task requested in an episode."""
    found: dict[_When, _Text] = {}
    places = Counter[int]()
    of_task = [each for each in requested_texts(queries) if each.request.task == task]
    for each in sorted(of_task, key=lambda each: each.request.request_id):
        query = each.request.query
        found[query, places[query]] = _graded(each)
        places[query] += 1
    return found


def _graded(requested: RequestedText) -> _Text:
    if requested.text is None:
        return _Text(reason=Unpaired.CUT_OFF if requested.ended is None else Unpaired.DROPPED)
    oracle = requested.text.reason == ORACLE
    shares = [headline_share(requested.request.task, requested.text.text, each) for each in requested.truths]
    at_request, on_delivery = shares
    if at_request is None or on_delivery is None:
        return _Text(reason=Unpaired.NOT_GRADED, oracle=oracle)
    return _Text(reason=None, oracle=oracle, at_request=at_request, on_delivery=on_delivery)


@functools.lru_cache(maxsize=4096)  # texts and truths repeat over queries
def headline_share(task: str, generated: str, truth: Truth | None) -> Share | None:
    """The headline measure of a text; None without a truth, or if the text cannot be read."""
    shares = None if truth is None else grade_text(task, generated, truth)
    return None if shares is None else shares.get(HEADLINES[task], _NOTHING)
