"""Texts in the prompts of one episode: which were delivered when, and the prompt of each query."""

import dataclasses
from collections.abc import Mapping, Sequence

from contracts.latency import steps_in
from contracts.observation import Observation
from contracts.prompt import (
    INSTRUCTION,
    FieldsByTask,
    cleaned,
    compose,
    parse_answer,
    prompt_fields,
    true_tasks,
)
from contracts.query import FedText
from contracts.text import Text
from contracts.text_source import DelayedTruth, Frozen, Own, TextSource, TrueText
from contracts.truth import Truth
from eval.metrics.language import true_text
from sim_envs.world import TaskError


class EpisodeFeedback:
    """The texts fed back in one episode. For each query: `observed`, then `delivered` with its texts."""

    def __init__(self, fields_by_task: FieldsByTask, source: TextSource, *, control_hz: float) -> None:
        """Begin an episode without texts."""
        self._fields_by_task = fields_by_task
        self._fields = prompt_fields(fields_by_task)
        self._source = source
        is_true = isinstance(source, TrueText)
        self._truth_late = steps_in(1e3 * source.age_s, control_hz) if is_true else None
        self._max_chars = {each.field: each.max_chars for each in self._fields}
        self._lookback = {each.field: steps_in(1e3 * each.lookback_s, control_hz) for each in self._fields}
        self._applied: dict[str, list[FedText]] = {each.field: [] for each in self._fields}  # by delivery
        self._queries: list[tuple[int, Truth | None]] = []
        self._truth_error: str | None = None  # why a world failed to provide the truth
        if isinstance(source, Frozen):
            for fields in fields_by_task.values():
                self._add(parse_answer(source.text, fields), step=None, observed_step=None)

    def observed(
        self, observation: Observation, step: int, truth: Truth | None, *, error: str | None = None
    ) -> tuple[Observation, dict[str, FedText]]:
        """The observation of the next query with its prompt, and the text of each field that is not empty.

        `error` says why there is no truth, if the world failed to provide it.

        Raises:
            TaskError: The world has no truth of a field that is to hold it.
        """
        self._queries.append((step, truth))
        self._truth_error = error
        if self._truth_late is not None:
            for task in self._fields_by_task:
                self._add(self._true_texts(task, truth), step=step + self._truth_late, observed_step=step)
        fed: dict[str, FedText] = {}
        for field, applied in self._applied.items():
            limit = step - self._lookback[field]
            due = [text for text in applied if text.step is None or text.step <= limit]
            if due:
                fed[field] = due[-1]
        texts = {field: text.text for field, text in fed.items()}
        parts = {each.field: texts.get(each.field, each.empty) for each in self._fields}
        prompt = compose(observation.language, self._fields, texts)
        return dataclasses.replace(
            observation, language=prompt, feedback={INSTRUCTION: observation.language, **parts}
        ), fed

    def delivered(self, texts: Sequence[Text]) -> None:
        """Add the texts delivered until the next query."""
        if not isinstance(self._source, Own | DelayedTruth):
            return
        for text in sorted(texts, key=lambda each: (each.delivery_step, each.requested_query)):
            if text.task in self._fields_by_task:
                observed_step, truth = self._queries[text.requested_query]
                fed = parse_answer(text.text, self._fields_by_task[text.task])
                if fed is not None and isinstance(self._source, DelayedTruth):
                    fed = self._true_texts(text.task, truth)
                self._add(fed, step=text.step, observed_step=observed_step)

    def _true_texts(self, task: str, truth: Truth | None) -> dict[str, str]:
        found: dict[str, str] = {}
        for field, name in true_tasks(task, self._fields_by_task[task]).items():
            true = None if truth is None else true_text(name, truth)
            if true is None:
                why = f" ({self._truth_error})" if self._truth_error else ""
                raise TaskError(
                    f"--feedback {self._source}: the world has no truth of {name!r}{why}; choose own, none "
                    "or frozen:TEXT"
                )
            found[field] = true
        return found

    def _add(self, texts: Mapping[str, str] | None, *, step: int | None, observed_step: int | None) -> None:
        """Add the text of each field; None is an answer that cannot be read."""
        for field, text in (texts or {}).items():
            short, cut = cleaned(text, self._max_chars[field])
            self._applied[field].append(FedText(text=short, step=step, observed_step=observed_step, cut=cut))
