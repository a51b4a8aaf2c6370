"""The trainings behind a checkpoint, as its record tells them: what each was shown, and what is not known."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.errors import unknown
from eval.bundle.data import Demonstrated

BEFORE = "before"
"""Key of a bundled `training.json` under which the record of the training is that it began from."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unlisted:
    """A dataset that a training names and of which nothing else is known.

    Attributes:
        name: The name of its folder.
        stages: Which trainings had it, from 1 on.
        frames: Rows in it, where it was all that one of these had; None where that cannot be told.
    """

    name: str
    stages: tuple[int, ...]
    frames: int | None


def trainings_of(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The records of all trainings behind a checkpoint, the first one first."""
    return [*(trainings_of(record[BEFORE]) if BEFORE in record else []), record]


def stages_of(name: str, record: Mapping[str, Any]) -> tuple[int, ...]:
    """Which trainings had the dataset of that name, from 1 on."""
    trainings = enumerate(trainings_of(record), start=1)
    return tuple(stage for stage, training in trainings if name in _datasets(training))


def unlisted(record: Mapping[str, Any], data: Iterable[Demonstrated]) -> list[Unlisted]:
    """The datasets that trainings name and that are not among those whose facts are kept."""
    trainings = trainings_of(record)
    named = dict.fromkeys(name for training in trainings for name in _datasets(training))
    missing = [name for name in named if name not in {each.name for each in data}]
    alone = {_datasets(training)[0]: training["frames"] for training in trainings if _has_one(training)}
    return [Unlisted(name=name, stages=stages_of(name, record), frames=alone.get(name)) for name in missing]


def refuse_strangers(record: Mapping[str, Any], data: Iterable[Demonstrated]) -> None:
    """Refuse datasets that no training names: their facts would be told as if it had been shown them.

    Raises:
        UsageError: Says which names there are.
    """
    for each in data:
        if not stages_of(each.name, record):
            named = dict.fromkeys(name for training in trainings_of(record) for name in _datasets(training))
            raise unknown("dataset of this checkpoint", each.name, named, remedy="Folders go by their names.")


def unknown_start(record: Mapping[str, Any]) -> str | None:
    """What the first training on record began from, if it did not begin from nothing."""
    start: str | None = trainings_of(record)[0]["start_from"]
    return start


def gaps(record: Mapping[str, Any], data: Sequence[Demonstrated]) -> list[str]:
    """What is not known of a checkpoint's trainings, in a line each."""
    start = unknown_start(record)
    return [
        *([] if start is None else [f"how {start}, from which training began, was trained"]),
        *(f"what is in dataset {each.name}, which training names" for each in unlisted(record, data)),
    ]


def _datasets(training: Mapping[str, Any]) -> list[str]:
    return [Path(folder).name for folder in training["data"]]


def _has_one(training: Mapping[str, Any]) -> bool:
    return len(training["data"]) == 1
