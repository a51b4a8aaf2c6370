"""Damaged checkpoints are refused in one line."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.errors import UsageError
from oxygen.model import params
from oxygen.weights import load
from tests.oxygen.conftest import SMALL
from tests.oxygen.weights.test_weights import save_orbax, save_safetensors


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("orbax")
    save_orbax(folder / "params", params.random_params(SMALL, 5))
    return folder


@pytest.fixture(scope="module")
def safetensors(tmp_path_factory):
    file = tmp_path_factory.mktemp("safetensors") / "model.safetensors"
    save_safetensors(file, params.random_params(SMALL, 5))
    return file.read_bytes()


def refusal(source):
    """Why a checkpoint is refused; None if it loads."""
    try:
        load(source, SMALL)
    except UsageError as error:
        return str(error)
    return None


@given(st.data())
@settings(max_examples=40)
def test_safetensors_cut_anywhere_or_other_bytes(safetensors, data):
    cut = st.integers(0, len(safetensors) - 1).map(lambda end: safetensors[:end])
    content = data.draw(cut | st.binary(max_size=200))
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "model.safetensors").write_bytes(content)
        assert refusal(scratch)


NOT_NEEDED = ("_CHECKPOINT_METADATA", "commit_success.txt", "ocdbt.process_0/manifest.ocdbt", "_sharding")


@given(st.data())
@settings(max_examples=60)
def test_orbax_with_a_file_cut_lost_or_changed_is_refused_or_keeps_its_shapes(folder, data):
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    largest = max(files, key=lambda name: files[name].stat().st_size)
    damage = data.draw(st.sampled_from(["cut", "lost", "changed"]))
    needed = {
        "cut": [name for name in files if not name.endswith(NOT_NEEDED)],
        "lost": ["params/_METADATA", "params/manifest.ocdbt", largest],
        "changed": list(files),
    }
    name = data.draw(st.sampled_from(sorted(needed[damage])))
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(folder, scratch, dirs_exist_ok=True)
        path = Path(scratch) / name
        content = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(content) - 1))
        if damage == "lost":
            path.unlink()
        elif damage == "cut":
            path.write_bytes(content[:at])
        else:
            for offset, byte in enumerate(data.draw(st.binary(min_size=1, max_size=8))):
                content[(at + offset) % len(content)] = byte
            path.write_bytes(content)
        # Orbax leaves behind parts of its index that nothing refers to any more.
        assert refusal(scratch) or damage == "changed" or (damage == "cut" and "ocdbt.process_0" in name)


@pytest.mark.parametrize(
    "document", ["", "[]", "{}", '{"tree_metadata": [1]}', '{"tree_metadata": {"a": {}}}']
)
def test_orbax_metadata_of_another_form(tmp_path, document):
    (tmp_path / "_METADATA").write_text(document)
    assert "cannot be read at _METADATA" in refusal(tmp_path)
