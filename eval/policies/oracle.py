"""Writes texts from the ground truth: the upper bound of language scores."""

from collections.abc import Callable, Mapping, Sequence

from configs.language_task import LanguageTaskConfig
from eval.metrics.language import ORACLE
from oxygen.policy.reply import TextFinished, TextRequest
from oxygen.presets.language_tasks import language_task
from sim_envs.truth.ground_truth import Truth
from sim_envs.truth.wording import WORDINGS, narrate, remember
from sim_envs.world import EpisodeKey, World

_WRITERS: Mapping[str, Callable[[Truth, int], str]] = {
    "narration": lambda truth, wording: narrate(truth.narration, wording, truth.nouns),
    "memory": lambda truth, wording: remember(truth.memory, wording, truth.nouns),
}


class Oracle:
    """Writes the texts of `narration` and `memory`, each within the query that requests it.

    Other language tasks have no ground truth and get no text. The wording is a function of the episode key.
    """

    def __init__(self, tasks: Sequence[LanguageTaskConfig], world: World) -> None:
        self._tasks = [language_task(task) for task in tasks if task.name in _WRITERS]
        self._world = world
        self._wording = self._query = self._request = 0

    def reset(self, key: EpisodeKey) -> None:
        """Start an episode."""
        self._wording = key.digest() % WORDINGS
        self._query = self._request = 0

    def write(self) -> tuple[tuple[TextRequest, ...], tuple[TextFinished, ...]]:
        """The texts of the next query, as requested and as finished."""
        due = [task.name for task in self._tasks for _ in task.arrivals.due(0, self._query)]
        truth = self._world.truth() if due else None
        finished = tuple(self._text(task, truth) for task in due) if truth is not None else ()
        self._query += 1
        requested = tuple(
            TextRequest(task=text.task, request_id=text.request_id, query=text.requested_query)
            for text in finished
        )
        return requested, finished

    def _text(self, task: str, truth: Truth) -> TextFinished:
        self._request += 1
        return TextFinished(
            task=task,
            request_id=self._request - 1,
            requested_query=self._query,
            finished_query=self._query,
            text=_WRITERS[task](truth, self._wording),
            tokens=0,
            reason=ORACLE,
            latency_ms=0.0,
        )
