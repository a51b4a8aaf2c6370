"""One compiled scene for all tests of the station."""

from collections.abc import Callable, Iterator

import pytest

from sim_envs.droid.control import Control
from sim_envs.droid.sim import DroidSim
from sim_envs.droid.task_file import load_task


@pytest.fixture(scope="session")
def open_droid() -> Iterator[Callable[..., DroidSim]]:
    """A station with a task, compiled once for all tests and closed after them."""
    sims: dict[tuple[str, Control, float], DroidSim] = {}

    def opened(
        task: str = "cube_in_bowl", control: Control = Control.JOINT_VELOCITY, variation: float = 0.0
    ) -> DroidSim:
        key = task, control, variation
        if key not in sims:
            sims[key] = DroidSim(load_task(task), control=control, image_height=36, variation=variation)
        return sims[key]

    yield opened
    for sim in sims.values():
        sim.close()
