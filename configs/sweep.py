"""Schema of a sweep: one run per cell of grids of options."""

import itertools
from collections.abc import Iterator
from typing import Annotated, Any, Self

from cyclopts import Group, Parameter
from pydantic import BeforeValidator, Field, model_validator

from configs.cli import Numbers, Several
from configs.motion import MotionText
from configs.schema import (
    OUTPUT,
    EpisodesConfig,
    Mode,
    OverlapRule,
    Preset,
    ReplanSteps,
    Source,
    VideoChoice,
    WhileWaiting,
)

_AXIS = Parameter(group=Group("What varies (several values make several cells)", sort_key=0))


_AS_GIVEN = (
    Parameter(consume_multiple=(1, None), negative_iterable=()),
    BeforeValidator(lambda value: value if isinstance(value, list | tuple | None) else (value,)),
)
"""Values that may have a comma, such as `fixed:50,90`."""


class GridConfig(Preset):
    """All combinations of values of some options. Each field is an axis; None keeps the default.

    Attributes:
        clock: How simulated time passes: paused, fixed:A,B (milliseconds), profile:NAME, measured.
        motion: none, shuttle:SPEED[,PERIOD] or drift:SPEED (cm/s, s). Default: none.
        feedback: Texts in the prompt of a policy that reads its own: own, none, truth, truth-delayed,
            frozen:TEXT. Default: own.
        mode: How actions and language are scheduled. Default: unified.
        text_every: Request a text of each language task at every N-th query. For no texts use mode actions.
            Default: each task's own rate.
        tokens_per_frame: In modes unified and interleaved, tokens decoded per query for each running text.
            Default: 5.
        replan_steps: Control steps between two queries, or asap. Default: the suite's.
        while_waiting: What the robot does until new actions are available. Default: continue.
        overlap: How a new chunk replaces the previous one. Default: skip.
    """

    clock: Annotated[tuple[str, ...] | None, _AXIS, *_AS_GIVEN] = None
    motion: Annotated[tuple[MotionText, ...] | None, _AXIS, *_AS_GIVEN] = None
    feedback: Annotated[tuple[Source, ...] | None, _AXIS, *_AS_GIVEN] = None
    mode: Annotated[Several[Mode] | None, _AXIS] = None
    text_every: Annotated[Numbers | None, _AXIS] = None
    tokens_per_frame: Annotated[Numbers | None, _AXIS] = None
    replan_steps: Annotated[Several[ReplanSteps] | None, _AXIS] = None
    while_waiting: Annotated[Several[WhileWaiting] | None, _AXIS] = None
    overlap: Annotated[Several[OverlapRule] | None, _AXIS] = None

    @model_validator(mode="after")
    def _has_values(self) -> Self:
        for axis in AXES:
            if getattr(self, axis) == ():
                raise ValueError(f"`{axis}` has no value; leave it out for the default")
        return self

    def combinations(self) -> Iterator[dict[str, Any]]:
        """The options of each cell that the grid sets."""
        varied = {axis: getattr(self, axis) for axis in AXES if getattr(self, axis) is not None}
        for values in itertools.product(*varied.values()):
            yield dict(zip(varied, values, strict=True))


AXES = tuple(GridConfig.model_fields)
"""The options that a sweep can vary, the slowest first."""

CONDITIONS = tuple(axis for axis in AXES if axis in ("clock", "motion", "feedback"))
"""The axes of the environment: device, motion, and the origin of texts in the prompt."""

SCHEDULE = tuple(axis for axis in AXES if axis not in (*CONDITIONS, "mode", "text_every"))
"""The axes of the schedule, which may be optimised: all but conditions, mode and text rate."""


class SweepConfig(EpisodesConfig):
    """The options of a sweep that are the same in every cell, and its grids.

    Attributes:
        video: Episodes to record.
        grids: Grids whose cells form the sweep. An axis given beside them applies to those that lack it.
    """

    video: Annotated[VideoChoice, OUTPUT] = "none"
    grids: Annotated[tuple[GridConfig, ...], Parameter(parse=False), Field(min_length=1)] = (GridConfig(),)

    @model_validator(mode="before")
    @classmethod
    def _has_axes_in_grids(cls, content: Any) -> Any:
        shared = {axis: content[axis] for axis in AXES if axis in content}
        if not shared:
            return content
        others = {name: value for name, value in content.items() if name not in shared}
        return {**others, "grids": [{**shared, **dict(grid)} for grid in content.get("grids", [{}])]}
