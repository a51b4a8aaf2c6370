"""The converter writes what loads to the same bits, and refuses in one line with exit code 2."""

import shutil

import jax.numpy as jnp
import numpy as np
import pytest
import yaml

from oxygen.model import params
from oxygen.model.config import TINY
from oxygen.tools.convert import main
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
    assert main([str(published), str(tmp_path / "ours"), "--model", "tiny"]) == 0
    said, play = capsys.readouterr().out.splitlines()
    assert said == f"{tmp_path}/ours/model.safetensors: 9.7 MB"
    assert play == f"The policy: oxygen-eval libero --policy {tmp_path}/ours"
    assert_equal(load(tmp_path / "ours", TINY), original, "float32")
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


def test_tensors_are_bfloat16_or_keep_their_types(original, tmp_path):
    tree = flat(original)
    tree["action_in_proj/bias"] = tree["action_in_proj/bias"].astype(jnp.bfloat16)
    tree["time_mlp_in/bias"] = tree["time_mlp_in/bias"].astype(np.float64)
    save_safetensors(tmp_path / "mixed.safetensors", params.nested(tree))
    arguments = [str(tmp_path / "mixed.safetensors"), str(tmp_path / "again"), "--model", "tiny"]
    assert main(arguments) == 0
    again = open_checkpoint(tmp_path / "again")
    for path, array in tree.items():
        assert again.tensors[path].dtype == array.dtype.name
    assert main([str(tmp_path / "again"), str(tmp_path / "half"), "--dtype", "bfloat16"]) == 0
    assert {tensor.dtype for tensor in open_checkpoint(tmp_path / "half").tensors.values()} == {"bfloat16"}
    assert_equal(load(tmp_path / "half", TINY, dtype="bfloat16"), original, "bfloat16")


def test_bad_arguments(published, tmp_path, refused):
    target = tmp_path / "x"
    for said, *arguments in (
        ("exists already", published, tmp_path),
        ("did you mean 'bfloat16'", published, target, "--dtype", "bf16"),
        ("See --help", published),
        ("no checkpoint at", tmp_path / "absent", target),
        ("unknown model 'small'", published, target, "--model", "small"),
        ("sizes of tiny, tiny_memory, tiny_droid; say with --model which it is", published, target),
        ("unknown kind of URL 'gsx'", "gsx://bucket/x", target),
        ("unknown embodiment 'libro'", published, target, "--embodiment", "libro"),
    ):
        assert said in refused(main, *arguments)
    assert not list(tmp_path.iterdir())
    save_safetensors(tmp_path / "small.safetensors", params.random_params(SMALL, 1))
    message = refused(main, tmp_path / "small.safetensors", target)
    assert "does not hold the parameters of 'small'" in message
    assert "nearest known configuration is 'small'" in message


def test_options_for_a_card_are_refused_where_one_is_copied(published, tmp_path, refused):
    write_card(published)
    for option, value in (("--embodiment", "libero"), ("--tokenizer", "gs://bucket/pieces.model")):
        said = refused(main, published, tmp_path / "x", option, value)
        assert f"{option} {value} is for a new card, and {published / CARD} is copied" in said
    (published / CARD).unlink()
    assert not list(tmp_path.iterdir())


def test_the_card_says_whose_parameters_and_which_norm_stats(published, tmp_path):
    """Statistics under a name of their own are those of whoever fine-tuned it."""
    named = ["--model", "tiny", "--tokenizer", "gs://bucket/pieces.model"]  # tiny_droid has the same sizes
    assert main([str(published), str(tmp_path / "my π0.5"), *named]) == 0
    assert yaml.safe_load((tmp_path / "my π0.5" / CARD).read_text(encoding="utf-8")) == {
        "name": "my--0.5",
        "kind": "oxygen",
        "description": f"Converted from {published}, with the sizes of tiny.",
        "model": "tiny",
        "embodiment": "libero_compact",
        "weights": ".",
        "tokenizer": "gs://bucket/pieces.model",
        "language_tasks": {},
        "norm_stats": "assets/libero/norm_stats.json",
    }


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


def test_nothing_is_written_of_a_checkpoint_with_weights_that_are_no_numbers(original, tmp_path, refused):
    tree = flat(original) | {"time_mlp_in/bias": np.full_like(flat(original)["time_mlp_in/bias"], np.nan)}
    save_safetensors(tmp_path / "model.safetensors", params.nested(tree))
    asked = (tmp_path, tmp_path / "ours", "--model", "tiny")
    assert "holds NaN or infinity in time_mlp_in/bias" in refused(main, *asked)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
