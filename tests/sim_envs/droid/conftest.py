"""One compiled scene for all tests of the station."""

from collections.abc import Callable, Iterator

import pytest

from sim_envs.droid.control import Control
from sim_envs.droid.sim import DroidSim
from sim_envs.droid.task_file import load_task


@pytest.fixture(scope="session")
def begin_droid() -> Iterator[Callable[..., DroidSim]]:
    """Begins an episode of a task. Its station is compiled once for all tests and closed after them."""
    sims: dict[tuple[str, Control, float], DroidSim] = {}

    def begun(
        task: str = "cube_in_bowl",
        *,
        control: Control = Control.JOINT_VELOCITY,
        variation: float = 0.0,
        init_id: int = 0,
        settle_steps: int = 5,
    ) -> DroidSim:
        key = task, control, variation
        if key not in sims:
            sims[key] = DroidSim(load_task(task), control=control, image_height=36, variation=variation)
        sims[key].reset(init_id=init_id, seed=7, settle_steps=settle_steps)
        return sims[key]

    yield begun
    for sim in sims.values():
        sim.close()
