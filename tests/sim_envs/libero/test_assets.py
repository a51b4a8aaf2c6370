"""Asset sources: a name for each, and one line that says what to do when there is none."""

from pathlib import Path

import pytest

from configs.errors import UsageError
from sim_envs.libero import assets
from sim_envs.libero.assets import ENVIRONMENT_VARIABLE, find_assets

PARTS = (
    "articulated_objects",
    "scenes",
    "stable_hope_objects",
    "stable_scanned_objects",
    "turbosquid_objects",
)


def _tree(folder: Path) -> Path:
    for part in PARTS:
        (folder / part).mkdir(parents=True)
        (folder / part / "thing.xml").write_text("<mujoco/>")
    return folder


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(assets, "package_root", lambda: tmp_path / "package")


@pytest.mark.usefixtures("nothing_installed")
def test_the_environment_variable_names_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(_tree(tmp_path / "from_env")))
    assert find_assets().name == "from_env"
    assert find_assets("auto").name == "from_env"


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize("place", ["package/assets", "home/.cache/libero/assets"])
def test_hf_libero_s_own_places_are_found(tmp_path: Path, place: str) -> None:
    _tree(tmp_path / place)
    found = find_assets()
    assert (found.name, found.path) == ("hf-libero", tmp_path / place)


def test_a_misspelt_source_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"'standin'; did you mean 'standins'\?.*path of a folder"):
        find_assets("standin")


def test_the_digest_changes_with_any_content_and_with_nothing_else(tmp_path: Path) -> None:
    first, second = _tree(tmp_path / "first"), _tree(tmp_path / "second")
    before = find_assets(first).digest
    assert find_assets(second).digest == before
    (first / ".cache").mkdir()
    (first / ".cache" / "etag").write_text("bookkeeping")
    assert find_assets(first).digest == before
    (first / "scenes" / "thing.xml").write_text("<mujoco></mujoco>")
    assert find_assets(first).digest != before
