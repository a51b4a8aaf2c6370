"""Success rates that others published, in tables as papers print them."""

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field, model_validator

from configs.profile import Line
from configs.schema import Name, Preset

Percent = Annotated[float, Field(ge=0, le=100)]


class PublishedScore(Preset):
    """What one publication says of a policy.

    Attributes:
        policy: The policy, with what tells its weights apart.
        rates: Success rate of each column, percent; null if it was not published.
        mean: The published mean, where it is not that of the rates.
        runner: What played the episodes; the name of a protocol if it has one.
        trials: Number of episodes, in words; empty if unknown.
        doubts: What makes the number less comparable; empty if nothing is known.
        source: Where it was read.
    """

    policy: Line
    rates: tuple[Percent | None, ...] = Field(min_length=1)
    mean: Percent | None = None
    runner: Line
    trials: str = ""
    doubts: str = ""
    source: Line

    @property
    def average(self) -> float | None:
        """The mean of the rates, unless another was published, or one of them is unknown."""
        known = [rate for rate in self.rates if rate is not None]
        return sum(known) / len(known) if self.mean is None and len(known) == len(self.rates) else self.mean


class PublishedConfig(Preset):
    """A table of published scores.

    Attributes:
        title: Its title.
        suites: Suite to the heading of its column; runs of all of these have a table with their average.
        columns: Headings of `rates` where these are of something else, such as categories.
        scores: The rows.
    """

    title: Line
    suites: dict[Name, Line] = Field(min_length=1)
    columns: tuple[Line, ...] = ()
    scores: tuple[PublishedScore, ...]

    @property
    def headings(self) -> Sequence[str]:
        """The headings of `rates`."""
        return self.columns or tuple(self.suites.values())

    @model_validator(mode="after")
    def _is_rectangular(self) -> Self:
        for score in self.scores:
            if len(score.rates) != len(self.headings):
                raise ValueError(
                    f"{score.policy} has {len(score.rates)} `rates`, and there are {len(self.headings)} "
                    f"columns: {', '.join(self.headings)}"
                )
        return self
