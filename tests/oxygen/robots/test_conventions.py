"""The robots that published policies were trained on, and that they are not to be confused."""

import itertools

import pytest

from configs.errors import UsageError
from configs.interface import compare
from oxygen.model.config import PI05_LIBERO
from oxygen.robots import conventions as specs

ROBOTS = (specs.LIBERO, specs.DROID)


@pytest.mark.parametrize(
    ("robot", "state", "action", "hz"), [(specs.LIBERO, 8, 7, 20.0), (specs.DROID, 8, 8, 15.0)]
)
def test_sizes_and_rates_are_the_published_ones(robot, state, action, hz):
    assert (robot.observation.state_size, robot.action.size, robot.action.control_hz) == (state, action, hz)


def test_no_policy_acts_on_another_robot():
    for policy, env in itertools.product(ROBOTS, ROBOTS):
        if policy is env:
            compare(policy, env)
        else:
            with pytest.raises(UsageError, match=f"{policy.name}.*{env.name}"):
                compare(policy, env)


def test_the_model_for_libero_looks_through_liberos_cameras():
    assert PI05_LIBERO.cameras == specs.LIBERO.observation.camera_names
