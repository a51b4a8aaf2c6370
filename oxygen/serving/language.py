"""Language tasks: the kinds of text requested beside actions."""

import dataclasses

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
        max_tokens: Maximal length of a text; at least that of its arrivals.
        priority: Engine steps of head start when not all requests fit in one batch: a request precedes
            those of lower priority that are older by at most the difference.
        sampling: Sampling parameters; greedy by default.
        stop: A single token that ends the text; by default the vocabulary's end token.
        feedback: Fields of later prompts that hold its texts.
        suffix: The prompt's tokens; at least one, set by `tokenized`.
        stop_token: Ends a text; if negative, only the limit does. Likewise.
    """

    name: str
    prompt: str
    arrivals: Arrivals = EVERY_QUERY
    max_tokens: int
    priority: int = 0
    sampling: Sampling = GREEDY
    stop: str | None = None
    feedback: tuple[Feedback, ...] = ()
    suffix: tuple[int, ...] = ()
    stop_token: int = -1

    def __post_init__(self) -> None:
        if self.max_tokens < max(1, self.arrivals.longest or 0):
            raise UsageError(
                f"language task {self.name!r}: max_tokens is {self.max_tokens}; give at least "
                f"{max(1, self.arrivals.longest or 0)}, the tokens that a text may have"
            )


def tokenized(task: LanguageTask, tokenizer: Tokenizer) -> LanguageTask:
    """The language task with its prompt and stop in tokens.

    Raises:
        UsageError: Its prompt has no tokens, or its `stop` is not one token.
    """
    suffix = tuple(tokenizer.encode(task.prompt))
    if not suffix:
        raise UsageError(f"language task {task.name!r}: prompt {task.prompt!r} has no tokens")
    return dataclasses.replace(task, suffix=suffix, stop_token=stop_token(task, tokenizer))


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
