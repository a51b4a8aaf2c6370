"""Shared simulators: compiling a model and opening a renderer are slow. Episodes of scripted policies."""

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from configs.load import load
from configs.schema import SuiteConfig
from contracts.episode import EpisodeKey
from contracts.truth import Truth
from sim_envs.droid.control import Control
from sim_envs.droid.sim import DroidSim
from sim_envs.droid.task_file import load_task
from sim_envs.libero import assets
from sim_envs.libero.assets import STANDINS, AssetSet, find_assets, load_libero, unpack_standins
from sim_envs.libero.experts.expert import Expert
from sim_envs.libero.sim import SETTLE_ACTION, LiberoSim
from sim_envs.libero.tasks import get_task
from sim_envs.scripted.policy import ScriptedPolicy
from sim_envs.world import AdvanceResult


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


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> AssetSet:
    """LIBERO's own assets: the files that we have digests of, and no others of the installed packages."""
    installed, tree = find_assets().path, tmp_path_factory.mktemp("originals") / "tree"
    for name in assets._original_digests():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).symlink_to(installed / name)
    return find_assets(tree)


@contextlib.contextmanager
def shared(tree: AssetSet, **options: int) -> Iterator[Callable[[str, int], LiberoSim]]:
    """Opens the simulator of a task, once for all who ask for it, and closes all at the end."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def opened(suite: str, task_id: int) -> LiberoSim:
            return stack.enter_context(LiberoSim(get_task(suite, task_id), assets=tree, **options))

        yield opened


@pytest.fixture(scope="module")
def open_standin(standins: AssetSet) -> Iterator[Callable[[str, int], LiberoSim]]:
    """Opens the simulator of a task with stand-ins, shared by the tests of a module, and resets it."""
    with shared(standins, camera_size=64) as opened:

        def begun(suite: str, task_id: int) -> LiberoSim:
            opened(suite, task_id).reset(init_id=0, seed=7, settle_steps=10)
            return opened(suite, task_id)

        yield begun


@pytest.fixture(scope="session")
def open_sim(originals: AssetSet) -> Iterator[Callable[[str, int], LiberoSim]]:
    """Opens the simulator of a task; each is shared by all tests and closed after them."""
    with shared(originals) as opened:
        yield opened


@pytest.fixture(scope="session")
def begin_droid() -> Iterator[Callable[..., DroidSim]]:
    """Begins an episode of a task. Its station is compiled once for all tests and closed after them."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def opened(task: str, control: Control, variation: float) -> DroidSim:
            sim = DroidSim(load_task(task), control=control, image_height=36, variation=variation)
            return stack.enter_context(contextlib.closing(sim))

        def begun(
            task: str = "cube_in_bowl",
            *,
            control: Control = Control.JOINT_VELOCITY,
            variation: float = 0.0,
            **state: int,
        ) -> DroidSim:
            sim = opened(task, control, variation)
            sim.reset(**{"init_id": 0, "seed": 7, "settle_steps": 5, **state})
            return sim

        yield begun


def key_of(sim: LiberoSim, init_id: int = 0) -> EpisodeKey:
    return EpisodeKey(suite=sim.task.suite, task_id=sim.task.task_id, init_id=init_id, seed=7)


def expert_of(sim: LiberoSim, **how: float) -> Expert:
    """LIBERO's expert at the beginning of an episode."""
    expert = Expert(sim, **how)
    expert.reset(key_of(sim))
    return expert


def attempt(
    world: Any, policy: ScriptedPolicy, init_id: int = 0, *, key: EpisodeKey | None = None
) -> AdvanceResult:
    """An episode of any world; in LIBERO's simulator, of its own task unless a key is given."""
    key = key or key_of(world, init_id)
    protocol = load(SuiteConfig, key.suite)
    world.reset(init_id=key.init_id, seed=key.seed, settle_steps=protocol.settle_steps)
    policy.reset(key)
    steps, success = 0, False
    while steps < protocol.max_steps and not success:
        actions = policy.query(world.policy_state())[: min(protocol.replan_steps, protocol.max_steps - steps)]
        result = world.advance(actions)
        steps, success = steps + result.steps, result.success
    return AdvanceResult(success=success, steps=steps)


def told_by(world: Any, expert: ScriptedPolicy, key: EpisodeKey, *, steps: int = 600) -> Iterator[Truth]:
    """Lets an expert work from here to success, and tells the truth after every control step."""
    expert.reset(key)
    for _ in range(steps // 5):
        for action in expert.query(world.policy_state())[:5]:
            solved = world.advance(action[None]).success
            yield world.truth()
            if solved:
                return
    pytest.fail("the expert does not succeed")


def put_thing(sim: LiberoSim, obj: str, position: np.ndarray, steps: int = 10) -> bool:
    """Move a thing and let it fall; whether that solves the task."""
    pose = sim.env.sim.data.get_joint_qpos(f"{obj}_joint0").copy()
    pose[:3] = position
    sim.env.sim.data.set_joint_qpos(f"{obj}_joint0", pose)
    sim.env.sim.forward()
    return sim.advance(np.tile(SETTLE_ACTION, (steps, 1))).success
