"""Asset sources, each with its name; stand-ins are whole, and objects rest as with the real assets."""

import concurrent.futures
import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from configs.errors import UsageError
from configs.paths import read_json_object
from sim_envs.libero import assets
from sim_envs.libero.assets import ENVIRONMENT_VARIABLE, STANDINS, AssetSet, find_assets, unpack_standins
from sim_envs.libero.sim import LiberoSim
from sim_envs.libero.tasks import get_task

DIGEST = "05bb9ab96238"
"""Of the stand-ins. Records of earlier runs name it: another digest makes their episodes incomparable."""


def _tree(folder: Path) -> Path:
    for part in assets._PARTS:
        (folder / part).mkdir(parents=True)
        (folder / part / "thing.xml").write_text("<mujoco/>")
    return folder


@pytest.fixture
def nothing_installed(tmp_path, monkeypatch):
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(assets, "package_root", lambda: tmp_path / "package")


@pytest.mark.usefixtures("nothing_installed")
def test_the_variable_comes_before_hf_libero_s_own_places_and_these_before_the_stand_ins(
    tmp_path, monkeypatch
):
    found = find_assets()
    assert (found.name, found.path.parent, found.digest) == (STANDINS, tmp_path / "cache/oxygen-eval", DIGEST)
    assert [child.name for child in found.path.parent.iterdir()] == [found.path.name]  # no draft is left
    for place in ("home/.cache/libero/assets", "package/assets"):
        _tree(tmp_path / place)
        found = find_assets()
        assert (found.name, found.path) == ("hf-libero", tmp_path / place)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(_tree(tmp_path / "from_env")))
    assert find_assets().name == find_assets("auto").name == "from_env"


def test_the_digest_changes_with_any_content_and_with_nothing_else(tmp_path):
    first, second = _tree(tmp_path / "first"), _tree(tmp_path / "second")
    before = find_assets(first).digest
    assert find_assets(second).digest == before
    (first / ".cache").mkdir()
    (first / ".cache" / "etag").write_text("bookkeeping")
    assert find_assets(first).digest == before
    (first / "scenes" / "thing.xml").write_text("<mujoco></mujoco>")
    assert find_assets(first).digest != before


def test_processes_that_unpack_at_once_agree(tmp_path):
    root = tmp_path / "shared"
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(unpack_standins, [root] * 2)) == [root] * 2
    assert AssetSet(name=STANDINS, path=root).digest == DIGEST
    assert [child.name for child in tmp_path.iterdir()] == ["shared"]


REST_POSE_UNITS = np.array([1e-4] * 3 + [1e-3] * 4)
"""Units of stored rest poses with the real assets: metres, and parts of a unit quaternion (w, x, y, z)."""

TASKS = [("libero_object", 3), ("libero_spatial", 5), ("libero_goal", 0)]
TASKS += [("libero_10", task_id) for task_id in (0, 2, 3, 4, 5, 9)]
"""They hold every category and room of the four suites, and the bowl that LIBERO drops on a ramekin's rim."""


def up(quaternion: np.ndarray) -> np.ndarray:
    """Direction of a body's own z axis; a turn about it does not count."""
    w, x, y, z = quaternion / np.linalg.norm(quaternion)
    return np.array([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)])


@pytest.mark.parametrize(("suite", "task_id"), TASKS)
def test_objects_rest_where_and_as_they_rest_with_the_real_assets(open_standin, suite, task_id):
    sim = open_standin(suite, task_id)
    stored = read_json_object(Path(__file__).with_name("rest_poses.json"))[f"{suite}.{task_id}"]
    for init_id in (0, 9):
        sim.reset(init_id=init_id, seed=7, settle_steps=10)
        data, bodies = sim.env.sim.data, sim.env.obj_body_id
        assert bodies.keys() == stored.keys()
        for name, body in bodies.items():
            expected = np.array(stored[name][init_id]) * REST_POSE_UNITS
            assert np.linalg.norm(data.body_xpos[body] - expected[:3]) <= 0.005, (init_id, name)
            assert up(data.body_xquat[body]) @ up(expected[3:]) >= np.cos(np.radians(5)), (init_id, name)


def test_the_light_robot_moves_as_the_installed_one(standins, tmp_path):
    for part in standins.path.iterdir():
        if part.name != "robosuite":
            (tmp_path / part.name).symlink_to(part)
    heavy = AssetSet(name=STANDINS, path=tmp_path)
    actions = np.random.default_rng(3).uniform(-1, 1, (8, 7))
    states, faces = [], []
    for tree in (standins, heavy):
        with LiberoSim(get_task("libero_goal", 2), assets=tree) as sim:
            sim.reset(init_id=1, seed=7, settle_steps=2)
            sim.advance(actions)
            states.append(sim.flat_state())
            faces.append(sim.env.sim.model.nmeshface)
    np.testing.assert_array_equal(*states)
    assert faces[0] * 3 < faces[1]


def test_a_task_with_other_objects_is_refused_in_one_line(standins):
    with pytest.raises(UsageError, match=r"libero_90 task \d+ needs .*--assets") as error:
        LiberoSim(get_task("libero_90", 88), assets=standins)
    assert "\n" not in str(error.value)
