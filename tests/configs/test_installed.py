"""A distribution counts as a release if Python imports its modules from it, and its files are unchanged."""

import base64
import hashlib
import importlib
import json
import subprocess
import sys
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType

import pytest

from configs import installed
from configs.installed import (
    check_submodules,
    distribution_of,
    identify,
    imported_version,
)
from contracts.errors import UsageError

_FILES = {"arm/__init__.py": "", "arm/task.py": "SOLVED = False\n", "arm/goals/lift.bddl": "(lifted cube)\n"}


def _recorded(file: Path) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).decode().rstrip("=")
    return f"sha256={digest},{file.stat().st_size}"


def install(site: Path, files: dict[str, str], *, version: str = "1.0", **about: str) -> Path:
    """Install a distribution `robot-arm` as pip does; `about` are further files of its `dist-info`."""
    for name, text in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    info = site / f"robot_arm-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: robot-arm\nVersion: {version}\n")
    for name, text in about.items():
        (info / name.replace("_json", ".json")).write_text(text)
    lines = [f"{name},{_recorded(site / name)}" for name in files]
    (info / "RECORD").write_text("\n".join([*lines, f"{info.name}/METADATA,,", f"{info.name}/RECORD,,"]))
    return info


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of packages on Python's path; what is imported from it is forgotten."""
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    monkeypatch.setattr(installed, "_names_by_module", packages_distributions)
    yield tmp_path / "site-packages"
    for name in [name for name in sys.modules if name.partition(".")[0] == "arm"]:
        del sys.modules[name]


def test_a_release_is_its_version(site):
    install(site, {**_FILES, "tests/__init__.py": "", "arm_tools.py": ""})
    importlib.import_module("arm.task")
    check_submodules("robot-arm")
    assert imported_version("robot-arm") == identify("robot-arm").describe() == "1.0"
    identify("robot-arm").require_release("scores are of the release")
    assert distribution_of("arm.task") == "robot-arm"


def test_links_into_a_cache_are_the_same_files(site, tmp_path):
    install(tmp_path / "cache", _FILES)
    site.symlink_to(tmp_path / "cache")
    assert identify("robot-arm").origin == {}


@pytest.mark.parametrize("form", ["package", "file", "archive", "imported"])
def test_another_module_of_the_same_name_is_refused_with_both_paths(form, site, tmp_path, monkeypatch):
    install(site, _FILES)
    clone = tmp_path / ("clone.zip" if form == "archive" else "clone")
    other = {"file": "arm.py"}.get(form, "arm/__init__.py")
    if form == "archive":
        with zipfile.ZipFile(clone, "w") as archive:
            archive.writestr(other, "")
    else:
        (clone / other).parent.mkdir(parents=True)
        (clone / other).write_text("")
    if form == "imported":
        module = ModuleType("arm")
        module.__file__ = str(clone / other)
        monkeypatch.setitem(sys.modules, "arm", module)
        remedy = "do not import arm from there"
    else:
        monkeypatch.syspath_prepend(clone)
        monkeypatch.setenv("PYTHONPATH", f"/nowhere:{clone}")
        remedy = f"take {clone} out of PYTHONPATH"
    with pytest.raises(UsageError) as refused:
        identify("robot-arm")
    assert str(refused.value) == (
        f"'arm' is imported from {clone / other}, and robot-arm 1.0 is installed at {site}/arm/__init__.py: "
        f"{remedy}"
    )


def test_a_folder_without_init_hides_nothing_and_the_current_folder_is_named(site, tmp_path, monkeypatch):
    install(site, _FILES)
    (tmp_path / "arm").mkdir()
    monkeypatch.syspath_prepend("")
    monkeypatch.chdir(tmp_path)
    assert imported_version("robot-arm") == "1.0"
    (tmp_path / "arm" / "__init__.py").touch()
    importlib.invalidate_caches()
    with pytest.raises(UsageError, match="run from another folder"):
        imported_version("robot-arm")
    monkeypatch.undo()


def test_a_missing_module_is_installed_anew(site):
    info = install(site, _FILES)
    (site / "arm" / "__init__.py").unlink()
    (info / "RECORD").write_text("arm/__init__.py,,\n")
    (site / "arm" / "goals" / "lift.bddl").unlink()
    with pytest.raises(UsageError, match=r"'arm' is imported from .*/arm, and robot-arm 1.0 is installed at"):
        imported_version("robot-arm")


@pytest.mark.parametrize("name", ["arm/task.py", "arm/goals/lift.bddl"])
def test_files_that_were_changed_or_deleted_are_named(name, site):
    install(site, _FILES)
    (site / name).write_text("SOLVED = True\n")
    found = identify("robot-arm")
    assert found.origin == {"changed": [name]}
    assert found.describe() == {"version": "1.0", "changed": [name], "digest": found.digest}
    with pytest.raises(
        UsageError, match=rf"changed after its installation \({name}\), but w: run `uv pip i.*1.0"
    ):
        found.require_release("w")


def test_a_file_beside_the_installed_ones_is_not_theirs(site):
    """A package hides a module of the same name in the same folder."""
    install(site, _FILES)
    (site / "arm" / "task").mkdir()
    (site / "arm" / "task" / "__init__.py").write_text("SOLVED = True\n")
    importlib.import_module("arm.task")
    with pytest.raises(
        UsageError, match=rf"'arm.task' is imported from {site}/arm/task/__init__.py, which does"
    ):
        check_submodules("robot-arm")


@pytest.mark.parametrize(
    ("direct_url", "origin", "is_release"),
    [
        ({"url": "file:///src/arm", "dir_info": {}}, {"url": "file:///src/arm"}, False),
        (
            {"url": "https://me:secret@host/arm?key=1", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}},
            {"url": "https://host/arm", "commit": "c0ffee"},
            False,
        ),
        ({"url": "file:///wheels/arm.whl", "archive_info": {}}, {"archive": "file:///wheels/arm.whl"}, True),
    ],
)
def test_where_it_was_installed_from_is_recorded(direct_url, origin, is_release, site):
    install(site, _FILES, direct_url_json=json.dumps(direct_url))
    found = identify("robot-arm")
    assert found.describe() == {"version": "1.0", **origin, "digest": found.digest}
    found.require_release("w", digest=found.digest)
    if is_release:
        found.require_release("w")
        return
    with pytest.raises(UsageError, match=f"is installed from {origin['url']}, but w"):
        found.require_release("w")
    with pytest.raises(UsageError, match="but w"):
        found.require_release("w", digest="another")


def test_what_conda_has_built_is_a_release(site):
    built = json.dumps({"url": "file:///home/conda/feedstock_root/arm", "dir_info": {}})
    install(site, _FILES, direct_url_json=built, INSTALLER="conda\n")
    assert identify("robot-arm").origin == {}


def test_an_editable_installation_is_recorded_with_its_commit_and_counts_by_content(
    site, tmp_path, monkeypatch
):
    source = tmp_path / "arm project" / "src"
    for name, text in _FILES.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    monkeypatch.syspath_prepend(source)
    direct = {"url": source.parent.as_uri(), "dir_info": {"editable": True}}
    install(site, {}, direct_url_json=json.dumps(direct), **{"top_level.txt": "arm\n"})
    importlib.import_module("arm.task")
    assert distribution_of("arm.task") == "robot-arm"
    alone = identify("robot-arm")
    assert alone.origin == {"editable": str(source.parent), "commit": None, "dirty": None}
    with pytest.raises(UsageError, match=f"is installed from {source.parent}, but w"):
        alone.require_release("w")
    git = ("git", "-C", source, "-c", "user.name=a", "-c", "user.email=a")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "."]):
        subprocess.run([*git, *command], check=True)
    assert (committed := _again()).origin["dirty"] is False
    assert len(committed.origin["commit"]) == 40
    assert committed.digest == alone.digest
    (source / "arm" / "task.py").write_text("SOLVED = True\n")
    assert _again().origin == {**committed.origin, "dirty": True}
    assert _again().digest != alone.digest


def _again():
    """As another process finds it."""
    installed._identified.cache_clear()
    return identify("robot-arm")


@pytest.mark.parametrize(("folder", "origin"), [("dist-packages", {"recorded": False}), ("checkout", None)])
def test_without_a_list_of_files_the_folder_counts(folder, origin, tmp_path, monkeypatch):
    """As Debian installs packages, and what a build leaves in a checkout on PYTHONPATH."""
    place = tmp_path / folder
    (place / "robot_arm.egg-info").mkdir(parents=True)
    (place / "robot_arm.egg-info" / "PKG-INFO").write_text("Name: robot-arm\nVersion: 1.0\n")
    (place / "robot_arm").mkdir()
    (place / "robot_arm" / "__init__.py").touch()
    monkeypatch.syspath_prepend(place)
    found = identify("robot-arm")
    assert found.origin == (origin or {"editable": str(place), "commit": None, "dirty": None})
    why = "has no list of its files" if origin else f"is installed from {place}"
    with pytest.raises(UsageError, match=why):
        found.require_release("w")
