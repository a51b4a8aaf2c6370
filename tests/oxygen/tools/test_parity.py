"""The model computes what the reference computes, on weights that anybody can rebuild."""

import json

import numpy as np
import pytest

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
@pytest.mark.parametrize(
    ("change", "code", "said"),
    [({"gain": 1.001}, 1, "FAIL"), ({"siglip": "mu/16"}, 2, "do not fit its meta")],
)
def test_a_model_that_differs_is_told_apart(change, code, said, golden, tmp_path, command):
    with np.load(golden / "pi05_dummy_f32.npz") as file:
        arrays = dict(file)
    meta = json.loads(str(arrays["meta"]))
    changed = tmp_path / "changed.npz"
    np.savez(changed, **{**arrays, "meta": json.dumps({**meta, **change})})
    ended, out, err = command(parity.main, changed)
    assert ended == code
    assert said in out + err
    assert err.count("\n") <= 1


def test_nan_passes_no_tolerance():
    assert not parity.Check(name="a", error=float("nan"), tolerance=1.0).passed
    assert parity.Check(name="a", error=2.0, tolerance=None).passed


def test_a_file_that_is_no_fixture_is_one_line(tmp_path, refused):
    np.savez(tmp_path / "other.npz", a=np.zeros(1))
    for arguments in ([tmp_path / "other.npz"], [tmp_path / "absent.npz"], []):
        refused(parity.main, *arguments)
