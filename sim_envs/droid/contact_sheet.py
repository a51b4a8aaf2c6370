"""Contact sheet of initial states: every task of DROID's station, exterior and wrist camera side by side.

python -m sim_envs.droid.contact_sheet docs/droid.jpg
"""

from pathlib import Path

from cyclopts import App
from PIL import Image

from configs.cli import run_app
from sim_envs.contact_sheet import sheet, side_by_side, usable_image
from sim_envs.suite import Suite, Task, open_suite

app = App(
    name="python -m sim_envs.droid.contact_sheet",
    help="Draw an initial state of every task of DROID's station, exterior and wrist camera side by side.",
    version_flags=[],
)


def view(suite: Suite, task: Task) -> Image.Image:
    """Both camera images of initial state 0 after settling."""
    world = suite.open(task)
    try:
        world.reset(init_id=0, seed=7, settle_steps=suite.protocol.settle_steps)
        return side_by_side(world.observe().images.values())
    finally:
        world.close()


@app.default
def main(file: Path, /, *, suite: str = "droid_tabletop") -> None:
    """Write the contact sheet.

    Args:
        file: The image to write.
        suite: The suite whose tasks are shown.
    """
    usable_image(file)
    opened = open_suite(suite)
    tiles = {f"{task.task_id} {task.name}: {task.language}": view(opened, task) for task in opened.tasks()}
    sheet(tiles).save(file, quality=85)


if __name__ == "__main__":
    run_app(app)
