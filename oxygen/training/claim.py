"""Whose a training's folder is: what is trained there stands in one file, written whole or not at all."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from configs.errors import UsageError
from oxygen.training.recipe import RUN_FILE

DEMONSTRATIONS = "demonstrations"
"""The key of what the demonstrations hold."""
ASKED = "asked"
"""The key of how the training was asked for, which does not tell it from another."""
_TRUSTED = (f"{DEMONSTRATIONS}.", "model.", "recipe.")
"""What a folder does not say of these was not yet noted when it was begun: it is taken on trust."""
_UNUSED = {"recipe.texts_only": False}
"""But of these what it does not say was not used, since it did not exist."""


def refuse_another(folder: Path, ours: Mapping[str, Any]) -> None:
    """Refuse a folder that holds another training than ours; one that holds none is welcome.

    Raises:
        UsageError: Names the first option that differs, or the file if it is damaged.
    """
    theirs = _read(folder / RUN_FILE)
    if theirs is None:
        return
    found, wanted = {**_UNUSED, **_leaves(theirs)}, _leaves(ours)
    said = [path for path in wanted if path in found or not path.startswith(_TRUSTED)]
    differing = [path for path in said if found.get(path) != wanted[path]]
    if differing:
        path = differing[0]
        raise UsageError(
            f"{folder} holds a training with {path} = {found.get(path)}, not {wanted[path]}; "
            "give it a folder of its own, or the same options to go on"
        )


def claim(folder: Path, ours: Mapping[str, Any]) -> None:
    """Make a folder ours, unless it is already."""
    file = folder / RUN_FILE
    if file.is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(ours, indent=2) + "\n", encoding="utf-8")
    partial.replace(file)


def asked_in(folder: Path) -> Mapping[str, Any]:
    """How the training in a folder was asked for; nothing if its folder was begun before that was noted.

    Raises:
        UsageError: The file is damaged.
    """
    asked = (_read(folder / RUN_FILE) or {}).get(ASKED)
    return asked if isinstance(asked, dict) else {}


def _read(file: Path) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        raise _damaged(file, str(error)) from None
    if not isinstance(content, dict):
        raise _damaged(file, f"it holds a {type(content).__name__}")
    return content


def _damaged(file: Path, why: str) -> UsageError:
    return UsageError(
        f"{file} is damaged: {why}; remove it to give its folder to this training, or use another"
    )


def _leaves(content: Any, path: str = "") -> dict[str, Any]:
    """Values by their dotted paths."""
    if isinstance(content, dict) and content:
        parts = [_leaves(value, f"{path}.{key}" if path else key) for key, value in content.items()]
        return {name: value for part in parts for name, value in part.items()}
    return {path: content}
