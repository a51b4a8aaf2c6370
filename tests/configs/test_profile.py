"""Latency profiles: what is no time is refused, and so is a number without a source."""

import math

import pytest

from configs.errors import UsageError
from configs.load import check, load
from configs.profile import ProfileConfig

_TIME = {"ms": 1.0, "kind": "measured", "source": "a test"}
_PARALLEL = {"action": 1.5, "decode": 2.0, "kind": "measured", "source": "a test"}
PROFILE = {
    "name": "mine",
    "device": "an abacus",
    "dtype": "float32",
    "model": "tiny",
    "source": "a test",
    "host": _TIME,
    "prefill": _TIME,
    "denoise": _TIME,
    "fork": _TIME,
    "decode": {1: _TIME},
}


def _refused(content) -> str:
    with pytest.raises(UsageError) as caught:
        check(ProfileConfig, content, source="a test")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf, "soon", None])
@pytest.mark.parametrize("stage", ["host", "prefill", "denoise", "fork", "text_prefill"])
def test_a_stage_takes_a_finite_time(stage, wrong):
    assert f"{stage}.ms is" in _refused(PROFILE | {stage: _TIME | {"ms": wrong}})


@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf])
def test_so_do_decode_steps_and_the_jitter(wrong):
    assert "decode.1.ms" in _refused(PROFILE | {"decode": {1: _TIME | {"ms": wrong}}})
    assert "jitter" in _refused(PROFILE | {"jitter": wrong})


@pytest.mark.parametrize("wrong", [0.9, -1, math.nan, math.inf])
@pytest.mark.parametrize("what", ["action", "decode"])
def test_nothing_is_faster_beside_another_process(what, wrong):
    assert f"parallel.{what}" in _refused(PROFILE | {"parallel": _PARALLEL | {what: wrong}})


@pytest.mark.parametrize("wrong", [{}, {0: _TIME}, {"many": _TIME}])
def test_decode_steps_are_by_the_size_of_a_batch_and_at_least_one(wrong):
    assert "decode" in _refused(PROFILE | {"decode": wrong})


def test_stacking_takes_a_finite_time_by_the_size_of_a_batch():
    assert "stack.1.ms" in _refused(PROFILE | {"stack": {1: _TIME | {"ms": -1}}})
    assert "stack" in _refused(PROFILE | {"stack": {0: _TIME}})


def test_every_number_says_where_it_comes_from():
    assert "did you mean 'measured'" in _refused(PROFILE | {"host": _TIME | {"kind": "measure"}})
    assert "host.source" in _refused(PROFILE | {"host": _TIME | {"source": "two\nlines"}})
    assert "host.source" in _refused(PROFILE | {"host": {"ms": 1.0, "kind": "measured"}})


def test_a_misspelt_key_names_the_nearest():
    assert "did you mean 'denoise'" in _refused(PROFILE | {"denoising": _TIME})
    assert "did you mean 'ms'" in _refused(PROFILE | {"host": {**_TIME, "mss": 1}})


def test_an_unknown_profile_names_the_nearest():
    with pytest.raises(UsageError, match="unknown profile 'rtx409'; did you mean 'rtx4090'"):
        load(ProfileConfig, "rtx409")
