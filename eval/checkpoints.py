"""Checkpoints that training wrote: what they say of themselves, and whether this code has their sizes."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from configs.errors import UsageError
from eval.json_files import flattened
from oxygen.config import preset
from oxygen.training.checkpoint import RECORD


def read_record(folder: Path) -> dict[str, Any]:
    """What the training says of itself, in a checkpoint's `training.json`.

    Raises:
        UsageError: It is not there, or damaged.
    """
    file = folder / RECORD
    if not file.is_file():
        raise UsageError(f"{folder} is no checkpoint that training wrote: it has no {RECORD}")
    try:
        record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{file} is not what training writes: {error}") from None
    return record


def check_sizes(folder: Path, model: str) -> None:
    """Refuse a checkpoint of other sizes than its model has in this code.

    Weights tell their shapes; what no shape tells, such as the number of denoising steps, would be served
    as it never was trained.

    Args:
        folder: The checkpoint.
        model: The name of its model configuration.

    Raises:
        UsageError: Names the first size that differs.
    """
    ours = flattened(json.loads(json.dumps(dataclasses.asdict(preset(model)))))
    theirs = flattened(read_record(folder)["model"])
    for size, value in ours.items():
        if theirs.get(size) != value:
            raise UsageError(
                f"{folder} was trained with {size} {theirs.get(size)}; {model!r} now has {value}. "
                "Train it anew, or use the code that trained it"
            )
