"""Schema of a sweep: one run per cell of grids of options."""

import itertools
from collections.abc import Iterator
from typing import Annotated, Any, Self, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from configs.motion import MotionText
from configs.schema import (
    Count,
    EpisodesConfig,
    Mode,
    OverlapRule,
    Preset,
    ReplanSteps,
    Tokens,
    WhileWaiting,
    refuse_doubles,
)

ValueT = TypeVar("ValueT")


def _one_or_several(value: object) -> object:
    return value if isinstance(value, list | tuple) or value is None else (value,)


_Several = Annotated[
    Annotated[tuple[ValueT, ...], Field(min_length=1)] | None, BeforeValidator(_one_or_several)
]


class GridConfig(Preset):
    """All combinations of values of some options. Each field is an axis; None keeps the default.

    Attributes:
        clock: How simulated time passes (the device).
        motion: Motion of the object to grasp.
        mode: How actions and language are scheduled.
        text_every: Queries between text requests.
        tokens_per_frame: In mode `unified`, tokens decoded per query for each running text.
        replan_steps: Control steps between two queries.
        while_waiting: What the robot does until new actions are available.
        overlap: How a new chunk replaces the previous one.
    """

    clock: _Several[str] = None
    motion: _Several[MotionText] = None
    mode: _Several[Mode] = None
    text_every: _Several[Count] = None
    tokens_per_frame: _Several[Tokens] = None
    replan_steps: _Several[ReplanSteps] = None
    while_waiting: _Several[WhileWaiting] = None
    overlap: _Several[OverlapRule] = None

    @model_validator(mode="after")
    def _has_each_value_once(self) -> Self:
        refuse_doubles(self, *AXES)
        return self

    def combinations(self) -> Iterator[dict[str, Any]]:
        """The options of each cell that the grid sets."""
        varied = {axis: getattr(self, axis) for axis in AXES if getattr(self, axis) is not None}
        for values in itertools.product(*varied.values()):
            yield dict(zip(varied, values, strict=True))


AXES = tuple(GridConfig.model_fields)
"""The options that a sweep can vary, the slowest first."""

CONDITIONS = tuple(axis for axis in AXES if axis in ("clock", "motion"))
"""The axes of the environment: device and motion."""

SCHEDULE = tuple(axis for axis in AXES if axis not in (*CONDITIONS, "mode", "text_every"))
"""The axes of the schedule, which may be optimised: all but conditions, mode and text rate."""


class SweepConfig(EpisodesConfig):
    """Configuration of a sweep. Options outside the grids are the same in every cell.

    Attributes:
        grids: Grids whose cells form the sweep.
        chosen_on: The sweep whose results selected these cells; None if there was none.
    """

    grids: tuple[GridConfig, ...] = Field(default=(GridConfig(),), min_length=1)
    chosen_on: str | None = None
