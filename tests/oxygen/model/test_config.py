"""Configurations check themselves and say what would be right."""

import dataclasses

import pytest

from configs.errors import UsageError
from oxygen.model.config import PI05_LIBERO, TINY


@pytest.mark.parametrize(("length", "bucket"), [(1, 32), (32, 32), (33, 64), (129, 200), (200, 200)])
def test_a_prompt_goes_into_the_smallest_bucket(length, bucket):
    assert PI05_LIBERO.bucket(length) == bucket


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        (TINY, {"dtype": "float16"}, "unknown dtype 'float16'"),
        (TINY, {"expert": dataclasses.replace(TINY.expert, depth=5)}, "depth is 4 in the trunk and 5"),
        (TINY, {"image_size": 113}, "113 is not a multiple of patch 16"),
        (TINY, {"noise_scale": 1.5}, "noise scale is 1.5; give 0 to 1"),
        (TINY.trunk, {"num_kv_heads": 3}, "4 query heads cannot be shared among 3"),
        (TINY.siglip, {"width": 130}, "130 is not a multiple of its 4 heads"),
        (TINY.siglip, {"patch": 14, "stem": (8, 24)}, "give a multiple of 4"),
    ],
)
def test_configurations_that_cannot_be_are_refused(part, changes, message):
    with pytest.raises(UsageError, match=message):
        dataclasses.replace(part, **changes)
