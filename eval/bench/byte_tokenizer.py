"""A tokenizer without an end token: every text has exactly the requested number of tokens."""

from collections.abc import Sequence

SPECIAL_TOKENS = 2
"""Tokens of a prompt without its instruction: the start token and the line break."""


class ByteTokenizer:
    """One token per byte, and no end token. Texts are not used, so `decode` returns an empty string."""

    vocab_size = 256
    bos = 1
    eos = -1

    def byte(self, value: int) -> int:
        """The token of a byte: its value."""
        return value

    def encode(self, text: str) -> list[int]:
        """The bytes of `text`."""
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        """The empty string."""
        del tokens
        return ""


def instruction(prompt_tokens: int) -> str:
    """An instruction whose prompt has `prompt_tokens` tokens."""
    return "x" * (prompt_tokens - SPECIAL_TOKENS)
