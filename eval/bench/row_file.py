"""The file of rows: grows by a workload at a time, and can be read back."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.errors import UsageError
from eval.bench.row import Row
from eval.records.json_files import append_json_line, read_json_lines


class RowFile:
    """Rows in JSON lines at a path."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it.

        Raises:
            UsageError: It cannot be written, or holds something else than this version's rows.
        """
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            self._rows = [_row(record) for record in read_json_lines(path)]
        except OSError as error:
            raise UsageError(f"cannot write {str(path)!r}: {error.strerror}; give --output another") from None
        except (AttributeError, TypeError, ValueError):
            raise UsageError(
                f"{str(path)!r} holds something else than rows as this version writes them; "
                "give --output another"
            ) from None

    @property
    def rows(self) -> Sequence[Row]:
        """Every row, oldest first."""
        return self._rows

    def of(self, identities: Iterable[tuple[Any, ...]]) -> Sequence[Row]:
        """The rows of these configurations, in their order; of several the one that was written last."""
        latest = {row.identity: row for row in self._rows}
        return [latest[identity] for identity in identities if identity in latest]

    def append(self, rows: Iterable[Row]) -> None:
        """Add rows; each is on disk when this returns."""
        for row in rows:
            append_json_line(self.path, dataclasses.asdict(row))
            self._rows.append(row)

    def has(self, identities: Iterable[tuple[Any, ...]]) -> bool:
        """Whether every one of these configurations has a row."""
        return set(identities) <= {row.identity for row in self._rows}


def _row(record: Mapping[str, Any]) -> Row:
    """A row as it was before it was written; JSON has no tuples."""
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in record.items()
    }
    return Row(**values)
