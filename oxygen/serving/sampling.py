"""Sampling parameters of a request. Needs no JAX."""

import dataclasses
import math

from configs.errors import UsageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """Sampling parameters.

    Attributes:
        temperature: 0 is greedy; else tokens are sampled from the softmax of logits / temperature.
        top_k: Sample among this many of the most likely tokens; None samples among all.
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
        """Whether decoding is greedy."""
        return self.temperature == 0


GREEDY = Sampling()
