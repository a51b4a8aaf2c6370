"""Language tasks as data, and what is told about the texts they bring forth."""

import dataclasses
from collections.abc import Sequence

from configs.errors import UsageError
from oxygen.robots.tokenizer import Tokenizer
from oxygen.serving.arrivals import EVERY_QUERY, Arrivals
from oxygen.serving.sampling import GREEDY, Sampling


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageTask:
    """A kind of text wanted beside actions.

    Attributes:
        name: Unique among a policy's tasks, e.g. `narration`.
        prompt: The suffix that follows the prefix and asks for the text.
        arrivals: When a text is asked for; at every query, unless said otherwise.
        max_tokens: The text ends here at the latest.
        priority: Frames of head start when not all requests fit in one batch: a request goes before those of
            lesser priority that are older by no more than the difference.
        sampling: How its tokens are chosen; the best one each time, unless said otherwise.
        stop: A text ends before this one, a single token of the vocabulary; unless said otherwise, with the
            vocabulary's end token.
    """

    name: str
    prompt: str
    arrivals: Arrivals = EVERY_QUERY
    max_tokens: int
    priority: int = 0
    sampling: Sampling = GREEDY
    stop: str | None = None

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise UsageError(f"language task {self.name!r}: max_tokens is {self.max_tokens}, at least 1")
        if (self.arrivals.longest or 0) > self.max_tokens:
            raise UsageError(
                f"language task {self.name!r}: its arrivals ask for up to {self.arrivals.longest} tokens, "
                f"its max_tokens is {self.max_tokens}; make that as large"
            )
        if not self.prompt:
            raise UsageError(f"language task {self.name!r} has an empty prompt; say what to write")


def check_draws(tasks: Sequence[LanguageTask], vocab_size: int) -> None:
    """Refuse to draw among more tokens than there are.

    Raises:
        UsageError: Names the task and both numbers.
    """
    for task in tasks:
        top_k = task.sampling.top_k or 0
        if not task.sampling.greedy and top_k > vocab_size:
            raise UsageError(
                f"language task {task.name!r}: top_k is {top_k}, the model has {vocab_size} tokens; "
                "give no more, or leave it out to draw among all"
            )


def stop_token(task: LanguageTask, tokenizer: Tokenizer) -> int:
    """The token that ends the task's texts; below 0, where the vocabulary has no end token, none does.

    Raises:
        UsageError: The task's `stop` is not one token.
    """
    if task.stop is None:
        return tokenizer.eos
    tokens = tokenizer.encode(task.stop)
    if len(tokens) != 1:
        parts = ", ".join(repr(tokenizer.decode([token])) for token in tokens) or "none"
        raise UsageError(
            f"language task {task.name!r}: stop {task.stop!r} is {len(tokens)} tokens ({parts}); give a "
            "single one, or leave it out for the vocabulary's end token"
        )
    return tokens[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextBorn:
    """A request and the query it belongs to."""

    task: str
    request_id: int
    query: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTimes:
    """Moments of a text, in seconds of `time.perf_counter`. What is read back together is known at once.

    Attributes:
        born_s: When the query it was born in came in.
        first_token_s: When its first token was known.
        ended_s: When its end was known.
    """

    born_s: float
    first_token_s: float
    ended_s: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFinished:
    """A finished text.

    Attributes:
        task: Name of its language task.
        request_id: Counts the requests of an episode.
        born_query: The query whose observation it speaks of.
        finished_query: The robot's query in which its last token was decoded.
        text: What was written.
        tokens: Decoded for it, a stop token included.
        reason: `stop` (the model ended it), `length` (the task's limit did), or `oracle` (no model wrote it:
            it was read aloud from the world's own account).
        latency_ms: Time the policy worked from its birth to its end; the world's own time is not counted.
        times: When it was born, begun and ended; None where nobody took the time.
    """

    task: str
    request_id: int
    born_query: int
    finished_query: int
    text: str
    tokens: int
    reason: str
    latency_ms: float
    times: TextTimes | None = None
