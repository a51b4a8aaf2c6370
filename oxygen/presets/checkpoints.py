"""Reads the records of training checkpoints; errors for folders that are not checkpoints."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from flax.traverse_util import flatten_dict
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from configs.cli import invalid
from configs.errors import UsageError, nearest_first
from configs.paths import found_near, read_json_object
from oxygen.model.config import preset
from oxygen.training.run_folder import CHECKPOINTS
from oxygen.weights.formats import METADATA, SINGLE_FILE
from oxygen.weights.source import CARD, CONFIG_FILE, RECORD

_NEARBY = ("*", *(f"{above}{CHECKPOINTS}/*" for above in ("", "*/", "*/*/", "*/*/*/")))
"""Patterns of checkpoints, relative to the nearest existing folder."""


class _Record(TypedDict):
    """Fields of every training's record."""

    step: int
    model: dict[str, Any]
    embodiment: str
    tasks: list[dict[str, Any]]
    recipe: dict[str, Any]
    data: list[str]


_RECORD = TypeAdapter(_Record)

_SERVED_ONLY = frozenset({"noise_scale"})  # settings of inference, which may change after training


def read_record(folder: Path) -> dict[str, Any]:
    """Read a checkpoint's `training.json`.

    Raises:
        UsageError: It is missing or damaged.
    """
    file = folder / RECORD
    if not file.is_file():
        raise UsageError(f"{folder} is not a training checkpoint: it has no {RECORD}")
    record = read_json_object(file)
    try:
        _RECORD.validate_python(record)
    except ValidationError as error:
        raise invalid(error, f"{file} is not what training writes") from None
    return record


def check_sizes(folder: Path, model: str) -> None:
    """Refuse a checkpoint whose model configuration has changed since training.

    Shapes are checked when the weights are loaded; this also covers sizes that no shape shows, such as the
    number of denoising steps.

    Args:
        folder: The checkpoint.
        model: The name of its model configuration.

    Raises:
        UsageError: Names the first size that differs.
    """
    if not (folder / RECORD).is_file() and (folder / CONFIG_FILE).is_file():
        return  # converted: only its shapes are known
    ours = flatten_dict(json.loads(json.dumps(dataclasses.asdict(preset(model)))), sep=".")
    theirs = flatten_dict(read_record(folder)["model"], sep=".")
    for size in (size for size in ours if size in theirs and size not in _SERVED_ONLY):
        value = ours[size]
        if theirs[size] != value:
            raise UsageError(
                f"{folder} was trained with {size} {theirs[size]}; {model!r} now has {value}. "
                "Train it again, or use the code that trained it"
            )


def no_checkpoint(source: str, folder: Path) -> UsageError:
    """The error for a source whose folder is not a checkpoint; it names the nearest folders that are."""
    if folder.is_file():
        return UsageError(f"{source} is a file; give the folder of a checkpoint, or a policy's YAML file")
    if not folder.is_dir():
        return UsageError(f"there is no checkpoint at {source}. {_nearest_to(folder)}")
    cards = (folder.glob(f"{inside}step_*[0-9]/{CARD}") for inside in (f"{CHECKPOINTS}/", ""))
    if newest := max((card.parent for found in cards for card in found), default=None):
        return UsageError(f"{source} is the folder of a training; give its newest checkpoint: {newest}")
    if any((folder / file).is_file() for file in (f"params/{METADATA}", METADATA, SINGLE_FILE)):
        return UsageError(
            f"{source} has weights, but no {CARD}. Convert them "
            f"(python -m oxygen.tools.convert {source} TARGET --model pi05_libero) and give TARGET, or give "
            f"a YAML file with `weights: {source}`: docs/policies.md has an example"
        )
    lacks = f"{source} is not a training checkpoint: it has no {CARD}"
    return UsageError(f"{lacks}. {_nearest_to(folder)}")


def _nearest_to(folder: Path) -> str:
    known = [card.parent for card in found_near(folder, (f"{pattern}/{CARD}" for pattern in _NEARBY))]
    if not known:
        return f"Training writes checkpoints to {CHECKPOINTS}/step_… in its --output-dir"
    return f"Nearest: {', '.join(nearest_first(folder, known)[:3])}"
