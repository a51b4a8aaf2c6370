"""The model computes what the reference computes, on weights that anybody can rebuild."""

import json

import numpy as np
import pytest

from configs.errors import UsageError
from oxygen.tools import fixtures, parity


@pytest.mark.golden
@pytest.mark.parametrize(
    "name",
    ["pi05_dummy_f32", "pi05_dummy_sharp_f32", pytest.param("pi05_dummy_bf16", marks=pytest.mark.slow)],
)
def test_the_reference_is_met(golden, name):
    checks = fixtures.compare(fixtures.load(golden / f"{name}.npz"))
    compared = {check.name for check in checks if check.tolerance is not None}
    assert compared >= {"prefix_tokens", "kv_k", "kv_v", "actions_1", "logits"}
    assert not [check for check in checks if not check.passed]


@pytest.mark.golden
@pytest.mark.slow
@pytest.mark.parametrize("name", ["f32", "alpha_f32", "bf16"])
def test_the_reference_is_met_with_an_adapter_and_both_masks(golden, name):
    checks = fixtures.compare(fixtures.load(golden / f"pi05_dummy_suffix_lora_{name}.npz"))
    compared = {check.name for check in checks if check.tolerance is not None}
    assert compared >= {"lora_logits", "lora_kv_k", "lora_kv_v", "oxy_lora_logits", "lora_actions"}
    assert ("cast_oxy_lora_logits" in compared) == (name == "bf16")
    assert ("stale_k" in compared) == (name != "alpha_f32")
    assert not [check for check in checks if not check.passed]


@pytest.mark.golden
def test_a_model_that_differs_is_told_apart(golden, tmp_path, capsys):
    with np.load(golden / "pi05_dummy_f32.npz") as file:
        arrays = dict(file)
    meta = json.loads(str(arrays["meta"]))
    changed = tmp_path / "changed.npz"
    np.savez(changed, **{**arrays, "meta": json.dumps({**meta, "gain": 1.001})})
    assert parity.main([str(changed)]) == 1
    assert "FAIL" in capsys.readouterr().out


def test_nan_passes_no_tolerance():
    assert not fixtures.Check(name="a", error=float("nan"), tolerance=1.0).passed
    assert fixtures.Check(name="a", error=2.0, tolerance=None).passed


def test_a_file_that_is_no_fixture_is_one_line(tmp_path, capsys):
    other = tmp_path / "other.npz"
    np.savez(other, a=np.zeros(1))
    with pytest.raises(UsageError, match="no π0"):
        fixtures.load(other)
    assert parity.main([str(tmp_path / "absent.npz")]) == 2
    assert parity.main([]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_arrays_that_do_not_fit_the_meta_are_one_line(golden, tmp_path, capsys):
    arrays = dict(np.load(golden / "pi05_dummy_f32.npz"))
    meta = json.loads(str(arrays["meta"]))
    changed = tmp_path / "changed.npz"
    np.savez(changed, **{**arrays, "meta": json.dumps({**meta, "siglip": "mu/16"})})
    assert parity.main([str(changed)]) == 2
    said = capsys.readouterr().err
    assert "do not fit its meta" in said
    assert said.count("\n") == 1
