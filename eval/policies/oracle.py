"""Writes texts from the ground truth: the upper bound of language scores."""

from collections.abc import Sequence

from configs.language_task import LanguageTaskConfig
from eval.metrics.language import HEADLINES, ORACLE, true_text
from oxygen.policy.reply import Text, TextRequest
from oxygen.presets.language_tasks import language_task
from sim_envs.truth.wording import WORDINGS
from sim_envs.world import EpisodeKey, World


class Oracle:
    """Writes the texts of `narration`, `memory` and `textual_memory`, each within the query that requests it.

    Other language tasks have no ground truth and get no text. The wording is a function of the episode key.
    """

    def __init__(self, tasks: Sequence[LanguageTaskConfig], world: World) -> None:
        self._tasks = [language_task(task) for task in tasks if task.name in HEADLINES]
        self._world = world
        self._wording = self._query = self._request = 0

    def reset(self, key: EpisodeKey) -> None:
        """Start an episode."""
        self._wording = key.digest() % WORDINGS
        self._query = self._request = 0

    def write(self) -> tuple[tuple[TextRequest, ...], tuple[Text, ...]]:
        """The texts of the next query, as requested and as finished."""
        due = [task.name for task in self._tasks for _ in task.arrivals.due(0, self._query)]
        truth = self._world.truth() if due else None
        texts = [] if truth is None else [(task, true_text(task, truth, self._wording)) for task in due]
        finished = tuple(self._text(task, text) for task, text in texts if text is not None)
        self._query += 1
        requested = tuple(
            TextRequest(task=text.task, request_id=text.request_id, query=text.requested_query)
            for text in finished
        )
        return requested, finished

    def _text(self, task: str, text: str) -> Text:
        self._request += 1
        return Text(
            task=task,
            request_id=self._request - 1,
            requested_query=self._query,
            finished_query=self._query,
            text=text,
            tokens=0,
            reason=ORACLE,
            latency_ms=0.0,
        )
