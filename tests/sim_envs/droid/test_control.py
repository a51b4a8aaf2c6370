"""From actions to motor targets: limits, the two ways to command the arm, the gripper's speed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from configs.droid import CONTROL_HZ, DAMPING, MAX_STEP, STIFFNESS
from sim_envs.droid.control import GRIPPER_SPEED, MAX_VELOCITY, Control, arm_target, gripper_target

JOINTS = arrays.arrays(np.float64, 7, elements=st.floats(-3, 3))


@given(command=JOINTS, measured=JOINTS)
def test_no_target_asks_for_more_than_the_greatest_velocity(command, measured):
    for control in Control:
        pull = STIFFNESS * (arm_target(control, command, measured) - measured)
        assert (np.abs(pull) <= np.array(DAMPING) * MAX_VELOCITY + 1e-9).all()


@given(command=JOINTS, measured=JOINTS)
def test_velocities_lead_from_where_the_joints_are_and_are_scaled_together(command, measured):
    lead = arm_target(Control.JOINT_VELOCITY, command, measured) - measured
    assert np.abs(lead).max() <= MAX_STEP + 1e-12
    # In one direction, but for joints at their greatest velocity (none: 0.2 rad is below every such lead).
    scale = max(1.0, np.abs(command).max())
    np.testing.assert_allclose(lead, MAX_STEP * command / scale, atol=1e-12)


@pytest.mark.parametrize(("command", "goal"), [(0.0, 0.0), (0.5, 0.0), (0.51, 1.0), (1.0, 1.0)])
def test_the_gripper_closes_above_a_half_at_its_own_speed(command, goal):
    target = gripper_target(command, 0.5, 0.5)
    assert abs(target - 0.5) == pytest.approx(GRIPPER_SPEED / CONTROL_HZ)
    assert (target > 0.5) == (goal > 0.5)


def test_a_gripper_that_is_blocked_does_not_wind_up():
    target = 0.4
    for _ in range(60):
        target = gripper_target(1.0, target, 0.4)
    assert target == pytest.approx(0.5)
    assert gripper_target(0.0, target, 0.4) < target
