"""Contact sheets: pictures of tasks in one image; as a command, what perturbations look like.

python -m sim_envs.contact_sheet sheet.jpg --suite libero_object --task-ids 3 --perturb-each camera light
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
from contracts.perturbation import SEVERITIES
from sim_envs.suite import Task, open_suite
from sim_envs.world import perturbed_world

_CAPTION = 18
_TILES_PER_ROW = 2
_WIDE = 1200  # pixels of a tile that has a row of its own
_MOST_TILES = 200
_SUFFIXES = (".jpg", ".jpeg", ".png")

app = App(
    name="python -m sim_envs.contact_sheet",
    help="Draw an initial state of each task of a suite as perturbations change it.",
)


@app.default
def main(
    file: Path,
    /,
    *,
    suite: str = "droid_tabletop",
    task_ids: Annotated[Numbers, Parameter(show_default=False)] = (),
    assets: str = "auto",
    perturb_each: Names,
) -> None:
    """Write a row per task and dimension: the first camera of the control, then of severities 1 to 5.

    Args:
        file: The image to write.
        suite: The suite.
        task_ids: Its tasks. Default: all.
        assets: A folder of assets, or a source (standins, download, auto).
        perturb_each: Dimensions of perturbation.
    """
    sheet, opened = Sheet(usable_file(file, "the image")), open_suite(suite, assets=assets)
    for task in (each for each in opened.tasks() if not task_ids or each.task_id in task_ids):
        opened.check([task])
        with contextlib.closing(opened.open(task)) as world:
            for dimension in perturb_each:
                views = []
                for text in ("none", *(f"{dimension}:{severity}" for severity in SEVERITIES)):
                    perturbed_world(world, open_suite(suite, assets=assets, perturb=text).protocol.perturb)
                    world.reset(init_id=0, seed=7, settle_steps=opened.protocol.settle_steps)
                    views.append(next(iter(world.observe().images.values())))
                sheet.add(task, np.concatenate(views, axis=1), f"{dimension}, control and 1 to 5")
    if not sheet.write():
        raise UsageError(f"no task of {suite} is among {format_option('task_ids', task_ids)}")


class Sheet:
    """Pictures of tasks, each with its instruction, in one image."""

    def __init__(self, file: Path) -> None:
        """Begin the image of a file; a UsageError if its format is unknown."""
        if file.suffix.lower() not in _SUFFIXES:
            raise unknown("image format", file.suffix, _SUFFIXES, remedy=f"In {str(file)!r}.")
        self._file = file
        self._tiles: dict[str, np.ndarray] = {}

    def add(self, task: Task, picture: np.ndarray, what: str | None = None) -> None:
        """Add a task under its instruction or `what` it shows; a sheet that is full takes no more."""
        if len(self._tiles) < _MOST_TILES:
            self._tiles[f"{task.suite} {task.task_id}: {what or task.language}"] = picture

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


if __name__ == "__main__":
    run_app(app)
