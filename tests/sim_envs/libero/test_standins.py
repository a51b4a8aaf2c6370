"""The stand-ins for LIBERO's assets: unpacked once, whole, and the same everywhere; every model compiles."""

import concurrent.futures
import multiprocessing
from pathlib import Path
from xml.etree import ElementTree as ET

import mujoco

from sim_envs.libero.assets import AssetSet
from sim_envs.libero.standins import missing_for, unpack

DIGEST = "05bb9ab96238"
"""Of the tree. Records of earlier runs name it: another digest makes their episodes incomparable."""


def digest(tree: Path) -> str:
    return AssetSet(name="standins", path=tree).digest


def test_the_tree_is_that_of_earlier_records(standins):
    assert digest(standins.path) == DIGEST


def test_an_unpacked_tree_is_used_again(standins):
    before = {file: file.stat().st_mtime_ns for file in standins.path.rglob("*")}
    assert unpack(standins.path) == standins.path
    assert {file: file.stat().st_mtime_ns for file in standins.path.rglob("*")} == before


def test_the_cache_folder_is_the_default(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    root = unpack()
    assert root.parent == tmp_path / "oxygen-eval"
    assert [child.name for child in root.parent.iterdir()] == [root.name]  # no draft is left


def test_processes_that_unpack_at_once_agree(tmp_path):
    root = tmp_path / "shared"
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(unpack, [root] * 2)) == [root] * 2
    assert digest(root) == DIGEST
    assert [child.name for child in tmp_path.iterdir()] == ["shared"]


def test_every_object_and_scene_compiles(standins):
    for xml in standins.path.glob("[!r]*/**/*.xml"):
        mujoco.MjModel.from_xml_path(str(xml))


def test_every_file_that_the_tree_names_is_in_it(standins):
    for xml in standins.path.rglob("*.xml"):
        for element in ET.parse(xml).iter():
            if "file" in element.attrib:
                assert (xml.parent / element.attrib["file"]).is_file()


def test_categories_without_a_stand_in_are_named(standins):
    assert missing_for(["milk", "floor", "basket"], standins.path) == []
    assert missing_for(["window", "milk", "faucet"], standins.path) == ["faucet", "window"]
