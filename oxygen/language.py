"""Language tasks as data, and what is told about the texts they bring forth."""

import dataclasses

from configs.errors import UsageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageTask:
    """A kind of text wanted beside actions.

    Attributes:
        name: Unique among a policy's tasks, e.g. `narration`.
        prompt: The suffix that follows the prefix and asks for the text.
        every_queries: A request is born in queries 0, n, 2n, …
        max_tokens: The text ends here at the latest.
        priority: The larger goes first when not all requests fit in one batch.
    """

    name: str
    prompt: str
    every_queries: int
    max_tokens: int
    priority: int = 0

    def __post_init__(self) -> None:
        for field in ("every_queries", "max_tokens"):
            if getattr(self, field) < 1:
                raise UsageError(
                    f"language task {self.name!r}: {field} is {getattr(self, field)}, at least 1"
                )
        if not self.prompt:
            raise UsageError(f"language task {self.name!r} has an empty prompt; say what to write")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextBorn:
    """A request and the query it belongs to."""

    task: str
    request_id: int
    query: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFinished:
    """A finished text.

    Attributes:
        task: Name of its language task.
        request_id: Counts the requests of an episode.
        born_query: The query whose observation it speaks of.
        finished_query: The query in which its last token was decoded.
        text: What was written.
        tokens: Decoded for it, a stop token included.
        reason: `stop` (the model ended it), `length` (the task's limit did), or `oracle` (no model wrote it:
            it was read aloud from the world's own account).
        latency_ms: Time the policy worked from its birth to its end; the world's own time is not counted.
    """

    task: str
    request_id: int
    born_query: int
    finished_query: int
    text: str
    tokens: int
    reason: str
    latency_ms: float
