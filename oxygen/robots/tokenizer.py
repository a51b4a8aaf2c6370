"""Tokenizers, and the prompt formats of the published policies, as in openpi's tokenizer."""

import dataclasses
import importlib.resources
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from configs.paths import regular
from contracts.errors import UsageError
from oxygen.model.config import Pi05Config
from oxygen.typing import Float64, Int32, Int64

STATE_BINS = 256


@runtime_checkable
class Tokenizer(Protocol):
    """A tokenizer."""

    @property
    def vocab_size(self) -> int:
        """Number of tokens; at most the rows of the model's embedding."""

    @property
    def bos(self) -> int:
        """The token every prompt begins with."""

    @property
    def eos(self) -> int:
        """The token that ends a text."""

    def byte(self, value: int) -> int:
        """The token of a byte, 0 to 255."""

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, without begin or end."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens."""


class SentencePieceTokenizer:
    """A SentencePiece model. The library is imported on first use."""

    def __init__(self, serialized: bytes) -> None:
        import sentencepiece

        if not serialized:  # the library takes it for a model with no pieces
            raise UsageError("the SentencePiece model is empty")
        try:
            self._model: Any = sentencepiece.SentencePieceProcessor(model_proto=serialized)
        except RuntimeError:
            raise UsageError(f"{len(serialized)} bytes are not a SentencePiece model") from None
        if min(self.bos, self.eos) < 0:
            raise UsageError("the SentencePiece model needs a BOS and an EOS token")

    @property
    def vocab_size(self) -> int:
        """Pieces in the model."""
        return int(self._model.vocab_size())

    @property
    def bos(self) -> int:
        """The token every prompt begins with."""
        return int(self._model.bos_id())

    @property
    def eos(self) -> int:
        """The token that ends a text."""
        return int(self._model.eos_id())

    @property
    def serialized(self) -> bytes:
        """The model's file."""
        return bytes(self._model.serialized_model_proto())

    def byte(self, value: int) -> int:
        """The token of a byte, 0 to 255; refuses a vocabulary without byte fallback."""
        token = int(self._model.piece_to_id(f"<0x{value:02X}>"))
        if not self._model.is_byte(token):
            raise UsageError("the SentencePiece model has no byte tokens, which this prompt format needs")
        return token

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, without begin or end."""
        return [int(token) for token in self._model.encode(text)]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens; unknown ones are skipped."""
        return str(self._model.decode([int(token) for token in tokens if token < self.vocab_size]))


def check_fits(tokenizer: Tokenizer, config: Pi05Config) -> None:
    """Refuse a vocabulary larger than the model's embedding, whose excess tokens would be clipped."""
    if tokenizer.vocab_size > config.vocab_size:
        raise UsageError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, {config.name} {config.vocab_size} embeddings; "
            "give the one the model was made for"
        )


def load(source: str | Path) -> SentencePieceTokenizer:
    """Load a SentencePiece model from a path or URL, cached; refuses any other file."""
    from oxygen.weights.source import fetch

    path = fetch(source)
    try:
        return SentencePieceTokenizer(regular(path).read_bytes())
    except OSError as error:
        raise UsageError(
            f"no SentencePiece model at {path} ({error.strerror}); give the path of a `.model` file"
        ) from None
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from None


def tiny() -> SentencePieceTokenizer:
    """The bundled small vocabulary."""
    return SentencePieceTokenizer((importlib.resources.files("oxygen") / "assets/tiny.model").read_bytes())


@dataclasses.dataclass(frozen=True)
class InstructionPrompt:
    """The instruction and a separate line break, without the state: `pi05_libero`. Others add the state."""

    template: ClassVar[str] = "<bos>{language}\\n"
    """The prompt with named placeholders, for records."""

    def encode(
        self, language: Any, state: Float64[np.ndarray, " channel"], tokenizer: Tokenizer
    ) -> list[int]:
        """All tokens that follow the images; `state` is normalised.

        Here BOS, the instruction, and the line break, which is never merged into the preceding word.
        """
        del state
        return [tokenizer.bos, *tokenizer.encode(clean_prompt(language)), *tokenizer.encode("\n")]

    def tail(self, state: Float64[np.ndarray, " channel"]) -> int:
        """Last tokens that are kept when a prompt is truncated: none, as in openpi."""
        del state
        return 0


@dataclasses.dataclass(frozen=True)
class StatePrompt(InstructionPrompt):
    """The instruction and the state as text: all other π0.5 policies."""

    template: ClassVar[str] = "<bos>Task: {language}, State: {state in 256 bins};\\nAction: "

    def text(self, language: Any, state: Float64[np.ndarray, " channel"]) -> str:
        """The prompt as text."""
        bins = " ".join(map(str, state_bins(state)))
        return f"Task: {clean_prompt(language)}, State: {bins};\nAction: "

    def encode(
        self, language: Any, state: Float64[np.ndarray, " channel"], tokenizer: Tokenizer
    ) -> list[int]:
        """BOS and the text."""
        return [tokenizer.bos, *tokenizer.encode(self.text(language, state))]


@dataclasses.dataclass(frozen=True)
class CompactStatePrompt(InstructionPrompt):
    """The instruction, a line break, and one token per state channel, for small models.

    Each of `StatePrompt`'s 256 bins is encoded as one of the vocabulary's byte-fallback tokens, instead of
    several digits and a space.
    """

    template: ClassVar[str] = "<bos>{language}\\n{state in 256 bins, a byte each}"

    def encode(
        self, language: Any, state: Float64[np.ndarray, " channel"], tokenizer: Tokenizer
    ) -> list[int]:
        """BOS, the instruction, the line break, and the state's bins, clipped."""
        instruction = super().encode(language, state, tokenizer)
        return [*instruction, *(tokenizer.byte(int(level)) for level in state_bins(state).clip(0))]

    def tail(self, state: Float64[np.ndarray, " channel"]) -> int:
        """The line break and the state, so that a long instruction does not displace them."""
        return 1 + state.size


def clean_prompt(language: Any) -> str:
    """Replace the underscores and line breaks of an instruction by spaces; refuses lone surrogates."""
    if not isinstance(language, str):
        raise UsageError(f"the prompt is a {type(language).__name__}; give the instruction as text")
    if any("\ud800" <= letter <= "\udfff" for letter in language):
        raise UsageError(f"the prompt {language!r} holds half a character; decode it as UTF-8")
    return language.strip().replace("_", " ").replace("\n", " ")


def state_bins(state: Float64[np.ndarray, " channel"]) -> Int64[np.ndarray, " channel"]:
    """The index of each channel of a normalised state among 256 equal bins of [-1, 1].

    Values above are 255, values below are -1, as in openpi's training data.
    """
    edges = np.linspace(-1.0, 1.0, STATE_BINS + 1)[:-1]
    return np.digitize(state, edges) - 1


def fitted(
    prompt: InstructionPrompt,
    language: Any,
    state: Float64[np.ndarray, " channel"],
    tokenizer: Tokenizer,
    *,
    longest: int,
) -> Int32[np.ndarray, " token"]:
    """Encode a prompt with at most `longest` tokens, its tail included; warns if it is truncated."""
    tokens, tail = prompt.encode(language, state, tokenizer), prompt.tail(state)
    if len(tokens) > longest:
        excess = len(tokens) - longest
        warnings.warn(f"prompt cut by {excess} of its {len(tokens)} tokens: {language!r}", stacklevel=2)
        end = len(tokens) - tail
        tokens = [*tokens[: max(0, end - excess)], *tokens[end:]]
    return np.asarray(tokens[:longest], np.int32)
