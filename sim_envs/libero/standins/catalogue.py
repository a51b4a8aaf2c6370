"""Which of LIBERO's categories have a stand-in, and the writing of all of them."""

from collections.abc import Iterable
from pathlib import Path

from sim_envs.libero.standins.appliances import APPLIANCES
from sim_envs.libero.standins.drinkware import DRINKWARE
from sim_envs.libero.standins.furniture import FURNITURE
from sim_envs.libero.standins.groceries import GROCERIES
from sim_envs.libero.standins.mjcf import write_model
from sim_envs.libero.standins.robot import write_robot
from sim_envs.libero.standins.scenes import write_scenes
from sim_envs.libero.standins.vessels import VESSELS

MODELS = {model.category: model for model in (*GROCERIES, *VESSELS, *DRINKWARE, *FURNITURE, *APPLIANCES)}
WORKSPACES = frozenset(
    {"floor", "table", "kitchen_table", "living_room_table", "study_table"}
)  # fixtures of BDDL that are part of a scene


def missing_for(categories: Iterable[str]) -> list[str]:
    """Those of a task's object and fixture categories that have no stand-in, sorted."""
    return sorted(set(categories) - MODELS.keys() - WORKSPACES)


def write_all(tree: Path) -> None:
    """Write every model and scene below `tree`."""
    for model in MODELS.values():
        write_model(tree, model)
    write_scenes(tree)
    write_robot(tree)
