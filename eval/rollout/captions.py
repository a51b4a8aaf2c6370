"""Captions of an episode's video, from its queries: graded texts, latencies, timeline."""

import dataclasses

from eval.metrics.language import HEADLINES, grade_part, grade_text
from eval.records.query_logs import QueryRecord, delivery_step
from eval.records.schema import Share
from oxygen.policy.reply import Text
from sim_envs.truth.ground_truth import Truth
from sim_envs.world import EpisodeKey
from videos import theme
from videos.caption import Caption, CaptionText
from videos.theme import Mark
from videos.timeline import QueryLatency, QuerySpan, QueryTimeline, TimeSpan


def first_caption(key: EpisodeKey, *, task: str, mode: str, clock: str, limit_s: float) -> Caption:
    """The caption at the start of an episode, with the fields that all its captions share.

    `task` is the instruction, `clock` the value of `--clock`, `limit_s` the step limit in simulated seconds.
    """
    return Caption(
        task=task,
        episode=f"{key.suite} · task {key.task_id} · init {key.init_id}",
        mode=mode,
        time_s=0.0,
        limit_s=limit_s,
        clock="" if clock == "paused" else clock.removeprefix("profile:"),
    )


class EpisodeCaptions:
    """Captions of one episode. Add a query, then ask for the captions of its control steps in order."""

    def __init__(self, caption: Caption, *, control_hz: float) -> None:
        """Begin an episode with `first_caption`."""
        self._caption = caption
        self._control_hz = control_hz
        self._issued: list[int] = []
        self._coming: list[tuple[Text, Truth | None]] = []
        self._said: dict[str, CaptionText] = {}

    def add(self, query: QueryRecord) -> None:
        """Add the next query, with the control steps until the one after."""
        self._issued.append(query.step)
        self._coming += [(text, query.truth_on_delivery(text)) for text in query.delivered]
        self._coming.sort(key=lambda coming: delivery_step(coming[0]))
        latencies = (*self._caption.latencies, *_latency(query))[-theme.LATENCIES :]
        timeline = self._caption.timeline
        if query.latency is not None:
            timeline = self._advanced(timeline or QueryTimeline(), query)
        self._caption = dataclasses.replace(self._caption, latencies=latencies, timeline=timeline)

    def at(self, step: int) -> Caption:
        """The caption at a control step, with the texts delivered by then."""
        while self._coming and delivery_step(self._coming[0][0]) <= step:
            text, truth = self._coming.pop(0)
            if text.task in HEADLINES:
                self._said[text.task] = self._caption_text(text, truth)
        return dataclasses.replace(
            self._caption,
            time_s=step / self._control_hz,
            narration=self._said.get("narration"),
            memory=self._said.get("memory"),
            textual_memory=self._said.get("textual_memory"),
        )

    def _caption_text(self, text: Text, truth: Truth | None) -> CaptionText:
        pieces = [piece.strip() for piece in text.text.split(";") if piece.strip()]
        parts: list[tuple[str, Mark | None]] = [(piece, None) for piece in pieces]
        if truth is not None and text.task != "narration":
            parts = [(piece, _mark(grade_part(text.task, piece, truth))) for piece in pieces]
        return CaptionText(
            text=text.text,
            seen_s=self._issued[text.requested_query] / self._control_hz,
            mark=None if truth is None else _mark(_headline(text.task, text.text, truth)),
            parts=tuple(parts),
        )

    def _advanced(self, timeline: QueryTimeline, query: QueryRecord) -> QueryTimeline:
        """The timeline with one more query, without queries that have scrolled out of view."""
        hz, number = self._control_hz, len(self._issued) - 1
        spans: dict[str, list[TimeSpan]] = {"held": [], "continued": []}
        step = query.step
        for chunk, _, steps in query.spans:
            if chunk != number:
                kind = "held" if chunk is None else "continued"
                spans[kind].append(TimeSpan(start_s=step / hz, end_s=(step + steps) / hz))
            step += steps
        since_s = query.step / hz - theme.TIMELINE_S
        issued = QuerySpan(
            issued_s=query.step / hz, actions_s=query.actions_step / hz, free_s=query.free_step / hz
        )
        return QueryTimeline(
            queries=(*(each for each in timeline.queries if each.free_s > since_s), issued),
            held=(*(each for each in timeline.held if each.end_s > since_s), *spans["held"]),
            continued=(*(each for each in timeline.continued if each.end_s > since_s), *spans["continued"]),
        )


def _latency(query: QueryRecord) -> tuple[QueryLatency, ...]:
    """The simulated latency, or the measured one on clock `paused`; empty if unknown."""
    if query.latency is not None:
        return (QueryLatency(actions_ms=query.latency.actions_ms, busy_ms=query.latency.busy_ms),)
    actions = query.timings_ms.get("action")
    if actions is None:
        return ()
    return (QueryLatency(actions_ms=actions, busy_ms=max(actions, query.timings_ms.get("frame", 0.0))),)


def _headline(task: str, text: str, truth: Truth) -> Share | None:
    """The headline measure of a text; None if it cannot be parsed."""
    shares = grade_text(task, text, truth)
    return None if shares is None else shares[HEADLINES[task]]


def _mark(share: Share | None) -> Mark:
    """The mark of a grade; None is an unreadable text. An empty text is right if the truth is empty."""
    if share is None:
        return "unreadable"
    if share.hits == share.of:
        return "right"
    return "partly right" if share.hits else "wrong"
