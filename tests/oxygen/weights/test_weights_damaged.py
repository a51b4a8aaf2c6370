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


def damaged_copy(folder, scratch, name):
    shutil.copytree(folder, scratch, dirs_exist_ok=True)
    return Path(scratch) / name


def files_of(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


NOT_NEEDED = ("_CHECKPOINT_METADATA", "commit_success.txt", "ocdbt.process_0/manifest.ocdbt", "_sharding")


@given(st.data())
@settings(max_examples=30)
def test_orbax_with_a_file_cut_anywhere(folder, data):
    name = data.draw(st.sampled_from([name for name in files_of(folder) if not name.endswith(NOT_NEEDED)]))
    with tempfile.TemporaryDirectory() as scratch:
        path = damaged_copy(folder, scratch, name)
        content = path.read_bytes()
        path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
        # Orbax leaves behind parts of its index that nothing refers to any more.
        assert refusal(scratch) or "ocdbt.process_0" in name


@given(st.data())
@settings(max_examples=15)
def test_orbax_with_a_file_lost(folder, data):
    name = data.draw(st.sampled_from(["params/_METADATA", "params/manifest.ocdbt", largest(folder)]))
    with tempfile.TemporaryDirectory() as scratch:
        damaged_copy(folder, scratch, name).unlink()
        assert refusal(scratch)


def largest(folder):
    return max(files_of(folder), key=lambda name: (folder / name).stat().st_size)


@given(st.data())
@settings(max_examples=30)
def test_orbax_with_bytes_changed_is_refused_or_keeps_its_shapes(folder, data):
    name = data.draw(st.sampled_from(files_of(folder)))
    with tempfile.TemporaryDirectory() as scratch:
        path = damaged_copy(folder, scratch, name)
        content = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(content) - 1))
        for offset, byte in enumerate(data.draw(st.binary(min_size=1, max_size=8))):
            content[(at + offset) % len(content)] = byte
        path.write_bytes(content)
        refusal(scratch)


@pytest.mark.parametrize(
    "document", ["", "[]", "{}", '{"tree_metadata": [1]}', '{"tree_metadata": {"a": {}}}']
)
def test_orbax_metadata_of_another_form(tmp_path, document):
    (tmp_path / "_METADATA").write_text(document)
    assert "cannot be read at _METADATA" in refusal(tmp_path)
