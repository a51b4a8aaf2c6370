"""The beginning of every task of DROID's station, exterior and wrist camera side by side.

python -m sim_envs.droid.contact_sheet docs/droid.jpg
"""

from pathlib import Path

from cyclopts import App
from PIL import Image, ImageDraw

from configs.cli import run_app
from sim_envs.suite import Suite, Task, open_suite

app = App(
    name="python -m sim_envs.droid.contact_sheet",
    help="The beginning of every task of DROID's station, exterior and wrist camera side by side.",
    version_flags=[],
)

CAPTION = 18
TASKS_PER_ROW = 2


def view(suite: Suite, task: Task) -> Image.Image:
    """What both cameras see of initial state 0 after settling."""
    world = suite.open(task)
    try:
        world.reset(init_id=0, seed=7, settle_steps=suite.protocol.settle_steps)
        images = [Image.fromarray(image) for image in world.observe().images.values()]
    finally:
        world.close()
    pair = Image.new("RGB", (sum(image.width for image in images), images[0].height))
    for column, image in enumerate(images):
        pair.paste(image, (column * image.width, 0))
    return pair


@app.default
def main(file: Path, /, *, suite: str = "droid_tabletop") -> None:
    """Write the picture.

    Args:
        file: The image to write.
        suite: The suite whose tasks are shown.
    """
    opened = open_suite(suite)
    views = [view(opened, task) for task in opened.tasks()]
    width, height = views[0].width, views[0].height + CAPTION
    rows = -(-len(views) // TASKS_PER_ROW)
    canvas = Image.new("RGB", (TASKS_PER_ROW * width, rows * height), "white")
    for task, pair in zip(opened.tasks(), views, strict=True):
        left, top = task.task_id % TASKS_PER_ROW * width, task.task_id // TASKS_PER_ROW * height
        caption = f"{task.task_id} {task.name}: {task.language}"
        ImageDraw.Draw(canvas).text((left + 4, top + 3), caption, fill="black")
        canvas.paste(pair, (left, top + CAPTION))
    canvas.save(file, quality=85)


if __name__ == "__main__":
    run_app(app)
