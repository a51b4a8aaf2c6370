"""An oracle that reads the world's own account aloud: the ceiling of language scores, no policy's merit."""

from collections.abc import Callable, Mapping, Sequence

from configs.schema import LanguageTaskConfig
from eval.metrics.language import ORACLE
from eval.policies.language_tasks import language_task
from oxygen.policy.reply import TextFinished, TextRequest
from sim_envs.truth.ground_truth import Truth
from sim_envs.truth.wording import WORDINGS, narrate, remember
from sim_envs.world import EpisodeKey, World

_AUTHORS: Mapping[str, Callable[[Truth, int], str]] = {
    "narration": lambda truth, wording: narrate(truth.narration, wording, truth.nouns),
    "memory": lambda truth, wording: remember(truth.memory, wording, truth.nouns),
}


class Oracle:
    """Writes its texts as often as the language tasks want them, each within the query it is requested in.

    Other language tasks than `narration` and `memory` have no truth, and get no text. Each episode has a
    wording of its own, a function of its key.
    """

    def __init__(self, tasks: Sequence[LanguageTaskConfig], world: World) -> None:
        self._tasks = [language_task(task) for task in tasks if task.name in _AUTHORS]
        self._world = world
        self._wording = self._query = self._request = 0

    def reset(self, key: EpisodeKey) -> None:
        """Begin an episode."""
        self._wording = key.digest() % WORDINGS
        self._query = self._request = 0

    def speak(self) -> tuple[tuple[TextRequest, ...], tuple[TextFinished, ...]]:
        """The texts of the next query: those requested, and the same finished."""
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
            text=_AUTHORS[task](truth, self._wording),
            tokens=0,
            reason=ORACLE,
            latency_ms=0.0,
        )
