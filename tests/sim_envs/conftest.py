"""Simulators that tests share, since compiling a model and opening a renderer take a while."""

import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sim_envs.libero.assets import STANDINS, AssetSet, find_assets
from sim_envs.libero.bootstrap import load_libero
from sim_envs.libero.sim import LiberoSim
from sim_envs.libero.standins import build
from sim_envs.libero.tasks import get_task


@pytest.fixture(scope="session", autouse=True)
def closed_without_collecting() -> Iterator[None]:
    """Closing a simulator collects garbage, which takes seconds beside all that tests import, twice."""
    load_libero()  # otherwise robosuite warns when it is imported
    with pytest.MonkeyPatch.context() as patch:
        for module in ("sim_envs.libero.sim", "robosuite.utils.binding_utils"):
            patch.setattr(f"{module}.gc", types.SimpleNamespace(collect=int))
        yield


@pytest.fixture(scope="session")
def standins(tmp_path_factory: pytest.TempPathFactory) -> AssetSet:
    """Our own assets, as this code makes them: what tests can do with on any machine."""
    return AssetSet(name=STANDINS, path=build(tmp_path_factory.mktemp("standins") / "tree"))


@pytest.fixture(scope="session")
def open_sim(libero_assets: Path) -> Iterator[Callable[[str, int], LiberoSim]]:
    """A simulator of a task, opened once for all tests and closed after them."""
    assets = find_assets(libero_assets)
    sims: dict[tuple[str, int], LiberoSim] = {}

    def opened(suite: str, task_id: int) -> LiberoSim:
        key = suite, task_id
        if key not in sims:
            sims[key] = LiberoSim(get_task(suite, task_id), assets=assets)
        return sims[key]

    yield opened
    for sim in sims.values():
        sim.close()
