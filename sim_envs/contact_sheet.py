"""Contact sheet: an initial state of each task, with one asset set or several side by side.

python -m sim_envs.contact_sheet docs/droid.jpg
python -m sim_envs.contact_sheet docs/standins.jpg --suite libero_object --assets standins auto
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
from sim_envs.suite import Suite, Task, open_suite
from sim_envs.world import perturbed_world

_CAPTION = 18
_TILES_PER_ROW = 2
_WIDE = 1200  # pixels of a tile that has a row of its own
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
    perturb_each: Annotated[Names, Parameter(show_default=False)] = (),
) -> None:
    """Write the contact sheet. Of one asset set it shows all cameras, of several the first.

    With perturbations a row is a dimension: the first camera of the control, then of severities 1 to 5.

    Args:
        file: The image to write.
        suite: The suites. Default: droid_tabletop.
        task_ids: Tasks of every suite. Default: all.
        assets: Asset sets, from left to right: folders, or sources (standins, download, auto).
        perturb_each: Dimensions of perturbation.
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
                for dimension in perturb_each:
                    sheet.add(task, _perturbed(sets[0], task, dimension), f"{dimension}, control and 1 to 5")
                if perturb_each:
                    continue
                shown = views[0] if len(sets) == 1 else [view[0] for view in views]
                sheet.add(task, np.concatenate(shown, axis=1))
    if not sheet.write():
        raise UsageError(f"no task of {', '.join(suite)} is among {format_option('task_ids', task_ids)}")


def _perturbed(suite: Suite, task: Task, dimension: str) -> np.ndarray:
    """The first camera of the control and of each severity, in a row."""
    views = []
    with contextlib.closing(suite.open(task)) as world:
        for text in ("none", *(f"{dimension}:{severity}" for severity in SEVERITIES)):
            changed = open_suite(suite.protocol.name, perturb=text)
            perturbed_world(world, changed.protocol.perturb)
            world.reset(init_id=0, seed=7, settle_steps=suite.protocol.settle_steps)
            views.append(next(iter(world.observe().images.values())))
    return np.concatenate(views, axis=1)


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
