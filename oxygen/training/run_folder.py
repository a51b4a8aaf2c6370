"""The folder of a training, whose `run.json` identifies it, so that no two write to one."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from configs.errors import UsageError
from configs.paths import read_json_object

RUN_FILE = "run.json"
"""The file in a training's folder that identifies the training."""
CHECKPOINTS = "checkpoints"
"""The subfolder for checkpoints."""
DEMONSTRATIONS = "demonstrations"
"""Key of the demonstrations' fingerprint."""
VOCABULARY = "vocabulary"
"""Key of the tokenizer's fingerprint."""
OPTIONS = "options"
"""Key of the command line's options, which are not part of a training's identity."""


def check_same_run(folder: Path, identity: Mapping[str, Any]) -> None:
    """Refuse a folder that holds another training.

    Raises:
        UsageError: Names the first option that differs, or the file if it is damaged.
    """
    if not (folder / RUN_FILE).is_file():
        return
    found = _leaves(_read(folder))
    for path, expected in _leaves(identity).items():
        if found.get(path) != expected:
            raise UsageError(
                f"{folder} holds a training with {path} = {found.get(path)}, not {expected}; give another "
                "folder, or the same options to resume"
            )


def write_run_file(folder: Path, content: Mapping[str, Any]) -> None:
    """Write `run.json` atomically; the options of a resumed training replace the earlier ones."""
    file = folder / RUN_FILE
    folder.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    partial.replace(file)


def read_options(folder: Path) -> Mapping[str, Any]:
    """The options of the training in a folder; empty if there are none.

    Raises:
        UsageError: The file is damaged.
    """
    given = _read(folder).get(OPTIONS)
    if not isinstance(given, dict):
        return {}
    return {name: value for name, value in given.items() if value is not None}


def _read(folder: Path) -> dict[str, Any]:
    try:
        return read_json_object(folder / RUN_FILE)
    except UsageError as error:
        raise UsageError(f"{error}; remove the damaged file, or use another folder") from None


def _leaves(content: Mapping[str, Any]) -> dict[str, Any]:
    from flax.traverse_util import empty_node, flatten_dict  # JAX, which --help does not need

    flat = flatten_dict(dict(content), keep_empty_nodes=True, sep=".")
    return {path: {} if leaf is empty_node else leaf for path, leaf in flat.items()}
