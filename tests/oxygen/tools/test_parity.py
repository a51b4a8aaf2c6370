"""The model computes what the reference computes, on weights that anybody can rebuild."""

import json

import numpy as np
import pytest

from configs.errors import UsageError
from oxygen.tools import parity

BASE = {"prefix_tokens", "kv_k", "kv_v", "actions_1", "logits"}
ADAPTED = {"lora_logits", "lora_kv_k", "lora_kv_v", "oxy_lora_logits", "lora_actions"}
OF_SOME = {"stale_k", "cast_oxy_lora_logits"}
SLOW = {"marks": pytest.mark.slow}


@pytest.mark.golden
@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        ("f32", BASE),
        ("sharp_f32", BASE),
        pytest.param("bf16", BASE, **SLOW),
        pytest.param("suffix_lora_f32", ADAPTED | {"stale_k"}, **SLOW),
        pytest.param("suffix_lora_alpha_f32", ADAPTED, **SLOW),
        pytest.param("suffix_lora_bf16", ADAPTED | {"stale_k", "cast_oxy_lora_logits"}, **SLOW),
    ],
)
def test_the_reference_is_met(golden, name, outputs):
    checks = parity.compare(parity.load(golden / f"pi05_dummy_{name}.npz"))
    compared = {check.name for check in checks if check.tolerance is not None}
    assert compared >= outputs
    assert compared & OF_SOME == outputs & OF_SOME
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
    assert not parity.Check(name="a", error=float("nan"), tolerance=1.0).passed
    assert parity.Check(name="a", error=2.0, tolerance=None).passed


def test_a_file_that_is_no_fixture_is_one_line(tmp_path, capsys):
    other = tmp_path / "other.npz"
    np.savez(other, a=np.zeros(1))
    with pytest.raises(UsageError, match="no π0"):
        parity.load(other)
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
