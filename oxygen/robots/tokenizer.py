"""Text to tokens and back: what the policy needs of a tokenizer, and SentencePiece behind it."""

import importlib.resources
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from configs.errors import UsageError
from oxygen.model.config import Pi05Config


@runtime_checkable
class Tokenizer(Protocol):
    """What the policy needs to know of a vocabulary."""

    @property
    def vocab_size(self) -> int:
        """Tokens there are; no more than the model's embedding has rows."""

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
    """A SentencePiece model. The library is imported when one is made, not before."""

    def __init__(self, serialized: bytes) -> None:
        try:
            import sentencepiece
        except ModuleNotFoundError as error:
            raise UsageError("the tokenizer needs sentencepiece; `pip install sentencepiece`") from error
        if not serialized:  # the library takes it for a model with no pieces
            raise UsageError("the SentencePiece model is empty")
        try:
            self._model: Any = sentencepiece.SentencePieceProcessor(model_proto=serialized)
        except RuntimeError:
            raise UsageError(f"{len(serialized)} bytes are no SentencePiece model") from None
        if min(self.bos, self.eos) < 0:
            raise UsageError("the SentencePiece model lacks a begin or an end token; the policy needs both")

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
        """The token of a byte, 0 to 255.

        Raises:
            UsageError: The vocabulary spells nothing by bytes.
        """
        token = int(self._model.piece_to_id(f"<0x{value:02X}>"))
        if not self._model.is_byte(token):
            raise UsageError("the SentencePiece model has no tokens for bytes, which this prompt is made of")
        return token

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, without begin or end."""
        return [int(token) for token in self._model.encode(text)]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens; those that the model does not have are left out."""
        return str(self._model.decode([int(token) for token in tokens if token < self.vocab_size]))


def check_fits(tokenizer: Tokenizer, config: Pi05Config) -> None:
    """Refuse a vocabulary with tokens beyond a model's embeddings, which would be read as the last one.

    Raises:
        UsageError: Names both numbers.
    """
    if tokenizer.vocab_size > config.vocab_size:
        raise UsageError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, {config.name} {config.vocab_size} embeddings; "
            "give the one the model was made for"
        )


PALIGEMMA = "gs://big_vision/paligemma_tokenizer.model"
"""Where PaliGemma's vocabulary is published, which every π0.5 reads: 257 152 pieces."""


def load(source: str | Path) -> SentencePieceTokenizer:
    """The tokenizer in a SentencePiece model.

    Args:
        source: Path of a `.model` file, or its URL, which the cache of checkpoints keeps.

    Raises:
        UsageError: It is not there, not to be had, or no such model.
    """
    from oxygen.weights import fetch

    path = fetch(source)
    try:
        return SentencePieceTokenizer(path.read_bytes())
    except OSError as error:
        raise UsageError(
            f"no SentencePiece model at {path} ({error.strerror}); give the path of a `.model` file"
        ) from None
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from None


def tiny() -> SentencePieceTokenizer:
    """The small vocabulary that ships with the package; `python -m oxygen.tools.train_tokenizer` makes it."""
    return SentencePieceTokenizer((importlib.resources.files("oxygen") / "assets/tiny.model").read_bytes())
