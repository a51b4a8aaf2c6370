"""The station moves as DROID's does, in both ways to command it, and the same way every time."""

import mujoco
import numpy as np
import pytest

from configs.droid import CONTROL_HZ, DAMPING, STIFFNESS
from sim_envs.droid.control import ARM_JOINTS, FRICTION, MAX_VELOCITY, Control
from sim_envs.droid.station import PHYSICS_STEPS, RESET_JOINTS


def test_an_episode_begins_at_droids_reset_joints_with_an_open_gripper(begin_droid):
    state = begin_droid().policy_state()
    np.testing.assert_allclose(state[:7], RESET_JOINTS, atol=1e-6)
    assert state[7] == pytest.approx(0, abs=1e-6)
    np.testing.assert_allclose(RESET_JOINTS, np.pi * np.array([0, -0.2, 0, -0.8, 0, 0.6, 0]))


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
    sim.rubric._reached = [True, True, False]
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


def test_a_ball_that_has_rolled_has_the_same_bounds(begin_droid):
    sim = begin_droid("foods_in_bowl")
    joint, before = sim.station.data.joint("tomato"), sim.station.pose("tomato")
    turn = np.array([1.0, 0.3, -0.5, 0.2])
    turn /= np.linalg.norm(turn)
    rotation = np.empty(9)
    mujoco.mju_quat2Mat(rotation, turn)
    joint.qpos[:] = [*(before.middle - 0.028 * rotation.reshape(3, 3)[:, 2]), *turn]
    mujoco.mj_kinematics(sim.station.model, sim.station.data)
    after = sim.station.pose("tomato")
    np.testing.assert_allclose([after.low, after.high], [before.middle - 0.028, before.middle + 0.028])


@pytest.mark.parametrize("rolled", [0, 20, 45, 70])
def test_a_can_that_has_rolled_lies_on_the_table(begin_droid, rolled):
    sim = begin_droid("can_on_plate")
    radius, half = sim.task.objects["can"].shape.radius, np.radians(rolled) / 2
    about_x = np.array([np.sqrt(0.5), np.sqrt(0.5), 0, 0])  # onto its side, then about its own axis
    turn = np.empty(4)
    mujoco.mju_mulQuat(turn, about_x, np.array([np.cos(half), 0, 0, np.sin(half)]))
    sim.station.data.joint("can").qpos[:] = [0.4, 0, radius, *turn]
    mujoco.mj_kinematics(sim.station.model, sim.station.data)
    can = sim.station.pose("can")
    np.testing.assert_allclose([can.low[2], can.high[2]], [0, 2 * radius], atol=1e-9)


def test_pictures_and_states_are_the_same_bytes_every_time(begin_droid):
    def played():
        sim = begin_droid("can_in_mug")
        sim.advance(np.random.default_rng(3).uniform(-1, 1, (20, 8)))
        seen = sim.observe()
        images = [image.tobytes() for image in seen.images.values()]
        return [seen.state.tobytes(), sim.station.data.qpos.tobytes(), *images]

    assert played() == played()
