"""Prompts as the published policies were trained on them, in text and tokens. As in openpi's tokenizer."""

import dataclasses
import warnings
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from configs.errors import UsageError
from oxygen.robots.tokenizer import Tokenizer
from oxygen.typing import Float64, Int32, Int64

STATE_BINS = 256


@runtime_checkable
class Prompt(Protocol):
    """How an instruction, and perhaps the state, become the tokens that follow the images."""

    template: ClassVar[str]
    """The prompt with its gaps named, for the record."""

    def encode(
        self, language: Any, state: Float64[np.ndarray, " channel"], tokenizer: Tokenizer
    ) -> list[int]:
        """All tokens of the prompt. The state is normalised."""

    def tail(self, state: Float64[np.ndarray, " channel"]) -> int:
        """How many of the last tokens stay where a prompt is too long; those before them are cut."""


@dataclasses.dataclass(frozen=True)
class InstructionPrompt:
    """The instruction and a line break of its own: `pi05_libero`, which is not told the state."""

    template: ClassVar[str] = "<bos>{language}\\n"

    def encode(
        self, language: Any, state: Float64[np.ndarray, " channel"], tokenizer: Tokenizer
    ) -> list[int]:
        """Begin, the instruction, and the line break, which is never merged into the word before it."""
        del state
        return [tokenizer.bos, *tokenizer.encode(clean_prompt(language)), *tokenizer.encode("\n")]

    def tail(self, state: Float64[np.ndarray, " channel"]) -> int:
        """None: cut as openpi cuts it."""
        del state
        return 0


@dataclasses.dataclass(frozen=True)
class StatePrompt:
    """The instruction and the state in words: every other π0.5."""

    template: ClassVar[str] = "<bos>Task: {language}, State: {state in 256 bins};\\nAction: "

    def text(self, language: Any, state: Float64[np.ndarray, " channel"]) -> str:
        """The prompt in words."""
        bins = " ".join(map(str, state_bins(state)))
        return f"Task: {clean_prompt(language)}, State: {bins};\nAction: "

    def encode(
        self, language: Any, state: Float64[np.ndarray, " channel"], tokenizer: Tokenizer
    ) -> list[int]:
        """Begin, and the text, tokenised in one piece."""
        return [tokenizer.bos, *tokenizer.encode(self.text(language, state))]

    def tail(self, state: Float64[np.ndarray, " channel"]) -> int:
        """None: cut as openpi cuts it, which loses the state first. Its 200 tokens are rarely too few."""
        del state
        return 0


@dataclasses.dataclass(frozen=True)
class CompactStatePrompt:
    """The instruction, a line break, and one token for each number of the state: for small models.

    The 256 bins are those of `StatePrompt`; here each is the token of a byte, of which every vocabulary with
    byte fallback has 256. Where that takes three digits and a space, this takes one token.
    """

    template: ClassVar[str] = "<bos>{language}\\n{state in 256 bins, a byte each}"

    def encode(
        self, language: Any, state: Float64[np.ndarray, " channel"], tokenizer: Tokenizer
    ) -> list[int]:
        """Begin, the instruction, its line break, the bytes; what lies outside counts as the last bin."""
        said = InstructionPrompt().encode(language, state, tokenizer)
        return [*said, *(tokenizer.byte(int(level)) for level in state_bins(state).clip(0))]

    def tail(self, state: Float64[np.ndarray, " channel"]) -> int:
        """The line break and the state: of few tokens, a long instruction would leave none for it."""
        return 1 + state.size


def clean_prompt(language: Any) -> str:
    """An instruction without the underscores and line breaks that task names bring along.

    Raises:
        UsageError: It is no text, or text that was decoded wrongly (lone surrogates).
    """
    if not isinstance(language, str):
        raise UsageError(f"the prompt is a {type(language).__name__}; give the instruction as text")
    if any("\ud800" <= letter <= "\udfff" for letter in language):
        raise UsageError(f"the prompt {language!r} holds half a character; decode it as UTF-8")
    return language.strip().replace("_", " ").replace("\n", " ")


def state_bins(state: Float64[np.ndarray, " channel"]) -> Int64[np.ndarray, " channel"]:
    """Which of 256 equal parts of [-1, 1] each number of a normalised state lies in.

    Above it is 255, and below it is -1, a number that openpi's training data has too.
    """
    edges = np.linspace(-1.0, 1.0, STATE_BINS + 1)[:-1]
    return np.digitize(state, edges) - 1


def fitted(
    prompt: Prompt,
    language: Any,
    state: Float64[np.ndarray, " channel"],
    tokenizer: Tokenizer,
    *,
    longest: int,
) -> Int32[np.ndarray, " token"]:
    """A prompt's tokens, `longest` at most; what is too long is cut, with a warning that says by how much."""
    return cut(prompt.encode(language, state, tokenizer), longest, language, tail=prompt.tail(state))


def cut(tokens: list[int], longest: int, language: str, *, tail: int = 0) -> Int32[np.ndarray, " token"]:
    """A prompt's first tokens and its `tail` last ones, `longest` in all; with a warning if it was cut."""
    if len(tokens) > longest:
        excess = len(tokens) - longest
        warnings.warn(f"prompt cut by {excess} of its {len(tokens)} tokens: {language!r}", stacklevel=3)
        end = len(tokens) - tail
        tokens = [*tokens[: max(0, end - excess)], *tokens[end:]]
    return np.asarray(tokens[:longest], np.int32)
