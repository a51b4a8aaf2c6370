"""Language tasks: the texts wanted beside actions, as they are configured and as the engine takes them."""

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
        arrivals: When a text is requested; in every query by default.
        max_tokens: The text ends here at the latest.
        priority: Engine steps of head start when not all requests fit in one batch: a request goes before
            those of lower priority that are older by no more than the difference.
        sampling: How its tokens are chosen; greedy by default.
        stop: The text ends before this one, a single token of the vocabulary; by default the vocabulary's
            end token.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizedTask:
    """A language task as the scheduler takes it: its texts are tokens.

    Attributes:
        suffix: Tokens that follow the prefix and ask for the text; at least one.
        stop_token: A text ends with it; below 0, only the limit ends one.
        max_tokens: The limit of requests that arrive without one.
        arrivals: When requests arrive, and with which limits.
        priority: Engine steps of head start in the line for rows.
        sampling: How tokens are chosen.
    """

    suffix: tuple[int, ...]
    stop_token: int
    max_tokens: int
    arrivals: Arrivals = EVERY_QUERY
    priority: int = 0
    sampling: Sampling = GREEDY


def tokenized(task: LanguageTask, tokenizer: Tokenizer) -> TokenizedTask:
    """A language task in the vocabulary's tokens.

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
