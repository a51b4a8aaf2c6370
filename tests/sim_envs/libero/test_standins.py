"""The stand-ins for LIBERO's assets: built once, whole, the same everywhere; every model compiles."""

import concurrent.futures
import hashlib
import multiprocessing
from pathlib import Path
from xml.etree import ElementTree as ET

import mujoco
import numpy as np
import pytest

from configs.errors import UsageError
from sim_envs.libero.standins import build, missing_for
from sim_envs.libero.standins.catalogue import MODELS

TRIANGLES = 600  # of one model; LIBERO's own have some 15,000


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("standins") / "tree")


def contents(folder: Path) -> dict[str, str]:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_two_builds_are_the_same_to_the_byte(tree, tmp_path):
    assert contents(build(tmp_path / "again")) == contents(tree)


def test_a_complete_tree_is_used_again(tree):
    before = {file: file.stat().st_mtime_ns for file in tree.rglob("*")}
    assert build(tree) == tree
    assert {file: file.stat().st_mtime_ns for file in tree.rglob("*")} == before


def test_the_cache_folder_is_the_default(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    root = build()
    assert root.parent == tmp_path / "oxygen-eval"
    assert [child.name for child in root.parent.iterdir()] == [root.name]  # no drafts are left lying about


@pytest.mark.slow
def test_processes_that_build_at_once_agree(tree, tmp_path):
    root = tmp_path / "shared"
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(build, [root] * 2)) == [root] * 2
    assert contents(root) == contents(tree)
    assert [child.name for child in tmp_path.iterdir()] == ["shared"]


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match="not empty"):
        build(tmp_path)
    assert [child.name for child in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("category", sorted(MODELS))
def test_every_model_compiles_alone_and_is_light(tree, category):
    model = mujoco.MjModel.from_xml_path(str(tree / MODELS[category].path))
    assert model.nmeshface < TRIANGLES
    drawn, solid = model.geom_group == 1, model.geom_group == 0
    assert drawn.any()
    assert not model.geom_contype[drawn].any()
    assert (model.geom_type[solid] == mujoco.mjtGeom.mjGEOM_BOX).all()


@pytest.mark.parametrize("category", sorted(MODELS))
def test_what_is_seen_is_what_collides(tree, category):
    model = mujoco.MjModel.from_xml_path(str(tree / MODELS[category].path))
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    np.testing.assert_allclose(extent(model, data, 1), extent(model, data, 0), atol=0.008)


def extent(model: mujoco.MjModel, data: mujoco.MjData, group: int) -> np.ndarray:
    """Lowest and highest corner of all geoms of a group, [2, 3]."""
    signs = np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1).T
    corners = []
    for geom in np.flatnonzero(model.geom_group == group):
        turn = data.geom_xmat[geom].reshape(3, 3)
        if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_MESH:
            mesh = model.geom_dataid[geom]
            start = model.mesh_vertadr[mesh]
            points = model.mesh_vert[start : start + model.mesh_vertnum[mesh]]
        else:
            points = signs * model.geom_size[geom]
        corners.append(data.geom_xpos[geom] + points @ turn.T)
    every = np.concatenate(corners)
    return np.array([every.min(axis=0), every.max(axis=0)])


def test_scenes_compile(tree):
    for scene in (tree / "scenes").glob("*.xml"):
        mujoco.MjModel.from_xml_path(str(scene))


def test_every_file_the_tree_names_is_in_it(tree):
    for xml in tree.rglob("*.xml"):
        for element in ET.parse(xml).iter():
            if "file" in element.attrib:
                assert (xml.parent / element.attrib["file"]).is_file()


def test_categories_without_a_stand_in_are_named():
    assert missing_for(["milk", "floor", "basket"]) == []
    assert missing_for(["window", "milk", "faucet"]) == ["faucet", "window"]
