"""LIBERO with the stand-ins: stored states load, objects rest as with the real assets, images are cheap."""

from collections.abc import Callable, Iterator

import mujoco
import numpy as np
import pytest

from configs.errors import UsageError
from sim_envs.libero.assets import STANDINS, AssetSet, find_assets
from sim_envs.libero.sim import LiberoSim
from sim_envs.libero.tasks import get_task
from tests.sim_envs.libero.rest_poses import deviations, load, measure

# Between them, these hold every category and every room of the four suites, and the bowl that LIBERO drops on
# a ramekin's rim.

TASKS = [
    ("libero_object", 3),
    ("libero_spatial", 5),
    ("libero_goal", 0),
    ("libero_10", 0),
    ("libero_10", 2),
    ("libero_10", 3),
    ("libero_10", 4),
    ("libero_10", 5),
    ("libero_10", 9),
]


@pytest.fixture(scope="module")
def open_sim(standins: AssetSet) -> Iterator[Callable[[str, int], LiberoSim]]:
    sims: dict[tuple[str, int], LiberoSim] = {}

    def opened(suite: str, task_id: int) -> LiberoSim:
        if (suite, task_id) not in sims:
            sims[suite, task_id] = LiberoSim(get_task(suite, task_id), assets=standins, camera_size=32)
        return sims[suite, task_id]

    yield opened
    for sim in sims.values():
        sim.close()


@pytest.mark.parametrize(("suite", "task_id"), TASKS)
def test_objects_rest_where_and_as_they_rest_with_the_real_assets(open_sim, suite, task_id):
    sim = open_sim(suite, task_id)
    for init_id in (0, 9):
        poses = measure(sim, init_id)
        expected = load(sim.task, init_id)
        assert poses.keys() == expected.keys()
        for deviation in deviations(sim.task, init_id, poses, expected):
            assert deviation.distance_mm <= 5, deviation
            assert deviation.tilt_deg <= 5, deviation


@pytest.mark.parametrize(("suite", "task_id"), TASKS)
def test_no_task_is_solved_before_anything_is_done(open_sim, suite, task_id):
    sim = open_sim(suite, task_id)
    sim.reset(init_id=0, seed=7, settle_steps=10)
    assert not sim.env._check_success()


def test_whole_scenes_are_light(open_sim):
    for suite, task_id in TASKS:
        model = open_sim(suite, task_id).env.sim.model._model
        drawn = np.isin(np.arange(model.nmesh), model.geom_dataid[model.geom_group == 1])
        assert model.mesh_facenum[drawn].sum() < 25_000  # the real trees': 250,000


def test_the_light_robot_moves_as_the_installed_one(standins, tmp_path):
    for part in standins.path.iterdir():
        if part.name != "robosuite":
            (tmp_path / part.name).symlink_to(part)
    heavy = AssetSet(name=STANDINS, path=tmp_path)
    actions = np.random.default_rng(3).uniform(-1, 1, (8, 7))
    states, faces = [], []
    for assets in (standins, heavy):
        with LiberoSim(get_task("libero_goal", 2), assets=assets) as sim:
            sim.reset(init_id=1, seed=7, settle_steps=2)
            sim.advance(actions)
            states.append(sim.flat_state())
            faces.append(sim.env.sim.model.nmeshface)
    np.testing.assert_array_equal(*states)
    assert faces[0] * 3 < faces[1]


def test_drawers_slide_free_of_their_cabinet_and_knobs_turn(open_sim):
    sim = open_sim("libero_goal", 0)
    sim.reset(init_id=0, seed=7, settle_steps=0)
    model, data = sim.env.sim.model._model, sim.env.sim.data._data
    data.joint("wooden_cabinet_1_middle_level").qpos = -0.15
    data.joint("flat_stove_1_button").qpos = 1.0
    mujoco.mj_forward(model, data)
    for fixture in ("wooden_cabinet_1", "flat_stove_1"):
        own = [body for body in range(model.nbody) if model.body(body).name.startswith(fixture)]
        inside = np.isin(model.geom_bodyid[data.contact.geom], own).all(axis=1)
        assert not inside.any()
    assert sim.env._eval_predicate(["open", "wooden_cabinet_1_middle_region"])
    assert sim.env._eval_predicate(["turnon", "flat_stove_1"])


def test_a_task_with_other_objects_is_refused_in_one_line(standins):
    with pytest.raises(UsageError, match=r"libero_90 task \d+ needs .*--assets") as error:
        LiberoSim(get_task("libero_90", 88), assets=standins)
    assert "\n" not in str(error.value)


def test_auto_takes_the_real_assets_where_they_are_configured(monkeypatch, tmp_path, libero_assets):
    monkeypatch.setenv("OXYGEN_LIBERO_ASSETS", str(libero_assets))
    assert find_assets("auto").path == libero_assets.resolve()


@pytest.mark.slow
def test_auto_falls_back_on_the_stand_ins_and_says_so(monkeypatch, tmp_path):
    monkeypatch.delenv("OXYGEN_LIBERO_ASSETS", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = find_assets()
    assert found.name == "standins"
    assert found.path == find_assets("standins").path
