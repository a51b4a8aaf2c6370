"""Contact sheet: an initial state of each task, with one asset set or several side by side.

python -m sim_envs.contact_sheet docs/droid.jpg
python -m sim_envs.contact_sheet docs/standins.jpg --suite libero_object --assets standins auto
"""

import contextlib
from pathlib import Path
from typing import Annotated

import numpy as np
from cyclopts import App, Parameter
from PIL import Image, ImageDraw

from configs.cli import Names, Numbers, format_option, run_app
from configs.paths import usable_file
from contracts.errors import UsageError, unknown
from sim_envs.suite import Task, open_suite

_CAPTION = 18
_TILES_PER_ROW = 2
_MOST_TILES = 200
_SUFFIXES = (".jpg", ".jpeg", ".png")

app = App(
    name="python -m sim_envs.contact_sheet",
    help="Draw an initial state of each task of some suites, with one asset set or several side by side.",
)


@app.default
def main(
    file: Path,
    /,
    *,
    suite: Annotated[Names, Parameter(show_default=False)] = ("droid_tabletop",),
    task_ids: Annotated[Numbers, Parameter(show_default=False)] = (),
    assets: Annotated[Names, Parameter(show_default=False)] = ("auto",),
) -> None:
    """Write the contact sheet. Of one asset set it shows all cameras, of several the first.

    Args:
        file: The image to write.
        suite: The suites. Default: droid_tabletop.
        task_ids: Tasks of every suite. Default: all.
        assets: Asset sets, from left to right: folders, or sources (standins, download, auto).
    """
    file = usable_file(file, "the image")
    opened = [[open_suite(name, assets=source) for source in assets] for name in suite]
    sheet = Sheet(file)
    for sets in opened:
        for task in sets[0].tasks():
            if not task_ids or task.task_id in task_ids:
                views = []
                for each in sets:
                    each.check([task])
                    with contextlib.closing(each.open(task)) as world:
                        world.reset(init_id=0, seed=7, settle_steps=each.protocol.settle_steps)
                        views.append(list(world.observe().images.values()))
                shown = views[0] if len(sets) == 1 else [view[0] for view in views]
                sheet.add(task, np.concatenate(shown, axis=1))
    if not sheet.write():
        raise UsageError(f"no task of {', '.join(suite)} is among {format_option('task_ids', task_ids)}")


class Sheet:
    """Pictures of tasks, each with its instruction, in one image."""

    def __init__(self, file: Path) -> None:
        """Begin the image of a file; a UsageError if its format is unknown."""
        if file.suffix.lower() not in _SUFFIXES:
            raise unknown("image format", file.suffix, _SUFFIXES, remedy=f"In {str(file)!r}.")
        self._file = file
        self._tiles: dict[str, np.ndarray] = {}

    def add(self, task: Task, picture: np.ndarray) -> None:
        """Add a task; a sheet that is full takes no more."""
        if len(self._tiles) < _MOST_TILES:
            self._tiles[f"{task.suite} {task.task_id}: {task.language}"] = picture

    def write(self) -> bool:
        """Write the image. Returns whether there is one."""
        if not self._tiles:
            return False
        height = max(tile.shape[0] for tile in self._tiles.values()) + _CAPTION
        width = max(tile.shape[1] for tile in self._tiles.values())
        rows = -(-len(self._tiles) // _TILES_PER_ROW)
        canvas = Image.new("RGB", (_TILES_PER_ROW * width, rows * height), "white")
        for number, (caption, tile) in enumerate(self._tiles.items()):
            row, column = divmod(number, _TILES_PER_ROW)
            ImageDraw.Draw(canvas).text((column * width + 4, row * height + 3), caption, fill="black")
            canvas.paste(Image.fromarray(tile), (column * width, row * height + _CAPTION))
        canvas.save(self._file, quality=85, optimize=True)
        return True


if __name__ == "__main__":
    run_app(app)
