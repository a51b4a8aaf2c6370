"""Checkpoints of both formats load bit for bit; what does not fit or is damaged is refused in one line."""

import errno
import functools
import json
import math
import shutil
import tempfile
import tracemalloc
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.flax import save_file

from contracts.errors import UsageError
from oxygen.model import params
from oxygen.model.config import PI05_LIBERO, TINY
from oxygen.weights import formats
from oxygen.weights.formats import Stored, open_checkpoint
from oxygen.weights.loading import check_parameters, load
from tests.oxygen.conftest import SMALL, flat


def save_orbax(folder, tree, **options):
    """Write a checkpoint as openpi's training does: under `params`, with `value` behind every key."""
    values = params.nested({f"params/{path}/value": array for path, array in flat(tree).items()})
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**options)) as checkpointer:
        checkpointer.save(folder.resolve(), values)


def save_safetensors(file, tree):
    formats.write_safetensors(file, flat(tree))


WRITERS = {
    "orbax": ("params", save_orbax),
    "orbax, zarr3": ("params", functools.partial(save_orbax, use_zarr3=True)),
    "orbax, no ocdbt": ("params", functools.partial(save_orbax, use_ocdbt=False)),
    "safetensors": ("model.safetensors", save_safetensors),
}
"""Where a format's tensors are in a checkpoint's folder, and what writes them."""


def assert_equal(loaded, original, dtype):
    loaded, original = flat(loaded), flat(original)
    assert loaded.keys() == original.keys()
    for path, array in original.items():
        wanted = np.asarray(array).astype(jnp.dtype(dtype))
        found = np.asarray(loaded[path])
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), path
        assert found.tobytes() == wanted.tobytes(), path


@pytest.fixture(scope="module")
def original():
    return params.random_params(SMALL, 11)


@pytest.fixture(scope="module", params=WRITERS)
def saved(request, original, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    name, save = WRITERS[request.param]
    save(folder / name, original)
    return folder


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_was_saved_is_loaded_bit_for_bit_cast_if_asked_for(saved, original, dtype):
    assert_equal(load(saved, SMALL, dtype=dtype), original, dtype)


def test_arrays_have_the_configurations_type_and_the_cpu_takes_them_over_without_a_copy(saved):
    for path, array in flat(load(saved, SMALL)).items():
        assert array.dtype.name == "float32"
        assert jax.device_put(array).unsafe_buffer_pointer() == array.ctypes.data, path
    with pytest.raises(UsageError, match=r"unknown dtype 'bfloat61'; did you mean 'bfloat16'"):
        load(saved, SMALL, dtype="bfloat61")


@pytest.mark.parametrize(
    ("name", "save"),
    [WRITERS["orbax"], ("model.safetensors", lambda file, tree: save_file(flat(tree), file))],
    ids=["orbax", "flax"],
)
def test_a_bfloat16_checkpoint_keeps_its_bits_and_widens_exactly(tmp_path, original, name, save):
    """Also one that another program has written."""
    halved = jax.tree.map(lambda array: jnp.asarray(array, jnp.bfloat16), original)
    save(tmp_path / name, halved)
    for dtype in ("bfloat16", "float32"):
        assert_equal(load(tmp_path, SMALL, dtype=dtype), halved, dtype)
    assert open_checkpoint(tmp_path).tensors["time_mlp_in/bias"] == Stored(shape=(32,), dtype="bfloat16")


def test_a_checkpoint_saved_without_nnx_and_in_many_chunks_loads_too(tmp_path, original):
    tree = {"params": original, "step": np.zeros((1,))}
    with ocp.PyTreeCheckpointer() as checkpointer:
        args = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=3000), tree)
        checkpointer.save(tmp_path.resolve() / "params", tree, save_args=args)
    assert_equal(load(tmp_path, SMALL, dtype="bfloat16"), original, "bfloat16")


@pytest.mark.parametrize("piece", [200, 4096])
def test_pieces_of_large_chunks_make_up_the_same_numbers(tmp_path, original, monkeypatch, piece):
    streamed, opened = [], formats._open_stream

    def open_stream(*chunk):
        streamed.append(opened(*chunk))
        return streamed[-1]

    monkeypatch.setattr(formats, "_open_stream", open_stream)
    monkeypatch.setattr(formats, "_STREAM_BYTES", piece)
    save_orbax(tmp_path / "params", original)
    assert_equal(load(tmp_path, SMALL, dtype="bfloat16"), original, "bfloat16")
    assert any(stream is not None for stream in streamed)


@pytest.mark.parametrize(("name", "save"), [WRITERS["orbax"], WRITERS["safetensors"]])
def test_memory_peaks_at_1_15_of_the_weights(tmp_path, monkeypatch, name, save):
    for pieces in ("_PIECE_BYTES", "_STREAM_BYTES"):
        monkeypatch.setattr(formats, pieces, 1 << 14)  # as small beside this model as theirs beside π0.5
    original = params.random_params(TINY, 0)
    save(tmp_path / name, original)
    check_parameters(open_checkpoint(tmp_path).tensors, TINY, "x")  # imports
    tracemalloc.start()
    loaded = load(tmp_path, TINY, dtype="bfloat16")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(loaded))
    assert peak < 0.15 * size  # beside the tree itself, whose pages are not traced
    assert_equal(loaded, original, "bfloat16")


@pytest.mark.golden
def test_the_published_tree_is_consumed_to_the_last_key(golden):
    theirs = json.loads((golden / "pi05_libero_param_tree.json").read_text())
    published = {
        path: Stored(shape=tuple(leaf["shape"]), dtype=leaf["dtype"]) for path, leaf in theirs.items()
    }
    check_parameters(published, PI05_LIBERO, "the published policy")
    assert sum(math.prod(tensor.shape) for tensor in published.values()) == pytest.approx(3.35e9, rel=1e-2)
    for path in (min(published), "PaliGemma/llm/layers/mlp_1/linear", max(published)):
        others = {other: published[other] for other in published if other != path}
        with pytest.raises(UsageError, match=f"{path} is missing"):
            check_parameters(others, PI05_LIBERO, "x")


def test_parameters_that_differ_are_named_first_three_of_a_kind(tmp_path, original):
    tree = flat(original)
    del tree["time_mlp_in/bias"]
    tree["a"] = tree["b"] = tree["c"] = tree["d"] = np.zeros(3, np.float32)
    tree["action_in_proj/bias"] = np.zeros(7, np.float32)
    save_orbax(tmp_path / "params", params.nested(tree))
    with pytest.raises(UsageError) as caught:
        load(tmp_path, SMALL)
    message = str(caught.value)
    assert f"{tmp_path} does not hold the parameters of 'small-for-tests'" in message
    assert "time_mlp_in/bias is missing" in message
    assert "a, b, c and 1 more are not known" in message
    assert "action_in_proj/bias [7] instead of [32] is of another shape" in message
    assert "nearest known configuration is 'small'" in message
    save_safetensors(tmp_path / "tiny.safetensors", params.random_params(TINY, 0))
    with pytest.raises(UsageError, match=r"It holds those of 'tiny'"):
        load(tmp_path / "tiny.safetensors", SMALL)
    tree = flat(original) | {"action_in_proj/bias": np.zeros(32, np.int8)}
    save_safetensors(tmp_path / "int8.safetensors", params.nested(tree))
    with pytest.raises(
        UsageError, match=r"stores action_in_proj/bias as I8, not as one of .*; give the checkp"
    ):
        load(tmp_path / "int8.safetensors", SMALL)


def write_shards(folder, tree, *, index=True):
    """Two files of one checkpoint, as Hugging Face's libraries write them; returns where each tensor is."""
    arrays = flat(tree)
    names = sorted(arrays)
    where = {name: f"model-0000{1 + (at % 2)}-of-00002.safetensors" for at, name in enumerate(names)}
    for file in set(where.values()):
        formats.write_safetensors(folder / file, {n: arrays[n] for n in names if where[n] == file})
    if index:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return where


def test_a_checkpoint_in_several_files_or_below_a_common_name_loads_alike(tmp_path, original):
    write_shards(tmp_path, original)
    assert_equal(load(tmp_path, SMALL), original, "float32")
    below = {f"model.{path}": array for path, array in flat(original).items()}
    formats.write_safetensors(tmp_path / "below.safetensors", below)
    assert_equal(load(tmp_path / "below.safetensors", SMALL), original, "float32")


FIRST, SECOND = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (lambda folder, index: (folder / SECOND).unlink(), f"names {SECOND}, which is not beside it"),
        (lambda folder, index: index.update({"x": FIRST}), f"{FIRST} lacks x, which"),
        (lambda folder, index: index.pop("time_mlp_in/bias"), "holds time_mlp_in/bias, which by .* does not"),
        (
            lambda folder, index: shutil.copy(folder / SECOND, folder / FIRST),
            f"{FIRST} holds .*, which by model.safetensors.index.json is in {SECOND}",
        ),
        (lambda folder, index: index.update({"x": "../x.safetensors"}), "names ../x.safetensors"),
        (lambda folder, index: index.update({"x": 1}), "has no `weight_map`"),
    ],
    ids=["a file is missing", "a tensor is missing", "one too many", "twice", "outside", "no map"],
)
def test_files_that_do_not_fit_their_index_are_refused(tmp_path, original, changed, why):
    index = write_shards(tmp_path, original)
    changed(tmp_path, index)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    with pytest.raises(UsageError, match=why):
        load(tmp_path, SMALL)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -np.nan])
@pytest.mark.parametrize("stored", ["float16", "float32", "float64", "bfloat16"])
def test_a_weight_that_is_no_finite_number_is_refused_by_name(tmp_path, original, stored, value):
    tree = {path: np.array(array) for path, array in flat(original).items()}
    biases = np.finfo(np.float32).max * np.ones(32)  # the largest that float32 and bfloat16 hold
    tree["time_mlp_in/bias"] = biases.astype(np.float32)
    save_safetensors(tmp_path / "model.safetensors", params.nested(tree))
    load(tmp_path, SMALL, dtype="float32")
    broken = tree["time_mlp_out/bias"].astype(jnp.dtype(stored))
    broken[-1] = value
    formats.write_safetensors(tmp_path / "model.safetensors", tree | {"time_mlp_out/bias": broken})
    with pytest.raises(UsageError, match="holds NaN or infinity in time_mlp_out/bias, or numbers beyond flo"):
        load(tmp_path, SMALL, dtype="float32")


LORA = "PaliGemma/llm/layers/attn/q_einsum/lora_a"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (LORA, f"weights of LoRA that are not merged .{LORA}., .*serve the policy with openpi"),
        ("base_model.model.q_proj.lora_A.default.weight", "weights of LoRA by PyTorch .*merge_and_unload"),
        ("paligemma_with_expert.lm_head.weight", "weights of PyTorch.*examples/serve_lerobot.py.*params/"),
    ],
)
def test_names_of_tensors_show_a_form_that_is_not_read(tmp_path, original, name, why):
    tree = flat(original) | {name: np.zeros((2, 2), np.float32)}
    formats.write_safetensors(tmp_path / "model.safetensors", tree)
    with pytest.raises(UsageError, match=why):
        load(tmp_path, SMALL)


@pytest.mark.parametrize(
    ("files", "given", "why"),
    [
        (["2000/params/_METADATA", "4000/model.safetensors", "x"], "", "newest that is complete: .*/4000"),
        (["2000/params/_METADATA", "4000.orbax-checkpoint-tmp-0/params/d"], "", "that is complete: .*/2000"),
        (
            ["2000/params/_METADATA", "4000.orbax-checkpoint-tmp-0/params/_METADATA"],
            "4000.orbax-checkpoint-tmp-0/params",
            r"tmp-0 is unfinished.*newest that is complete: .*/2000",
        ),
        (["4000.orbax-checkpoint-tmp-0/params/d"], "", "holds only 4000.orbax-.*, which is unfinished"),
        (["params/manifest.ocdbt"], "", r"params lacks _METADATA, so it is incomplete"),
        (["manifest.ocdbt"], "", r"lacks _METADATA, so it is incomplete"),
        (["pytorch_model.bin"], "", r"holds pytorch_model.bin, weights of PyTorch.*serve_lerobot"),
        (["policy.pth"], "policy.pth", r"policy.pth is weights of PyTorch.*serve_lerobot"),
        (["a.safetensors", "b.safetensors"], "", r"2 files that end in .safetensors, and no model.safete"),
        (["mine.safetensors"], "", r"no model.safetensors; give its file, .*mine.safetensors"),
        (["adapter_model.safetensors"], "", r"adapter_model.safetensors, an adapter alone; merge it"),
        (["m.safetensors.index.json"], "m.safetensors.index.json", r"index of a checkpoint; give its folder"),
        (["pi05.zip"], "pi05.zip", r"is a file, but not one that ends in .safetensors. A checkpoint is"),
        (["model.safetensors"], "", r"model.safetensors is empty"),
    ],
)
def test_what_is_there_instead_of_a_checkpoint_is_told_with_the_remedy(tmp_path, files, given, why):
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    with pytest.raises(UsageError, match=why):
        load(tmp_path / given, SMALL)


def test_other_files_in_place_of_safetensors_are_called_by_their_kind(tmp_path, monkeypatch):
    for content, why in (
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n", "run `git lfs pull` in"),
        (b"PK\x03\x04 a zip", "not a safetensors file, but PyTorch's or an archive"),
    ):
        (tmp_path / "model.safetensors").write_bytes(content)
        with pytest.raises(UsageError, match=why):
            load(tmp_path, SMALL)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="hf download lerobot/pi05_base --local-dir FOLDER"):
        load("lerobot/pi05_base", SMALL)


def test_a_folder_that_may_not_be_read_says_so(tmp_path, monkeypatch):
    def denied(folder):
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", denied)  # the superuser may read everything
    with pytest.raises(UsageError, match=f"^{tmp_path} cannot be read: Permission denied$"):
        load(tmp_path, SMALL)


def test_a_missing_checkpoint_names_its_neighbours(tmp_path):
    (tmp_path / "pi05_libero").mkdir()
    (tmp_path / "pi05_libero" / "notes.txt").touch()
    with pytest.raises(UsageError, match=r"no checkpoint at .*pi05_librero; .* holds pi05_libero"):
        load(tmp_path / "pi05_librero", SMALL)
    with pytest.raises(UsageError, match=r"is not a checkpoint: it holds notes.txt\. A checkpoint is"):
        load(tmp_path / "pi05_libero", SMALL)


def refusal(source):
    """Why a checkpoint is refused; None if it loads."""
    try:
        load(source, SMALL)
    except UsageError as error:
        return str(error)
    return None


@pytest.mark.parametrize("saved", ["safetensors"], indirect=True)
@given(data=st.data())
@settings(max_examples=40)
def test_safetensors_cut_anywhere_or_other_bytes(saved, data):
    whole = (saved / "model.safetensors").read_bytes()
    cut = st.integers(0, len(whole) - 1).map(lambda end: whole[:end])
    content = data.draw(cut | st.binary(max_size=200))
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "model.safetensors").write_bytes(content)
        assert refusal(scratch)


NOT_NEEDED = ("_CHECKPOINT_METADATA", "commit_success.txt", "ocdbt.process_0/manifest.ocdbt", "_sharding")


@pytest.mark.parametrize("saved", ["orbax"], indirect=True)
@given(data=st.data())
@settings(max_examples=60)
def test_orbax_with_a_file_cut_lost_or_changed_is_refused_or_keeps_its_shapes(saved, data):
    files = {str(path.relative_to(saved)): path for path in saved.rglob("*") if path.is_file()}
    largest = max(files, key=lambda name: files[name].stat().st_size)
    damage = data.draw(st.sampled_from(["cut", "lost", "changed"]))
    needed = {
        "cut": [name for name in files if not name.endswith(NOT_NEEDED)],
        "lost": ["params/_METADATA", "params/manifest.ocdbt", largest],
        "changed": list(files),
    }
    name = data.draw(st.sampled_from(sorted(needed[damage])))
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(saved, scratch, dirs_exist_ok=True)
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


def test_orbax_metadata_of_another_form(tmp_path):
    for document in ("", "[]", "{}", '{"tree_metadata": [1]}', '{"tree_metadata": {"a": {}}}'):
        (tmp_path / "_METADATA").write_text(document)
        assert "cannot be read at _METADATA" in refusal(tmp_path)
