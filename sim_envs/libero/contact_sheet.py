"""Contact sheet of initial states with several asset sets, side by side.

python -m sim_envs.libero.contact_sheet docs/standins.jpg --assets PATH standins
"""

from pathlib import Path

from cyclopts import App
from PIL import Image

from configs.cli import Names, run_app
from configs.paths import usable_file
from sim_envs.contact_sheet import sheet, side_by_side, stacked
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


def view(task: LiberoTask, assets: AssetSet) -> Image.Image:
    """Agent view and wrist view after the settle steps."""
    with LiberoSim(task, assets=assets, camera_size=SIZE) as sim:
        sim.reset(init_id=0, seed=7, settle_steps=10)
        return side_by_side(sim.observe().images.values())


@app.default
def main(file: Path, /, *, assets: Names = ("standins",)) -> None:
    """Write the contact sheet.

    Args:
        file: The image to write.
        assets: Asset sets, from top to bottom: folders, or names of sources (standins, download, auto).
    """
    usable_file(file, "the image")
    sets = [find_assets(source) for source in assets]
    names = " / ".join(each.name for each in sets)
    tiles = {
        f"{task.suite} {task.task_id}: {names}": stacked(view(task, each) for each in sets)
        for task in (get_task(*key) for key in TASKS)
    }
    sheet(tiles).save(file, quality=88)


if __name__ == "__main__":
    run_app(app)
