"""The shapes of arguments and fields are checked in the first calls of every function."""

from collections import Counter

import numpy as np
import pytest
from jaxtyping import TypeCheckError

from sim_envs.scripted.poses import Pose, turn
from tests import shape_checks


@pytest.mark.parametrize(
    "call",
    [lambda: turn(np.zeros(2)), lambda: Pose(position=np.zeros(2), rotation=np.eye(3))],
    ids=["a function", "a dataclass"],
)
def test_a_wrong_shape_is_refused_in_the_first_calls(call, monkeypatch):
    monkeypatch.setattr(shape_checks, "_checked", Counter())
    for _ in range(shape_checks.most if shape_checks.most < 100 else 1):
        with pytest.raises(TypeCheckError):
            call()
