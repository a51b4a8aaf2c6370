"""How the tokens of a text are chosen, as a request asks for it. Needs no JAX."""

import dataclasses
import math

from configs.errors import UsageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is chosen from the scores of all of them.

    Attributes:
        temperature: 0 takes the best token; else one is drawn from the softmax of score / temperature.
        top_k: Draw among so many of the best tokens only; None draws among all.
    """

    temperature: float = 0.0
    top_k: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise UsageError(f"temperature is {self.temperature}; it must be 0 (the best token) or more")
        if self.top_k is not None and self.top_k < 1:
            raise UsageError(f"top_k is {self.top_k}; it must be at least 1, or left out to draw among all")

    @property
    def greedy(self) -> bool:
        """Whether no randomness is in it."""
        return self.temperature == 0


GREEDY = Sampling()
