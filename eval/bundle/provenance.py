"""The trainings behind a checkpoint: its own, that of the checkpoint it began from, and so on."""

import filecmp
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.errors import UsageError, unknown
from eval.bundle.manifest import Contents, Demonstrated, read_contents, read_demonstrated
from eval.policies.checkpoints import read_record
from oxygen.weights import fetch
from oxygen.weights.card import RECORD
from oxygen.weights.loading import SINGLE_FILE

_BEFORE = "before"
"""Key of a bundled `training.json` that holds the record of the training before."""


def trainings_of(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The records of all trainings behind a checkpoint, the first one first."""
    return [*(trainings_of(record[_BEFORE]) if _BEFORE in record else []), record]


def unknowns(record: Mapping[str, Any], contents: Contents) -> list[str]:
    """What is not known of a bundled checkpoint's trainings, in a line each."""
    start, known = trainings_of(record)[0]["start_from"], {each.name for each in contents.data}
    return [
        *([] if start is None else [f"how {start}, from which training began, was trained"]),
        *(f"what is in dataset {name}, which training names" for name in _named(record) if name not in known),
    ]


def provenance(checkpoint: Path, moved: Sequence[Path]) -> tuple[dict[str, Any], tuple[Demonstrated, ...]]:
    """The record of a checkpoint's training with those before it, and every dataset of all of them.

    Args:
        checkpoint: A folder that training wrote.
        moved: Datasets that are not where they were in training. If any are given, others that are missing
            are left out.

    Raises:
        UsageError: A dataset is missing, or one is given that no training names.
    """
    record, data = _provenance(checkpoint, {folder.name: folder for folder in moved})
    for folder in moved:
        if folder.name not in (named := _named(record)):
            raise unknown(
                "dataset of this checkpoint", folder.name, named, remedy="Folders go by their names."
            )
    return record, tuple(data.values())


def _provenance(
    checkpoint: Path, moved: Mapping[str, Path]
) -> tuple[dict[str, Any], dict[str, Demonstrated]]:
    record, contents = read_record(checkpoint), read_contents(checkpoint)
    if contents is not None:  # it tells of those before it
        return record, {each.name: each for each in contents.data}
    data = {}
    for folder in map(Path, record["data"]):
        place = moved.get(folder.name, folder)
        if place.exists() or folder.name in moved or not moved:
            data[folder.name] = read_demonstrated(place)
    before = _before(record["start_from"], checkpoint)
    if before is not None:
        earlier, shown = _provenance(before, moved)
        if earlier.get("wordings") == record["wordings"]:  # which are most of a record
            earlier = {name: value for name, value in earlier.items() if name != "wordings"}
        record, data = {**record, _BEFORE: earlier}, {**shown, **data}
    return _without_places(record), data


def _before(start: str | None, checkpoint: Path) -> Path | None:
    """The folder of the checkpoint that training began from, if it is one of ours and still to be had."""
    try:
        folder = None if start is None else fetch(start)
    except UsageError:
        return None
    if folder is None or not ((folder / RECORD).is_file() and (folder / SINGLE_FILE).is_file()):
        return None
    replaced = filecmp.cmp(folder / SINGLE_FILE, checkpoint / SINGLE_FILE, shallow=False)
    return None if replaced else folder


def _without_places(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with folders by their names: where they lay on one machine means nothing on another."""
    return {
        **record,
        "data": [Path(folder).name for folder in record["data"]],
        **{key: _name(record[key]) for key in ("start_from", "norm_stats") if key in record},
    }


def _name(place: str | None) -> str | None:
    return place if place is None or "://" in place else Path(place).name


def _named(record: Mapping[str, Any]) -> list[str]:
    """The datasets that trainings name."""
    trainings = trainings_of(record)
    return list(dict.fromkeys(Path(folder).name for each in trainings for folder in each["data"]))
