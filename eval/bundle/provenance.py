"""The trainings behind a checkpoint: its own, that of the checkpoint it started from, and so on."""

import filecmp
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.errors import UsageError, unknown
from eval.bundle.manifest import BundleManifest, DatasetFacts, read_bundle_manifest, read_dataset_facts
from oxygen.presets.checkpoints import read_record
from oxygen.weights import fetch
from oxygen.weights.card import RECORD
from oxygen.weights.loading import SINGLE_FILE

_BEFORE = "before"
"""Key in a bundled `training.json` of the previous training's record."""


def trainings_of(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The records of all trainings behind a checkpoint, oldest first."""
    return [*(trainings_of(record[_BEFORE]) if _BEFORE in record else []), record]


def unknowns(record: Mapping[str, Any], manifest: BundleManifest) -> list[str]:
    """What is unknown about a bundled checkpoint's trainings, one line each."""
    start, known = trainings_of(record)[0]["start_from"], {each.name for each in manifest.data}
    return [
        *([] if start is None else [f"how {start}, from which training began, was trained"]),
        *(f"what is in dataset {name}, which training names" for name in _named(record) if name not in known),
    ]


def provenance(checkpoint: Path, moved: Sequence[Path]) -> tuple[dict[str, Any], tuple[DatasetFacts, ...]]:
    """The record of a checkpoint's training, which contains those before it, and the datasets of all.

    Args:
        checkpoint: The folder of a checkpoint.
        moved: Datasets that have moved since training. If any are given, other missing ones are left out.

    Raises:
        UsageError: A dataset is missing, or one is given that no training used.
    """
    record, data = _provenance(checkpoint, {folder.name: folder for folder in moved})
    for folder in moved:
        if folder.name not in (named := _named(record)):
            raise unknown(
                "dataset of this checkpoint", folder.name, named, remedy="Only the folder's name counts."
            )
    return record, tuple(data.values())


def _provenance(
    checkpoint: Path, moved: Mapping[str, Path]
) -> tuple[dict[str, Any], dict[str, DatasetFacts]]:
    record, manifest = read_record(checkpoint), read_bundle_manifest(checkpoint)
    if manifest is not None:  # has the datasets of earlier trainings
        return record, {each.name: each for each in manifest.data}
    data = {}
    for folder in map(Path, record["data"]):
        place = moved.get(folder.name, folder)
        if place.exists() or folder.name in moved or not moved:
            data[folder.name] = read_dataset_facts(place)
    before = _before(record["start_from"], checkpoint)
    if before is not None:
        earlier, earlier_data = _provenance(before, moved)
        if earlier.get("wordings") == record["wordings"]:  # most of a record's size
            earlier = {name: value for name, value in earlier.items() if name != "wordings"}
        record, data = {**record, _BEFORE: earlier}, {**earlier_data, **data}
    return _without_folders(record), data


def _before(start: str | None, checkpoint: Path) -> Path | None:
    """The checkpoint that training started from, if training wrote it and it still exists."""
    try:
        folder = None if start is None else fetch(start)
    except UsageError:
        return None
    if folder is None or not ((folder / RECORD).is_file() and (folder / SINGLE_FILE).is_file()):
        return None
    replaced = filecmp.cmp(folder / SINGLE_FILE, checkpoint / SINGLE_FILE, shallow=False)
    return None if replaced else folder


def _without_folders(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with folder names instead of paths, which mean nothing on other machines."""
    return {
        **record,
        "data": [Path(folder).name for folder in record["data"]],
        **{key: _name(record[key]) for key in ("start_from", "norm_stats") if key in record},
    }


def _name(place: str | None) -> str | None:
    return place if place is None or "://" in place else Path(place).name


def _named(record: Mapping[str, Any]) -> list[str]:
    """The names of the trainings' datasets."""
    trainings = trainings_of(record)
    return list(dict.fromkeys(Path(folder).name for each in trainings for folder in each["data"]))
