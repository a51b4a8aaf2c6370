"""A vocabulary without an end token, so that every text has as many tokens as were asked for."""

from collections.abc import Sequence

PROMPT_ENDS = 2
"""Tokens of a prompt beside its instruction: the first and the line break."""


class Unending:
    """One token a byte. No token ends a text, and nobody reads what was written."""

    vocab_size = 256
    bos = 1
    eos = -1

    def byte(self, value: int) -> int:
        """The token of a byte: its number."""
        return value

    def encode(self, text: str) -> list[int]:
        """The text's bytes."""
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        """Nothing: a benchmark's texts say nothing."""
        del tokens
        return ""


def instruction(tokens: int) -> str:
    """An instruction whose prompt has so many tokens."""
    return "x" * (tokens - PROMPT_ENDS)
