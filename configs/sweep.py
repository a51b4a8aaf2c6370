"""The schema of a sweep: an evaluation in every cell of some grids of its options."""

import itertools
from collections.abc import Iterator
from typing import Annotated, Any, Self, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from configs.motion import MotionText
from configs.schema import (
    EpisodesConfig,
    Mode,
    OverlapRule,
    Preset,
    ReplanSteps,
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
    """Every combination of some values of some options. Each field is an axis; None where nothing varies.

    Attributes:
        clock: How simulated time passes: on which device.
        motion: How what is to be grasped moves until it is touched.
        mode: How actions and language are scheduled.
        text_every: A text is asked for at every so many-th query.
        tokens_per_frame: In mode `unified`, tokens decoded per query for every text under way.
        replan_steps: Control steps between two queries.
        while_waiting: What the robot does until the actions of a query come.
        overlap: How a new chunk takes over from the one that went on.
    """

    clock: _Several[str] = None
    motion: _Several[MotionText] = None
    mode: _Several[Mode] = None
    text_every: _Several[int] = None
    tokens_per_frame: _Several[int] = None
    replan_steps: _Several[ReplanSteps] = None
    while_waiting: _Several[WhileWaiting] = None
    overlap: _Several[OverlapRule] = None

    @model_validator(mode="after")
    def _has_each_value_once(self) -> Self:
        refuse_doubles(self, *AXES)
        return self

    def combinations(self) -> Iterator[dict[str, Any]]:
        """The options of each cell, those that the grid says nothing of left out."""
        varied = {axis: getattr(self, axis) for axis in AXES if getattr(self, axis) is not None}
        for values in itertools.product(*varied.values()):
            yield dict(zip(varied, values, strict=True))


AXES = tuple(GridConfig.model_fields)
"""The options that a sweep can vary, the slowest first."""

CONDITIONS = tuple(axis for axis in AXES if axis in ("clock", "motion"))
"""Of these, what is given: the device, and how fast things move."""

SCHEDULE = tuple(axis for axis in AXES if axis not in (*CONDITIONS, "mode", "text_every"))
"""Of these, what may be chosen for the best: anything but the condition, the mode and how much is said."""


class SweepConfig(EpisodesConfig):
    """What a sweep is asked for. An option that no grid has is the same in every cell.

    Attributes:
        grids: Their cells together are the sweep's.
        chosen_on: The sweep whose results chose these cells; None if none did.
    """

    grids: tuple[GridConfig, ...] = Field(default=(GridConfig(),), min_length=1)
    chosen_on: str | None = None
