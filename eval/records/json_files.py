"""Crash-safe JSON files without secrets: atomic replacement, and append-only JSON lines."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from configs.paths import flush, parse_json_object, regular, sync
from contracts.errors import UsageError
from contracts.redaction import redact


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a JSON-lines file; none if it is missing. An incomplete last line is skipped.

    A file that cannot be read, and a line that is not a JSON object, are a UsageError.
    """
    if not path.exists():
        return
    try:
        with regular(path).open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.endswith(b"\n"):
                    yield parse_json_object(line, f"{path}, line {number}")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def json_line(record: Mapping[str, Any]) -> bytes:
    """One line of a JSON-lines file. Lone surrogates, which UTF-8 cannot encode, are escaped."""
    return (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def append_json_line(path: Path, record: Mapping[str, Any]) -> None:
    """Append one record in a single write; it is on disk when this returns."""
    with path.open("ab+") as lines:
        if lines.tell():
            lines.seek(-1, os.SEEK_END)
            if lines.read(1) != b"\n":  # of a write that was cut off
                lines.truncate(path.read_bytes().rfind(b"\n") + 1)
        lines.write(json_line(redact(record)))
        lines.flush()
        flush(lines.fileno())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a JSON file atomically; it is on disk when this returns. Lone surrogates are escaped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(json.dumps(redact(content), indent=1, ensure_ascii=False) + "\n")
            file.flush()
            flush(file.fileno())  # content before name, in case of a power cut
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)  # where the disk is full
    sync(path.parent)  # the folder's entry, too
