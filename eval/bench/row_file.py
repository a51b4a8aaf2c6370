"""The benchmark's file of rows, in JSON lines."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from configs.errors import UsageError
from eval.bench.row import Row
from eval.records.json_files import append_json_line, read_json_lines


class RowFile:
    """A file of rows, appended to workload by workload; `rows` holds them, oldest first."""

    def __init__(self, path: Path) -> None:
        """Open the file, or create it.

        Raises:
            UsageError: It cannot be written, or does not hold rows of this version.
        """
        self.path = path
        self.rows: list[Row] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            for record in read_json_lines(path):
                values: dict[str, Any] = {
                    name: tuple(each) if isinstance(each, list) else each for name, each in record.items()
                }
                self.rows.append(Row(**values))
        except OSError as error:
            raise UsageError(f"cannot write {str(path)!r}: {error.strerror}; give --output another") from None
        except (AttributeError, TypeError, ValueError):
            raise UsageError(
                f"{str(path)!r} does not hold rows as this version writes them; give --output another"
            ) from None

    def of(self, identities: Iterable[tuple[Any, ...]]) -> Sequence[Row]:
        """The latest row of each of these configurations, in their order."""
        latest = {row.identity: row for row in self.rows}
        return [latest[identity] for identity in identities if identity in latest]

    def append(self, rows: Iterable[Row]) -> None:
        """Add rows; each is on disk when this returns."""
        for row in rows:
            append_json_line(self.path, dataclasses.asdict(row))
            self.rows.append(row)

    def has(self, identities: Iterable[tuple[Any, ...]]) -> bool:
        """Whether each of these configurations has a row."""
        return set(identities) <= {row.identity for row in self.rows}
