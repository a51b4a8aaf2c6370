"""What an attacker puts into the working directory, each as a function of that directory."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path


def fifo(name: str) -> Callable[[Path], None]:
    """A pipe that nobody writes to, in place of a file."""

    def prepare(place: Path) -> None:
        (place / name).unlink(missing_ok=True)
        os.mkfifo(place / name)

    return prepare


def fifo_in(new: str, name: str) -> Callable[[Path], None]:
    """A pipe that nobody writes to, in a new folder."""

    def prepare(place: Path) -> None:
        (place / new).mkdir(parents=True)
        os.mkfifo(place / new / name)

    return prepare


def folder(name: str) -> Callable[[Path], None]:
    """A folder in place of a file."""

    def prepare(place: Path) -> None:
        (place / name).unlink(missing_ok=True)
        (place / name).mkdir(parents=True)

    return prepare


def link(name: str, target: str) -> Callable[[Path], None]:
    """A link in place of a file or folder."""

    def prepare(place: Path) -> None:
        path = place / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    return prepare


def text(name: str, content: str) -> Callable[[Path], None]:
    """A file."""

    def prepare(place: Path) -> None:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(content, encoding="utf-8")

    return prepare


def field(name: str, **changes: object) -> Callable[[Path], None]:
    """Other values in a JSON file."""

    def prepare(place: Path) -> None:
        first, *rest = (
            (place / name).read_text().splitlines() if name.endswith("l") else [(place / name).read_text()]
        )
        (place / name).write_text("\n".join([json.dumps(json.loads(first) | changes), *rest]) + "\n")

    return prepare


def encoded(name: str, encoding: str) -> Callable[[Path], None]:
    """A file in another encoding."""

    def prepare(place: Path) -> None:
        (place / name).write_text((place / name).read_text(), encoding=encoding)

    return prepare


def cut(name: str, at: int) -> Callable[[Path], None]:
    """A file without its last bytes."""

    def prepare(place: Path) -> None:
        (place / name).write_bytes((place / name).read_bytes()[:at])

    return prepare
