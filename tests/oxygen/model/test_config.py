"""Configurations check themselves and say what would be right."""

import dataclasses

import pytest

from configs.errors import UsageError
from oxygen.model import config
from oxygen.model.config import PI05_LIBERO, TINY


def test_presets_are_found_by_name():
    assert config.preset("tiny") is TINY
    with pytest.raises(UsageError, match="did you mean 'tiny'"):
        config.preset("tinny")


@pytest.mark.parametrize(("length", "bucket"), [(1, 32), (32, 32), (33, 64), (129, 200), (200, 200)])
def test_a_prompt_goes_into_the_smallest_bucket(length, bucket):
    assert PI05_LIBERO.bucket(length) == bucket


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "float16"}, "unknown dtype 'float16'"),
        ({"expert": dataclasses.replace(TINY.expert, depth=5)}, "depth is 4 in the trunk and 5"),
        ({"image_size": 113}, "113 is not a multiple of patch 16"),
        ({"noise_scale": 1.5}, "noise scale is 1.5; give 0 to 1"),
    ],
)
def test_configurations_that_cannot_be_are_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        dataclasses.replace(TINY, **changes)


def test_heads_and_stages_must_divide():
    with pytest.raises(UsageError, match="4 query heads cannot be shared among 3"):
        dataclasses.replace(TINY.trunk, num_kv_heads=3)
    with pytest.raises(UsageError, match="130 is not a multiple of its 4 heads"):
        dataclasses.replace(TINY.siglip, width=130)
    with pytest.raises(UsageError, match="give a multiple of 4"):
        dataclasses.replace(TINY.siglip, patch=14, stem=(8, 24))
