"""The same beginnings of episodes seen with several asset sets, side by side.

python -m sim_envs.libero.contact_sheet docs/standins.jpg --assets PATH standins
"""

from collections.abc import Sequence
from pathlib import Path

from cyclopts import App
from PIL import Image, ImageDraw

from configs.cli import Names, run_app
from sim_envs.libero.assets import AssetSet, find_assets
from sim_envs.libero.sim import LiberoSim
from sim_envs.libero.tasks import LiberoTask, get_task

app = App(
    name="python -m sim_envs.libero.contact_sheet",
    help="The same beginnings of episodes seen with several asset sets, side by side.",
    version_flags=[],
)

TASKS = (
    ("libero_object", 3),
    ("libero_object", 7),
    ("libero_spatial", 5),
    ("libero_goal", 0),
    ("libero_10", 0),
    ("libero_10", 2),
    ("libero_10", 3),
    ("libero_10", 4),
    ("libero_10", 5),
    ("libero_10", 9),
)
"""Between them, every category and every room of the four suites."""

SIZE = 224
CAPTION = 18
TASKS_PER_ROW = 2


def view(task: LiberoTask, assets: AssetSet) -> Image.Image:
    """What the two cameras see after the settle steps, agent view beside wrist view."""
    with LiberoSim(task, assets=assets, camera_size=SIZE) as sim:
        sim.reset(init_id=0, seed=7, settle_steps=10)
        images = sim.observe().images
    pair = Image.new("RGB", (2 * SIZE, SIZE))
    for column, image in enumerate(images.values()):
        pair.paste(Image.fromarray(image), (column * SIZE, 0))
    return pair


def sheet(tasks: Sequence[LiberoTask], sets: Sequence[AssetSet]) -> Image.Image:
    """One tile per task: its views with each of the asset sets, one below the other."""
    tile = (2 * SIZE, CAPTION + len(sets) * SIZE)
    rows = -(-len(tasks) // TASKS_PER_ROW)
    canvas = Image.new("RGB", (TASKS_PER_ROW * tile[0], rows * tile[1]), "white")
    for number, task in enumerate(tasks):
        left, top = number % TASKS_PER_ROW * tile[0], number // TASKS_PER_ROW * tile[1]
        caption = f"{task.suite} {task.task_id}: {' / '.join(assets.name for assets in sets)}"
        ImageDraw.Draw(canvas).text((left + 4, top + 3), caption, fill="black")
        for row, assets in enumerate(sets):
            canvas.paste(view(task, assets), (left, top + CAPTION + row * SIZE))
    return canvas


@app.default
def main(file: Path, /, *, assets: Names = ("standins",)) -> None:
    """Write the picture.

    Args:
        file: The image to write.
        assets: Asset sets, from top to bottom: folders, or names of sources (standins, download, auto).
    """
    sets = [find_assets(source) for source in assets]
    sheet([get_task(*key) for key in TASKS], sets).save(file, quality=88)


if __name__ == "__main__":
    run_app(app)
