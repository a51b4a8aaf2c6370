"""The trainings behind a checkpoint, as its record tells them: which came first, and what is not known."""

from collections.abc import Mapping
from typing import Any

BEFORE = "before"
"""Key of a bundled `training.json` under which the record of the training is that it began from."""


def trainings_of(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The records of all trainings behind a checkpoint, the first one first."""
    return [*(trainings_of(record[BEFORE]) if BEFORE in record else []), record]


def unknown_start(record: Mapping[str, Any]) -> str | None:
    """What the first training on record began from, if it did not begin from nothing."""
    start: str | None = trainings_of(record)[0]["start_from"]
    return start


def gaps(record: Mapping[str, Any]) -> list[str]:
    """What is not known of a checkpoint's trainings, in a line each."""
    start = unknown_start(record)
    return [] if start is None else [f"how {start}, from which training began, was trained"]
