"""Merges command-line options over a preset."""

from collections.abc import Mapping
from typing import Any

from configs.errors import UsageError
from configs.load import check, read_mapping
from configs.schema import Preset

_INSTEAD = {"num_trials_per_task": "init_ids", "init_ids": "num_trials_per_task"}
"""Alternative options that select initial states; one on the command line replaces both of a preset."""


def overlay(schema: type[Preset], preset: str | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for, by keys of the schema; it is not yet held against that, but the preset is.

    Args:
        schema: Of the preset.
        preset: Its name, or the path of a YAML file; None for none.
        flags: The options that were given. Of trials and initial states, what is a flag takes the place of
            the other.

    Raises:
        UsageError: There is no such preset, it does not fit the schema, or trials and initial states are
            given in the same place.
    """
    below = {} if preset is None else read_mapping(schema, preset)
    check(schema, below, source=preset or "")
    for given in (below, flags):
        _refuse_both(given)
    replaced = {_INSTEAD[key] for key in flags if key in _INSTEAD}
    return {**{key: value for key, value in below.items() if key not in replaced}, **flags}


def _refuse_both(given: Mapping[str, Any]) -> None:
    if given.keys() >= _INSTEAD.keys():
        trials, states = (given[key] for key in _INSTEAD)
        raise UsageError(
            f"`num_trials_per_task` is {trials} and `init_ids` is {states}: a trial is an initial state; "
            "give --num-trials-per-task for the first ones, or --init-ids for those of your choice"
        )
