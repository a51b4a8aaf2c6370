"""Provenance of a checkpoint: all trainings and datasets behind it, and the bundle's manifest."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from configs.errors import UsageError
from configs.hashing import hash_file
from configs.reading import read_json_object
from configs.validation import invalid
from eval.records.json_files import write_json
from oxygen.presets.checkpoints import read_record
from oxygen.training import layout
from oxygen.weights import fetch
from oxygen.weights.card import RECORD
from oxygen.weights.loading import SINGLE_FILE

MANIFEST = "manifest.json"
_BEFORE = "before"
"""Key in a bundled `training.json` of the previous training's record."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetFacts:
    """A dataset of demonstrations, as its own manifest describes it.

    Attributes:
        name: Name of its folder.
        policy: The demonstrator.
        learner: The policy that it corrected; None if it played alone.
        demonstrations: Number of episodes in it.
        failures: Number of failed episodes; in the dataset, for their texts, only if failures were kept.
        keeps_failures: Whether failures were kept.
        frames: Number of rows.
        init_ids: Suite to initial states, of failed episodes too; those from 1000 on are sampled.
        commit: Commit of the code that collected it.
    """

    name: str
    policy: str
    learner: str | None
    demonstrations: int
    failures: int
    keeps_failures: bool
    frames: int
    init_ids: Mapping[str, tuple[int, ...]]
    commit: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class BundleManifest:
    """The `manifest.json` of a bundled checkpoint.

    Attributes:
        files: SHA-256 of each file, by its path in the folder.
        data: The datasets it was trained on.
    """

    files: Mapping[str, str]
    data: tuple[DatasetFacts, ...]


_MANIFEST = TypeAdapter(BundleManifest)


def write_manifest(folder: Path, paths: Iterable[str], data: Iterable[DatasetFacts]) -> None:
    """Write the manifest of a bundled checkpoint with these files."""
    manifest = BundleManifest(files={path: hash_file(folder / path) for path in paths}, data=tuple(data))
    write_json(folder / MANIFEST, dataclasses.asdict(manifest))


def read_bundle_manifest(folder: Path) -> BundleManifest:
    """The manifest of a bundled checkpoint.

    Raises:
        UsageError: It is damaged, or a file is not the one that was bundled.
    """
    file = folder / MANIFEST
    try:
        manifest = _MANIFEST.validate_python(read_json_object(file))
    except ValidationError as error:
        raise invalid(error, f"{file} is not a bundle's manifest") from None
    for path, sha256 in manifest.files.items():
        if not (folder / path).is_file() or hash_file(folder / path) != sha256:
            raise UsageError(f"{folder / path} is not the file that {MANIFEST} names; restore it")
    return manifest


def trainings_of(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The records of all trainings behind a checkpoint, oldest first."""
    return [*(trainings_of(record[_BEFORE]) if _BEFORE in record else []), record]


def unknowns(folder: Path) -> list[str]:
    """Unknown trainings and datasets behind a bundled checkpoint, one line each."""
    trainings = trainings_of(read_record(folder))
    known = {each.name for each in read_bundle_manifest(folder).data}
    start = trainings[0]["start_from"]
    return [
        *([] if start is None else [f"how {start}, from which training began, was trained"]),
        *(f"what is in dataset {name}" for each in trainings for name in each["data"] if name not in known),
    ]


def provenance(checkpoint: Path) -> tuple[dict[str, Any], list[DatasetFacts]]:
    """The record of a checkpoint's training, which contains those before it, and the datasets of all.

    Datasets and checkpoints that are no longer where training found them are left out.
    """
    record = read_record(checkpoint)
    if (checkpoint / MANIFEST).is_file():  # is bundled, and has those before it
        return record, [*read_bundle_manifest(checkpoint).data]
    data = [_dataset(folder) for folder in map(Path, record["data"]) if (folder / layout.MANIFEST).is_file()]
    before = _start(record["start_from"], checkpoint)
    if before is not None:
        earlier, earlier_data = provenance(before)
        if earlier.get("wordings") == record["wordings"]:  # most of a record's size
            del earlier["wordings"]
        record[_BEFORE] = earlier
        names = {each.name for each in data}
        data = [*(each for each in earlier_data if each.name not in names), *data]
    record["data"] = [Path(folder).name for folder in record["data"]]  # no paths of this machine
    for key in {"start_from", "norm_stats"} & set(record):
        if record[key] is not None and "://" not in record[key]:
            record[key] = Path(record[key]).name
    return record, data


def _start(source: str | None, checkpoint: Path) -> Path | None:
    """The checkpoint that training started from, if training wrote it and it still exists."""
    try:
        folder = None if source is None else fetch(source)
    except UsageError:
        return None
    if folder is None or not ((folder / RECORD).is_file() and (folder / SINGLE_FILE).is_file()):
        return None
    has_replaced_it = hash_file(folder / SINGLE_FILE) == hash_file(checkpoint / SINGLE_FILE)
    return None if has_replaced_it else folder


def _dataset(folder: Path) -> DatasetFacts:
    manifest = read_json_object(folder / layout.MANIFEST)
    init_ids = defaultdict[str, set[int]](set)
    for key in [*manifest["demonstrations"], *manifest["failed"]]:  # suite.task.init_id.…
        suite, _, init_id, *_ = key.split(".")
        init_ids[suite].add(int(init_id))
    return DatasetFacts(
        name=folder.name,
        policy=Path(manifest["policy"]).name,
        learner=(manifest.get("learner") or {}).get("policy"),
        **manifest["counts"],
        keeps_failures=manifest["config"].get("keep_failures", False),
        init_ids={suite: tuple(sorted(states)) for suite, states in sorted(init_ids.items())},
        commit=manifest["git"]["commit"],
    )
