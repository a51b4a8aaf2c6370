"""Contact sheets: pictures of tasks in one image."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from contracts.errors import unknown
from sim_envs.suite import Task

_CAPTION = 18
_TILES_PER_ROW = 2
_WIDE = 1200  # pixels of a tile that has a row of its own
_MOST_TILES = 200
_SUFFIXES = (".jpg", ".jpeg", ".png")


class Sheet:
    """Pictures of tasks, each with its instruction, in one image."""

    def __init__(self, file: Path) -> None:
        """Begin the image of a file; a UsageError if its format is unknown."""
        if file.suffix.lower() not in _SUFFIXES:
            raise unknown("image format", file.suffix, _SUFFIXES, remedy=f"In {str(file)!r}.")
        self._file = file
        self._tiles: dict[str, np.ndarray] = {}

    def add(self, task: Task, picture: np.ndarray) -> None:
        """Add a task under its instruction; a sheet that is full takes no more."""
        if len(self._tiles) < _MOST_TILES:
            self._tiles[f"{task.suite} {task.task_id}: {task.language}"] = picture

    def write(self) -> bool:
        """Write the image. Returns whether there is one."""
        if not self._tiles:
            return False
        height = max(tile.shape[0] for tile in self._tiles.values()) + _CAPTION
        width = max(tile.shape[1] for tile in self._tiles.values())
        per_row = 1 if width > _WIDE else _TILES_PER_ROW
        rows = -(-len(self._tiles) // per_row)
        canvas = Image.new("RGB", (per_row * width, rows * height), "white")
        for number, (caption, tile) in enumerate(self._tiles.items()):
            row, column = divmod(number, per_row)
            ImageDraw.Draw(canvas).text((column * width + 4, row * height + 3), caption, fill="black")
            canvas.paste(Image.fromarray(tile), (column * width, row * height + _CAPTION))
        canvas.save(self._file, quality=85, optimize=True)
        return True
