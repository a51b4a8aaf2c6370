"""Shared simulators: compiling a model and opening a renderer are slow."""

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sim_envs.droid.control import Control
from sim_envs.droid.sim import DroidSim
from sim_envs.droid.task_file import load_task
from sim_envs.libero.assets import STANDINS, AssetSet, find_assets, load_libero, unpack_standins
from sim_envs.libero.sim import LiberoSim
from sim_envs.libero.tasks import get_task


@pytest.fixture(scope="session", autouse=True)
def no_garbage_collection_on_close() -> Iterator[None]:
    """Skip the garbage collections on closing a simulator: they take seconds with all test imports."""
    load_libero()  # otherwise importing robosuite warns
    with pytest.MonkeyPatch.context() as patch:
        for module in ("sim_envs.libero.sim", "robosuite.utils.binding_utils"):
            patch.setattr(f"{module}.gc", types.SimpleNamespace(collect=int))
        yield


@pytest.fixture(scope="session")
def standins(tmp_path_factory: pytest.TempPathFactory) -> AssetSet:
    """The stand-in assets, freshly unpacked; available on any machine."""
    return AssetSet(name=STANDINS, path=unpack_standins(tmp_path_factory.mktemp("standins") / "tree"))


@contextlib.contextmanager
def shared(assets: AssetSet, **options: int) -> Iterator[Callable[[str, int], LiberoSim]]:
    """Opens the simulator of a task, once for all who ask for it, and closes all at the end."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(
            lambda suite, task_id: stack.enter_context(
                LiberoSim(get_task(suite, task_id), assets=assets, **options)
            )
        )


@pytest.fixture(scope="module")
def open_standin(standins: AssetSet) -> Iterator[Callable[[str, int], LiberoSim]]:
    """Opens the simulator of a task with stand-ins, shared by the tests of a module, and resets it."""
    with shared(standins, camera_size=64) as opened:

        def begun(suite: str, task_id: int) -> LiberoSim:
            opened(suite, task_id).reset(init_id=0, seed=7, settle_steps=10)
            return opened(suite, task_id)

        yield begun


@pytest.fixture(scope="session")
def open_sim(libero_assets: Path) -> Iterator[Callable[[str, int], LiberoSim]]:
    """Opens the simulator of a task; each is shared by all tests and closed after them."""
    with shared(find_assets(libero_assets)) as opened:
        yield opened


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
