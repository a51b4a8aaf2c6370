"""A recipe checks itself: what cannot be followed is refused when it is written down."""

import dataclasses

import pytest

from configs.errors import UsageError
from tests.oxygen.training.conftest import RECIPE


@pytest.mark.parametrize(
    ("field", "number", "said"),
    [
        ("steps", 0, "steps is 0; at least 1"),
        ("batch", 0, "batch is 0; at least 1"),
        ("draws", 0, "draws is 0; at least 1"),
        ("seed", -1, "seed is -1; at least 0"),
        ("text_rows", 9, "text_rows is 9; give 1 to the batch's 8"),
        ("ema", 1.0, "ema is 1.0"),
        ("learning_rate", float("nan"), "learning_rate is nan"),
        ("image_shift", 1.0, "image_shift is 1.0"),
    ],
)
def test_a_number_that_cannot_be_is_refused(field, number, said):
    with pytest.raises(UsageError, match=said):
        dataclasses.replace(RECIPE, **{field: number})
