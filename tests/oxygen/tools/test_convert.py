"""The converter writes what loads to the same bits, and refuses in one line with exit code 2."""

import json
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
import yaml

from oxygen.model import params
from oxygen.model.config import TINY
from oxygen.robots.norms import FILE_NAME
from oxygen.tools.convert import _likely_model, main
from oxygen.weights.formats import open_checkpoint
from oxygen.weights.loading import load
from oxygen.weights.source import CARD, RECORD, TOKENIZER
from tests.oxygen.conftest import SMALL, flat
from tests.oxygen.weights.test_weights import assert_equal, save_orbax, save_safetensors


@pytest.fixture(scope="module")
def original():
    return params.random_params(TINY, 1)


@pytest.fixture(scope="module")
def published(original, tmp_path_factory):
    folder = tmp_path_factory.mktemp("published") / "pi05_tiny"
    save_orbax(folder / "params", original)
    (folder / "assets/libero").mkdir(parents=True)
    (folder / "assets/libero/norm_stats.json").write_text('{"norm_stats": {}}')
    return folder


def write_card(folder, **changes):
    card = {"name": "mine", "kind": "oxygen", "description": "d", "model": "tiny", "weights": "."}
    (folder / CARD).write_text(yaml.safe_dump({**card, "embodiment": "libero_compact", **changes}))


def test_a_published_checkpoint_becomes_a_folder_that_loads_alike(published, original, tmp_path, capsys):
    (tmp_path / "ours.partial").mkdir()  # left by an interrupted conversion
    (tmp_path / "ours.partial" / "model.safetensors").write_bytes(b"half")
    assert main([str(published), str(tmp_path / "ours")]) == 0
    said, no_policy = capsys.readouterr().out.splitlines()
    assert said == f"{tmp_path}/ours/model.safetensors: 9.7 MB"
    assert no_policy.startswith("No policy.yaml: give --model")
    assert_equal(load(tmp_path / "ours", TINY), original, "float32")
    description = json.loads((tmp_path / "ours/config.json").read_text())
    assert description["fits"] == ["tiny", "tiny_memory", "tiny_droid"]
    assert description["source"] == str(published)
    assert description["sizes"]["trunk"]["width"] == TINY.trunk.width
    assert (tmp_path / "ours/assets/libero/norm_stats.json").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def test_a_tokenizer_or_statistics_that_do_not_exist_are_refused(published, tmp_path, refused):
    assert "nowhere" in refused(main, published, tmp_path / "ours", "--tokenizer", tmp_path / "nowhere")
    for named in ("tokenizer", "norm_stats"):
        source = tmp_path / named
        shutil.copytree(published, source)
        write_card(source, **{"tokenizer": "bundled://tiny", named: "nowhere"})
        assert f"names the {named}" in refused(main, source, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_a_single_file_is_bfloat16_or_keeps_its_types(published, original, tmp_path):
    target = tmp_path / "tiny.safetensors"
    assert main([str(published), str(target), "--dtype", "bfloat16"]) == 0
    assert {tensor.dtype for tensor in open_checkpoint(target).tensors.values()} == {"bfloat16"}
    assert_equal(load(target, TINY, dtype="bfloat16"), original, "bfloat16")
    tree = flat(original)
    tree["action_in_proj/bias"] = tree["action_in_proj/bias"].astype(jnp.bfloat16)
    tree["time_mlp_in/bias"] = tree["time_mlp_in/bias"].astype(np.float64)
    save_safetensors(tmp_path / "mixed.safetensors", params.nested(tree))
    assert main([str(tmp_path / "mixed.safetensors"), str(tmp_path / "again.safetensors")]) == 0
    again = open_checkpoint(tmp_path / "again.safetensors")
    for path, array in tree.items():
        assert again.tensors[path].dtype == array.dtype.name


def test_bad_arguments(published, tmp_path, refused):
    target = tmp_path / "x"
    for said, *arguments in (
        ("exists already", published, tmp_path),
        ("did you mean 'bfloat16'", published, target, "--dtype", "bf16"),
        ("See --help", published),
        ("no checkpoint at", tmp_path / "absent", target),
        ("unknown model 'small'", published, target, "--model", "small"),
        ("unknown kind of URL 'gsx'", "gsx://bucket/x", target),
        ("unknown embodiment 'libro'", published, target, "--embodiment", "libro"),
    ):
        assert said in refused(main, *arguments)
    assert not list(tmp_path.iterdir())
    save_safetensors(tmp_path / "small.safetensors", params.random_params(SMALL, 1))
    message = refused(main, tmp_path / "small.safetensors", target)
    assert "does not hold the parameters of 'small'" in message
    assert "nearest known configuration is 'small'" in message


def test_options_for_a_card_are_refused_where_none_is_written(published, tmp_path, refused):
    for option, value in (("--embodiment", "libero"), ("--tokenizer", "gs://bucket/pieces.model")):
        said = refused(main, published, tmp_path / "x.safetensors", option, value)
        assert f"{option} {value} is for {CARD}, which a single file lacks" in said
        write_card(published)
        said = refused(main, published, tmp_path / "x", option, value)
        (published / CARD).unlink()
        assert f"{option} {value} is for a new card, and {published / CARD} is copied" in said
    assert not list(tmp_path.iterdir())


def test_the_card_says_whose_parameters_and_which_norm_stats(published, tmp_path):
    """Statistics under a name of their own are those of whoever fine-tuned it."""
    named = ["--model", "tiny", "--tokenizer", "gs://bucket/pieces.model"]  # tiny_droid has the same sizes
    assert main([str(published), str(tmp_path / "my π0.5"), *named]) == 0
    assert yaml.safe_load((tmp_path / "my π0.5" / CARD).read_text(encoding="utf-8")) == {
        "name": "my--0.5",
        "kind": "oxygen",
        "description": "Converted, with the sizes of tiny.",
        "model": "tiny",
        "embodiment": "libero_compact",
        "weights": ".",
        "tokenizer": "gs://bucket/pieces.model",
        "language_tasks": {},
        "norm_stats": "assets/libero/norm_stats.json",
    }


@pytest.mark.parametrize(
    ("stats", "whose"),
    [("droid", "pi05_droid"), ("physical-intelligence/libero", "pi05_libero"), ("mine", None)],
)
def test_of_policies_of_equal_sizes_the_norm_stats_tell_which_it_is(stats, whose, tmp_path):
    file = tmp_path / "assets" / stats / FILE_NAME
    file.parent.mkdir(parents=True)
    file.touch()
    assert _likely_model(["pi05_libero", "pi05_droid", "pi05_base"], tmp_path) == whose


def test_what_training_says_of_a_checkpoint_goes_along(original, tmp_path):
    source = tmp_path / "step_0000007"
    source.mkdir()
    save_safetensors(source / "model.safetensors", original)
    for name in (TOKENIZER, RECORD):
        (source / name).write_text(f"its {name}")
    write_card(source, tokenizer=TOKENIZER)
    assert main([str(source), str(tmp_path / "half"), "--dtype", "bfloat16"]) == 0
    for name in (CARD, TOKENIZER, RECORD):
        assert (tmp_path / "half" / name).read_text() == (source / name).read_text()


def test_weights_of_lora_are_merged_as_openpi_applies_them(original, tmp_path, refused, capsys):
    """Its `lora.Einsum` sums over the heads between the two products; only attention's are scaled."""
    tree, draws = flat(original), np.random.default_rng(0)
    layers = "PaliGemma/llm/layers"
    adapted = {
        f"{layers}/attn/q_einsum/w": f"{layers}/attn/q_einsum/",
        f"{layers}/attn/attn_vec_einsum/w": f"{layers}/attn/attn_vec_einsum/",
        f"{layers}/mlp/linear": f"{layers}/mlp/linear_",
    }
    for weight, stem in adapted.items():
        *stack, rows, columns = tree[weight].shape
        tree[f"{stem}lora_a"] = draws.normal(size=(*stack, rows, 2)).astype(np.float32)
        tree[f"{stem}lora_b"] = draws.normal(size=(*stack, 2, columns)).astype(np.float32)
    save_safetensors(tmp_path / "lora.safetensors", params.nested(tree))
    arguments = [tmp_path / "lora.safetensors", tmp_path / "merged.safetensors"]
    assert "--merge-lora 1" in refused(main, *arguments)
    assert main([*map(str, arguments), "--merge-lora", "0.5"]) == 0
    capsys.readouterr()
    merged = flat(load(tmp_path / "merged.safetensors", TINY, dtype="float32"))
    for weight, scale, layer in zip(adapted, (0.5, 0.5, 1.0), (0, 1, 0), strict=True):
        stem = adapted[weight]
        a, b, change = tree[f"{stem}lora_a"], tree[f"{stem}lora_b"], merged[weight] - tree[weight]
        if "attn_vec" in weight:  # BTNH,NHD->BTD
            x = draws.normal(size=(3, *a.shape[1:3]))
            theirs = np.einsum("tl,nld->td", np.einsum("tnh,nhl->tl", x, a[layer]), b[layer])
            ours = np.einsum("tnh,nhd->td", x, change[layer])
        elif "q_einsum" in weight:  # BTD,NDH->BTNH
            x = draws.normal(size=(3, a.shape[2]))
            theirs = np.einsum("tnl,nlh->tnh", np.einsum("td,ndl->tnl", x, a[layer]), b[layer])
            ours = np.einsum("td,ndh->tnh", x, change[layer])
        else:
            x = draws.normal(size=(3, a.shape[1]))
            theirs, ours = x @ a[layer] @ b[layer], x @ change[layer]
        np.testing.assert_allclose(ours, scale * theirs, atol=1e-4)
    arguments = [tmp_path / "merged.safetensors", tmp_path / "again.safetensors", "--merge-lora", "1"]
    assert "has no lora_a to merge; leave out --merge-lora" in refused(main, *arguments)


def test_nothing_is_written_of_a_checkpoint_with_weights_that_are_no_numbers(original, tmp_path, refused):
    tree = flat(original) | {"time_mlp_in/bias": np.full_like(flat(original)["time_mlp_in/bias"], np.nan)}
    save_safetensors(tmp_path / "model.safetensors", params.nested(tree))
    assert "holds NaN or infinity in time_mlp_in/bias" in refused(main, tmp_path, tmp_path / "ours")
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
