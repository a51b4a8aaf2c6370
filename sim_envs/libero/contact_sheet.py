"""Contact sheet of initial states with several asset sets, side by side.

python -m sim_envs.libero.contact_sheet docs/standins.jpg --assets standins PATH
"""

from pathlib import Path

from cyclopts import App

from configs.cli import Names, run_app
from sim_envs.contact_sheet import Picture, sheet, side_by_side, usable_image
from sim_envs.gl import choose_backend
from sim_envs.libero.assets import AssetSet, find_assets
from sim_envs.libero.tasks import LiberoTask, get_task

app = App(
    name="python -m sim_envs.libero.contact_sheet",
    help="The same beginnings of episodes seen with several asset sets, side by side.",
    version_flags=[],
)

TASKS = (("libero_object", 3), ("libero_spatial", 5), ("libero_goal", 0), ("libero_10", 0))
"""A task of each suite that papers report."""

SIZE = 224


def view(task: LiberoTask, assets: AssetSet) -> Picture:
    """Agent view after the settle steps."""
    from sim_envs.libero.sim import LiberoSim  # MuJoCo, which --help does not need

    with LiberoSim(task, assets=assets, camera_size=SIZE) as sim:
        sim.reset(init_id=0, seed=7, settle_steps=10)
        return next(iter(sim.observe().images.values()))


@app.default
def main(file: Path, /, *, assets: Names = ("standins",)) -> None:
    """Write the contact sheet.

    Args:
        file: The image to write.
        assets: Asset sets, from left to right: folders, or names of sources (standins, download, auto).
    """
    usable_image(file)
    choose_backend()  # before anything imports MuJoCo
    sets = [find_assets(source) for source in assets]
    names = " / ".join(each.name for each in sets)
    tiles = {
        f"{task.suite} {task.task_id}: {names}": side_by_side(view(task, each) for each in sets)
        for task in (get_task(*key) for key in TASKS)
    }
    sheet(tiles).save(file, quality=85, optimize=True)


if __name__ == "__main__":
    run_app(app)
