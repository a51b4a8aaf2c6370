"""Language tasks: the kinds of text requested beside actions, as configured and as tokens."""

import dataclasses
from collections.abc import Sequence

from configs.errors import UsageError
from configs.feedback import Feedback
from oxygen.robots.tokenizer import Tokenizer
from oxygen.serving.arrivals import EVERY_QUERY, Arrivals
from oxygen.serving.requests import GREEDY, Sampling


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageTask:
    """A kind of text requested beside actions.

    Attributes:
        name: Unique among a policy's tasks, e.g. `narration`.
        prompt: The suffix that follows the prefix and asks for the text.
        arrivals: When a text is requested; in every query by default.
        max_tokens: Maximal length of a text.
        priority: Engine steps of head start when not all requests fit in one batch: a request precedes
            those of lower priority that are older by at most the difference.
        sampling: Sampling parameters; greedy by default.
        stop: A single token that ends the text; by default the vocabulary's end token.
        feedback: Fields of later prompts that hold its texts.
    """

    name: str
    prompt: str
    arrivals: Arrivals = EVERY_QUERY
    max_tokens: int
    priority: int = 0
    sampling: Sampling = GREEDY
    stop: str | None = None
    feedback: tuple[Feedback, ...] = ()

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise UsageError(f"language task {self.name!r}: max_tokens is {self.max_tokens}, at least 1")
        if (self.arrivals.longest or 0) > self.max_tokens:
            raise UsageError(
                f"language task {self.name!r}: its arrivals request up to {self.arrivals.longest} tokens, "
                f"its max_tokens is {self.max_tokens}; make that as large"
            )
        if not self.prompt:
            raise UsageError(f"language task {self.name!r} has an empty prompt; say what to write")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizedTask:
    """A language task for the scheduler, with prompt and stop as tokens.

    Attributes:
        suffix: Prompt tokens that follow the prefix; at least one.
        stop_token: Ends a text; if negative, only the limit does.
        max_tokens: Token limit of requests that arrive without one.
        arrivals: When requests arrive, and with which limits.
        priority: Engine steps of head start in the queue for rows.
        sampling: Sampling parameters.
    """

    suffix: tuple[int, ...]
    stop_token: int
    max_tokens: int
    arrivals: Arrivals = EVERY_QUERY
    priority: int = 0
    sampling: Sampling = GREEDY


def tokenized(task: LanguageTask, tokenizer: Tokenizer) -> TokenizedTask:
    """Tokenise a language task's prompt and stop.

    Raises:
        UsageError: Its prompt has no tokens, or its `stop` is not one token.
    """
    suffix = tuple(tokenizer.encode(task.prompt))
    if not suffix:
        raise UsageError(f"language task {task.name!r}: prompt {task.prompt!r} has no tokens")
    return TokenizedTask(
        suffix=suffix,
        stop_token=stop_token(task, tokenizer),
        max_tokens=task.max_tokens,
        arrivals=task.arrivals,
        priority=task.priority,
        sampling=task.sampling,
    )


def check_draws(tasks: Sequence[LanguageTask], vocab_size: int) -> None:
    """Refuse a `top_k` larger than the vocabulary.

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
    """The token that ends the task's texts; negative if there is none.

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
