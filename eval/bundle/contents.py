"""What of a checkpoint is bundled: the files that are served, not the optimiser's state; and their facts."""

import dataclasses
import filecmp
import hashlib
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from configs.errors import UsageError
from eval.bundle.data import Demonstrated, read_demonstrated
from eval.bundle.history import BEFORE, refuse_strangers
from eval.policies.checkpoints import no_checkpoint, read_record
from eval.policies.names import read_policy
from eval.records.json_files import write_json
from oxygen.model.config import preset
from oxygen.robots.norms import checkpoint_norms
from oxygen.robots.transforms import embodiment
from oxygen.weights import fetch, layout
from oxygen.weights.card import CARD, RECORD, TOKENIZER
from oxygen.weights.loading import SINGLE_FILE
from oxygen.weights.safetensors import open_safetensors

MOST_BYTES = 16_000_000
"""What may be bundled at most: everybody who installs the package carries it."""

_MANIFEST = "manifest.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileFacts:
    """What tells a file from all others."""

    sha256: str
    bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contents:
    """The `manifest.json` of a bundled checkpoint.

    Attributes:
        name: The policy's name, which is the folder's.
        step: Training steps behind it.
        parameters: Numbers in `model.safetensors`.
        files: Path in the folder to what the file there must be.
        data: The demonstrations it was trained on.
    """

    name: str
    step: int
    parameters: int
    files: Mapping[str, FileFacts]
    data: tuple[Demonstrated, ...]

    @property
    def bytes(self) -> int:
        """Of all files together."""
        return sum(file.bytes for file in self.files.values())

    @property
    def weights_sha256(self) -> str:
        """What tells its parameters from all others."""
        return self.files[SINGLE_FILE].sha256


_CONTENTS = TypeAdapter(Contents)


def read_contents(folder: Path) -> Contents | None:
    """The manifest of a bundled checkpoint; None if nothing is bundled there.

    Raises:
        UsageError: It is damaged.
    """
    file = folder / _MANIFEST
    if not file.is_file():
        return None
    try:
        return _CONTENTS.validate_json(file.read_bytes())
    except ValidationError as error:
        raise UsageError(f"{file} is not what bundling writes: {error.errors()[0]['msg']}") from None


def facts_of(file: Path) -> FileFacts:
    """A file's facts, measured."""
    content = file.read_bytes()
    return FileFacts(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))


def take(checkpoint: Path, data: Sequence[Path], target: Path, *, name: str) -> Contents:
    """Copy what is served of a checkpoint into a new folder, and write its manifest.

    Args:
        checkpoint: A folder that training wrote.
        data: Folders of its demonstrations; as the checkpoint names them if empty.
        target: The new folder.
        name: What the policy will be called.

    Raises:
        UsageError: It is no such folder or not whole, it is of another model than this code has by that
            name, it is too large, or its demonstrations are not to be found, or others than its own.
    """
    _check(checkpoint)
    lineage = _lineage(checkpoint)
    record, demonstrated = _record_of(lineage), _data_of(lineage, data)
    refuse_strangers(record, demonstrated)
    target.mkdir(parents=True)
    for path in _served(checkpoint):
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(checkpoint / path, target / path)
    write_json(target / RECORD, _without_places(record))
    contents = Contents(
        name=name,
        step=record["step"],
        parameters=_parameters(target / SINGLE_FILE),
        files={path: facts_of(target / path) for path in [*_served(checkpoint), RECORD]},
        data=demonstrated,
    )
    if contents.bytes > MOST_BYTES:
        raise UsageError(
            f"{checkpoint} has {contents.bytes} bytes to serve; at most {MOST_BYTES} are bundled"
        )
    write_json(target / _MANIFEST, dataclasses.asdict(contents))
    return contents


def _check(checkpoint: Path) -> None:
    """Refuse what is no whole checkpoint of a training."""
    if not checkpoint.is_dir():
        raise no_checkpoint(str(checkpoint), checkpoint)
    model = preset(str(read_policy(str(checkpoint)).model))
    for path in _served(checkpoint):
        if not (checkpoint / path).is_file():
            raise UsageError(f"{checkpoint} is no whole checkpoint of a training: it has no {path}")
    layout.check(open_safetensors(checkpoint / SINGLE_FILE).tensors, model, str(checkpoint))


def _lineage(checkpoint: Path) -> list[Path]:
    """The checkpoint, the one that its training began from, and so on, as far as they are to be found.

    A bundled one is the last: its record and its manifest tell of those before it.
    """
    start = None if read_contents(checkpoint) else read_record(checkpoint)["start_from"]
    before = None if start is None else _found(start)
    if before is None or _same_weights(before, checkpoint):  # another is bundled by that name since
        return [checkpoint]
    return [checkpoint, *_lineage(before)]


def _found(start: str) -> Path | None:
    """The folder of a checkpoint that training began from, if it is one of ours and still to be had."""
    try:
        folder = fetch(start)
    except UsageError:
        return None
    return folder if (folder / RECORD).is_file() and (folder / SINGLE_FILE).is_file() else None


def _same_weights(one: Path, other: Path) -> bool:
    return filecmp.cmp(one / SINGLE_FILE, other / SINGLE_FILE, shallow=False)


def _record_of(lineage: Sequence[Path]) -> dict[str, Any]:
    """The record of the first training, which holds that of the one before it, and so on."""
    record = read_record(lineage[0])
    if len(lineage) == 1:
        return record
    before = _record_of(lineage[1:])
    if before.get("wordings") == record["wordings"]:  # which are most of a record
        before = {name: value for name, value in before.items() if name != "wordings"}
    return {**record, BEFORE: before}


def _data_of(lineage: Sequence[Path], given: Sequence[Path]) -> tuple[Demonstrated, ...]:
    """Every dataset of a lineage, once: where the command line says it is, else where it was in training."""
    data = [read_demonstrated(folder) for folder in given]
    named = {each.name for each in data}
    for checkpoint in lineage:
        contents = read_contents(checkpoint)
        if contents is not None:
            data += [each for each in contents.data if each.name not in named and each not in data]
        elif not given:
            found = map(read_demonstrated, map(Path, read_record(checkpoint)["data"]))
            data += [each for each in found if each not in data]
    return tuple(data)


def _served(checkpoint: Path) -> tuple[str, ...]:
    """The files that a policy is made of, by their paths in the folder."""
    robot = embodiment(str(read_policy(str(checkpoint)).embodiment))
    norms = checkpoint_norms(checkpoint, robot.asset_id).relative_to(checkpoint)
    return (SINGLE_FILE, norms.as_posix(), TOKENIZER, CARD)


def _without_places(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with folders by their names: where they lay on one machine means nothing on another."""
    before = record.get(BEFORE)
    return {
        **record,
        "data": [Path(folder).name for folder in record["data"]],
        **{key: _name(record[key]) for key in ("start_from", "norm_stats") if key in record},
        **({BEFORE: _without_places(before)} if before else {}),
    }


def _name(place: str | None) -> str | None:
    return place if place is None or "://" in place else Path(place).name


def _parameters(weights: Path) -> int:
    return sum(math.prod(tensor.shape) for tensor in open_safetensors(weights).tensors.values())
