"""The tokenizer interface, and SentencePiece."""

import importlib.resources
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from configs.errors import UsageError
from configs.paths import regular
from oxygen.model.config import Pi05Config


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
        """The token of a byte, 0 to 255.

        Raises:
            UsageError: The vocabulary has no byte fallback.
        """
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
    """Refuse a vocabulary larger than the model's embedding, whose excess tokens would be clipped.

    Raises:
        UsageError: Names both numbers.
    """
    if tokenizer.vocab_size > config.vocab_size:
        raise UsageError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, {config.name} {config.vocab_size} embeddings; "
            "give the one the model was made for"
        )


def load(source: str | Path) -> SentencePieceTokenizer:
    """Load a SentencePiece model.

    Args:
        source: Path or URL of a `.model` file; downloads are cached with the checkpoints.

    Raises:
        UsageError: It is missing, cannot be downloaded, or is not a SentencePiece model.
    """
    from oxygen.weights import fetch

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
    """The bundled small vocabulary, made by `python -m oxygen.tools.train_tokenizer`."""
    return SentencePieceTokenizer((importlib.resources.files("oxygen") / "assets/tiny.model").read_bytes())
