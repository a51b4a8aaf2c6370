"""Latency profiles: times are finite, slowdowns at least 1, and every number has a source."""

import math

import pytest

from configs.errors import UsageError
from configs.load import check
from configs.profile import ProfileConfig

TIME = {"ms": 1.0, "kind": "measured", "source": "a test"}
PARALLEL = {"action": 1.5, "decode": 2.0, "kind": "measured", "source": "a test"}
STAGES = ("host", "prefill", "denoise", "fork")
PROFILE = {
    "name": "mine",
    "device": "an abacus",
    "dtype": "float32",
    "model": "tiny",
    "source": "a test",
    **dict.fromkeys(STAGES, TIME),
    "decode": {1: TIME},
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        *(({stage: TIME | {"ms": -1}}, f"{stage}.ms is") for stage in (*STAGES, "text_prefill")),
        *(({"host": TIME | {"ms": wrong}}, "host.ms is") for wrong in (math.nan, math.inf, "soon", None)),
        ({"decode": {}}, "decode"),
        ({"jitter": math.inf}, "jitter"),
        ({"parallel": PARALLEL | {"action": 0.9}}, "parallel.action"),
        ({"host": TIME | {"kind": "measure"}}, "did you mean 'measured'"),
        ({"host": {"ms": 1.0, "kind": "measured"}}, "host.source"),
        ({"denoising": TIME}, "did you mean 'denoise'"),
    ],
)
def test_a_wrong_number_is_refused_in_one_line(changes, said):
    check(ProfileConfig, PROFILE, source="a test")
    with pytest.raises(UsageError) as caught:
        check(ProfileConfig, PROFILE | changes, source="a test")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
