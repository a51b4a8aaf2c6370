"""Schema of language tasks: the texts generated beside actions, and when they are requested."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from configs.schema import Count, Fields, Name, Preset, Seed, Tokens, Whole


class EveryNConfig(Preset):
    """One text at every n-th query."""

    kind: Literal["every_n"] = "every_n"
    n: Count


class BurstConfig(Preset):
    """`n` texts at every `every`-th query."""

    kind: Literal["burst"]
    n: Annotated[int, Field(gt=0, le=2**16)]
    every: Count


class PoissonConfig(Preset):
    """A Poisson number of texts per query, with mean `rate`."""

    kind: Literal["poisson"]
    rate: float = Field(gt=0, le=1000)
    seed: Seed = 0


class RandomLengthConfig(Preset):
    """Texts arrive as in `arrivals`, each with a random limit of `min_tokens` to `max_tokens` tokens."""

    kind: Literal["random_length"]
    arrivals: EveryNConfig | BurstConfig | PoissonConfig = Field(discriminator="kind")
    min_tokens: Tokens
    max_tokens: Tokens
    seed: Seed = 0

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.max_tokens < self.min_tokens:
            raise ValueError(f"max_tokens is {self.max_tokens}; give at least min_tokens, {self.min_tokens}")
        return self


ArrivalsConfig = EveryNConfig | BurstConfig | PoissonConfig | RandomLengthConfig


class SamplingConfig(Preset):
    """Sampling of tokens: greedy at temperature 0, else from the `top_k` best, or from all."""

    temperature: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    top_k: int | None = Field(default=None, gt=0)


class LanguageTaskConfig(Preset):
    """A kind of text generated beside actions."""

    name: Name
    # The suffix after the shared prefix that prompts the text.
    prompt: str = Field(min_length=1, max_length=10_000)
    arrivals: ArrivalsConfig = Field(default=EveryNConfig(n=1), discriminator="kind")
    max_tokens: Tokens  # maximum length of a text, tokens
    # Queries of head start when not all fit in one batch: a text goes before those of lesser priority that
    # are older by no more than the difference.
    priority: Whole = Field(default=0, ge=-1_000_000, le=1_000_000)
    sampling: SamplingConfig = SamplingConfig()  # how its tokens are chosen
    # A text ends before this one, a single token of the vocabulary; with its end token if None.
    stop: str | None = Field(default=None, min_length=1)
    feedback: Fields = ()  # fields of later prompts that hold its texts: one, or a list; none by default

    @model_validator(mode="after")
    def _has_room_for_its_arrivals(self) -> Self:
        longest = self.arrivals.max_tokens if isinstance(self.arrivals, RandomLengthConfig) else 0
        if longest > self.max_tokens:
            raise ValueError(
                f"its arrivals request up to {longest} tokens, its max_tokens is {self.max_tokens}; make "
                "that as large"
            )
        return self
