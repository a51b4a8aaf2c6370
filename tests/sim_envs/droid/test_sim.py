"""The station moves as DROID's does, in both ways to command it, and the same way every time."""

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from configs.droid import CONTROL_HZ, DAMPING, MAX_STEP, STIFFNESS
from sim_envs.droid.control import (
    ARM_JOINTS,
    FRICTION,
    GRIPPER_SPEED,
    MAX_VELOCITY,
    Control,
    arm_target,
    gripper_target,
)
from sim_envs.droid.station import PHYSICS_STEPS, RESET_JOINTS


def test_the_model_has_the_gains_that_the_expert_reckons_with(begin_droid):
    model = begin_droid().station.model
    for number, joint in enumerate(ARM_JOINTS):
        _, stiffness, damping = -model.actuator(joint).biasprm[:3]
        assert (stiffness, damping) == (STIFFNESS[number], DAMPING[number])
        assert model.joint(joint).frictionloss == FRICTION[number]
    assert model.opt.timestep * PHYSICS_STEPS == pytest.approx(1 / CONTROL_HZ)


@pytest.mark.parametrize("joint", range(7))
@pytest.mark.parametrize("command", [0.3, 1.0])
def test_a_velocity_moves_its_joint_that_way_and_below_its_limit(begin_droid, joint, command):
    sim = begin_droid()
    action = np.zeros(8)
    action[joint] = command
    before = sim.policy_state()[:7]
    sim.advance(np.tile(action, (8, 1)))
    middle = sim.policy_state()[:7]
    sim.advance(action[None])
    last = sim.policy_state()[:7]
    speed = (last - middle) * CONTROL_HZ
    assert 0.3 * command < speed[joint] < min(MAX_VELOCITY[joint], 3.0 * command)
    moved = np.abs(middle - before)
    assert np.delete(moved, joint).max() < 0.45 * moved[joint]  # inertia couples soft joints


def test_joint_positions_are_reached_and_kept(begin_droid):
    sim = begin_droid(control=Control.JOINT_POSITION)
    target = RESET_JOINTS + np.array([0.3, 0.2, -0.2, 0.3, 0.2, -0.3, 0.4])
    sim.advance(np.tile([*target, 0], (30, 1)))
    np.testing.assert_allclose(sim.policy_state()[:7], target, atol=0.01)
    sim.advance(np.tile([*target, 0], (30, 1)))
    np.testing.assert_allclose(sim.policy_state()[:7], target, atol=0.01)


def test_the_gripper_closes_and_opens_at_five_centimetres_a_second(begin_droid):
    sim = begin_droid()
    positions = []
    for command in [1.0] * 35 + [0.0] * 35:
        sim.advance(np.array([[0] * 7 + [command]]))
        positions.append(sim.policy_state()[7])
    assert positions[34] > 0.99
    assert positions[-1] < 0.01
    steps = np.diff(positions[4:20]) * CONTROL_HZ
    np.testing.assert_allclose(steps, 0.05 / 0.085, rtol=0.05)


def test_a_dropped_cube_in_the_bowl_is_success_only_with_an_open_gripper(begin_droid):
    sim = begin_droid()
    bowl = sim.station.pose("bowl")
    sim.rubric.reached = [True, True, False]
    sim.station.data.joint("cube").qpos[:3] = bowl.position + np.array([0, 0, 0.01])
    close, wait = np.array([[0] * 7 + [1.0]]), np.zeros((1, 8))
    where = sim.station.data.joint("cube").qpos.copy()
    sim.station.data.joint("cube").qpos[:3] = [0.5, -0.3, 0]
    sim.advance(np.tile(close, (10, 1)))
    sim.station.data.joint("cube").qpos[:] = where
    assert not sim.advance(np.tile(close, (5, 1))).success
    assert sim.advance(np.tile(wait, (20, 1))).success
    assert sim.progress() == 1.0


@pytest.mark.parametrize(
    ("task", "name", "turned", "height"),
    [("can_on_plate", "can", (1, 0, 1, 0), 0.031), ("foods_in_bowl", "tomato", (0, 1, 0, 0), 0.056)],
)
def test_turning_an_object_does_not_lift_it(begin_droid, task, name, turned, height):
    sim = begin_droid(task)
    (lift,) = [each for each in sim.task.rubric if each.kind == "lift" and each.object == name]
    joint = sim.station.data.joint(name)
    for above, lifted in ((0.0, False), (lift.by + 0.005, True)):
        joint.qpos[2:] = [height + above, *turned]
        mujoco.mj_kinematics(sim.station.model, sim.station.data)
        assert sim.rubric.holds(lift) == lifted


@pytest.mark.parametrize(
    ("task", "name", "radius"), [("foods_in_bowl", "tomato", 0.028), ("can_on_plate", "can", None)]
)
@pytest.mark.parametrize("rolled", [0, 20, 70])
def test_what_has_rolled_lies_on_the_table_and_a_ball_has_the_same_bounds(
    begin_droid, task, name, radius, rolled
):
    sim = begin_droid(task)
    is_ball, half = radius is not None, np.radians(rolled) / 2
    radius = sim.task.objects[name].shape.radius
    about_x = np.array([np.sqrt(0.5), np.sqrt(0.5), 0, 0])  # onto its side, then about its own axis
    turn, rotation = np.empty(4), np.empty(9)
    mujoco.mju_mulQuat(turn, about_x, np.array([np.cos(half), 0, 0, np.sin(half)]))
    mujoco.mju_quat2Mat(rotation, turn)
    below = radius * rotation.reshape(3, 3)[:, 2] if is_ball else np.zeros(3)
    sim.station.data.joint(name).qpos[:] = [*(np.array([0.4, 0, radius]) - below), *turn]
    mujoco.mj_kinematics(sim.station.model, sim.station.data)
    pose = sim.station.pose(name)
    np.testing.assert_allclose([pose.low[2], pose.high[2]], [0, 2 * radius], atol=1e-9)
    if is_ball:
        np.testing.assert_allclose(pose.high - pose.low, 2 * radius)


def test_pictures_and_states_are_the_same_bytes_every_time(begin_droid):
    def played():
        sim = begin_droid("can_in_mug")
        sim.advance(np.random.default_rng(3).uniform(-1, 1, (20, 8)))
        seen = sim.observe()
        images = [image.tobytes() for image in seen.images.values()]
        return [seen.state.tobytes(), sim.station.data.qpos.tobytes(), *images]

    assert played() == played()


JOINTS = arrays.arrays(np.float64, 7, elements=st.floats(-3, 3))


@given(command=JOINTS, measured=JOINTS)
def test_no_target_asks_for_more_than_the_greatest_velocity_and_velocities_are_scaled_together(
    command, measured
):
    for control in Control:
        lead = arm_target(control, command, measured) - measured
        assert (np.abs(STIFFNESS * lead) <= np.array(DAMPING) * MAX_VELOCITY + 1e-9).all()
    lead = arm_target(Control.JOINT_VELOCITY, command, measured) - measured
    scale = max(1.0, np.abs(command).max())
    np.testing.assert_allclose(lead, MAX_STEP * command / scale, atol=1e-12)  # 0.2 rad is below every limit


@pytest.mark.parametrize(("command", "closes"), [(0.0, False), (0.5, False), (0.51, True), (1.0, True)])
def test_the_gripper_closes_above_a_half_at_its_own_speed_and_does_not_wind_up(command, closes):
    target = gripper_target(command, 0.5, 0.5)
    assert abs(target - 0.5) == pytest.approx(GRIPPER_SPEED / CONTROL_HZ)
    assert (target > 0.5) == closes
    for _ in range(60):  # blocked
        target = gripper_target(command, target, 0.5)
    assert target == pytest.approx(0.6 if closes else 0.4)
    assert (gripper_target(1.0 - command, target, 0.5) < target) == closes or command == 0.5
