"""Captions of an episode's video, from its queries: graded texts, latencies, timeline."""

import dataclasses

from configs.latency import Latency
from eval.metrics.language import HEADLINES, grade_part, grade_text
from eval.records.query_logs import QueryRecord, delivery_step
from eval.records.schema import Share
from oxygen.policy.reply import Text
from sim_envs.truth.ground_truth import Truth
from sim_envs.world import EpisodeKey
from videos import theme
from videos.panel import Caption, CaptionText
from videos.theme import Mark
from videos.timeline import QuerySpan, QueryTimeline


class EpisodeCaptions:
    """Captions of one episode. Add a query, then ask for the captions of its control steps in order."""

    def __init__(
        self, key: EpisodeKey, *, task: str, mode: str, clock: str, limit_s: float, control_hz: float
    ) -> None:
        """Begin an episode; `task` is its instruction, `clock` the value of `--clock`."""
        self._caption = Caption(
            task=task,
            episode=f"{key.suite} · task {key.task_id} · init {key.init_id}",
            mode=mode,
            time_s=0.0,
            limit_s=limit_s,
            clock="" if clock == "paused" else clock.removeprefix("profile:"),
        )
        self._control_hz = control_hz
        self._issued: list[int] = []
        self._coming: list[tuple[Text, Truth | None]] = []
        self._said: dict[str, CaptionText] = {}

    def add(self, query: QueryRecord) -> None:
        """Add the next query, with the control steps until the one after."""
        hz, number = self._control_hz, len(self._issued)
        self._issued.append(query.step)
        self._coming += [(text, query.truth_on_delivery(text)) for text in query.delivered]
        self._coming.sort(key=lambda coming: delivery_step(coming[0]))
        latency, before = query.latency, self._caption.timeline or QueryTimeline()
        if latency is None:
            if (actions := query.timings_ms.get("action")) is not None:
                latency = Latency(
                    actions_ms=actions, busy_ms=max(actions, query.timings_ms.get("frame", 0.0))
                )
        else:
            spans: dict[str, list[tuple[float, float]]] = {"held": [], "continued": []}
            step = query.step
            since_s = step / hz - theme.TIMELINE_S  # what ended before has scrolled away
            for chunk, _, steps in query.spans:
                if chunk != number:
                    spans["held" if chunk is None else "continued"].append((step / hz, (step + steps) / hz))
                step += steps
            issued = QuerySpan(
                issued_s=query.step / hz, actions_s=query.actions_step / hz, free_s=query.free_step / hz
            )
            timeline = QueryTimeline(
                queries=(*(each for each in before.queries if each.free_s > since_s), issued),
                held=(*(each for each in before.held if each[1] > since_s), *spans["held"]),
                continued=(*(each for each in before.continued if each[1] > since_s), *spans["continued"]),
            )
            self._caption = dataclasses.replace(self._caption, timeline=timeline)
        if latency is not None:
            shown = dataclasses.replace(latency, texts_ms=())
            latencies = (*self._caption.latencies, shown)[-theme.LATENCIES :]
            self._caption = dataclasses.replace(self._caption, latencies=latencies)

    def at(self, step: int) -> Caption:
        """The caption at a control step, with the texts delivered by then."""
        while self._coming and delivery_step(self._coming[0][0]) <= step:
            text, truth = self._coming.pop(0)
            if text.task in HEADLINES:
                seen_s = self._issued[text.requested_query] / self._control_hz
                self._said[text.task] = _caption_text(text, truth, seen_s=seen_s)
        return dataclasses.replace(
            self._caption,
            time_s=step / self._control_hz,
            narration=self._said.get("narration"),
            memory=self._said.get("memory"),
            textual_memory=self._said.get("textual_memory"),
        )


def _caption_text(text: Text, truth: Truth | None, *, seen_s: float) -> CaptionText:
    """A delivered text with its grades: the headline measure, and each part's of a memory."""
    pieces = [piece.strip() for piece in text.text.split(";") if piece.strip()]
    if truth is None:
        return CaptionText(text=text.text, seen_s=seen_s, parts=tuple((piece, None) for piece in pieces))
    shares = grade_text(text.task, text.text, truth)
    parts: list[tuple[str, Mark | None]] = [(piece, None) for piece in pieces]
    if text.task != "narration":
        parts = [(piece, _mark(grade_part(text.task, piece, truth))) for piece in pieces]
    mark = _mark(None if shares is None else shares[HEADLINES[text.task]])
    return CaptionText(text=text.text, seen_s=seen_s, mark=mark, parts=tuple(parts))


def _mark(share: Share | None) -> Mark:
    """The mark of a grade; None is an unreadable text. An empty text is right if the truth is empty."""
    if share is None:
        return "unreadable"
    if share.hits == share.of:
        return "right"
    return "partly right" if share.hits else "wrong"
