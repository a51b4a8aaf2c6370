"""The station moves as DROID's does, and what moves by itself as its task says; what its expert does."""

import dataclasses
import math
from contextlib import closing

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from configs.droid import CONTROL_HZ, DAMPING, MAX_STEP, STIFFNESS
from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from sim_envs.droid import control
from sim_envs.droid.control import MAX_VELOCITY, Control, gripper_target
from sim_envs.droid.expert import DroidExpert, JointNoise
from sim_envs.droid.planning import carrier_motion
from sim_envs.droid.sim import DroidSim
from sim_envs.droid.station import PHYSICS_STEPS, RESET_JOINTS
from sim_envs.suite import open_suite
from tests.sim_envs.conftest import attempt

MOVING = ("take_from_conveyor", "place_on_turntable", "stop_ball")
STILL = np.zeros((1, 8))


def test_the_model_has_the_gains_that_the_expert_reckons_with(begin_droid):
    model = begin_droid().station.model
    for number, joint in enumerate(control.ARM_JOINTS):
        _, stiffness, damping = -model.actuator(joint).biasprm[:3]
        assert (stiffness, damping) == (STIFFNESS[number], DAMPING[number])
        assert model.joint(joint).frictionloss == control.FRICTION[number]
    assert model.opt.timestep * PHYSICS_STEPS == pytest.approx(1 / CONTROL_HZ)


@pytest.mark.parametrize("joint", range(7))
@pytest.mark.parametrize("command", [0.3, 1.0])
def test_a_velocity_moves_its_joint_that_way_and_below_its_limit(begin_droid, joint, command):
    sim, action = begin_droid(), command * np.eye(8)[joint]
    places = [sim.policy_state()[:7]]
    for steps in (8, 1):
        sim.advance(np.tile(action, (steps, 1)))
        places.append(sim.policy_state()[:7])
    before, middle, last = places
    speed = (last - middle) * CONTROL_HZ
    assert 0.3 * command < speed[joint] < min(MAX_VELOCITY[joint], 3.0 * command)
    moved = np.abs(middle - before)
    assert np.delete(moved, joint).max() < 0.45 * moved[joint]  # inertia couples soft joints


def test_joint_positions_are_reached_and_kept(begin_droid):
    sim = begin_droid(control=Control.JOINT_POSITION)
    target = RESET_JOINTS + np.array([0.3, 0.2, -0.2, 0.3, 0.2, -0.3, 0.4])
    for _ in range(2):
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
    cube, close = sim.station.data.joint("cube"), np.array([[0] * 7 + [1.0]])
    cube.qpos[:3] = [0.5, -0.3, 0]
    sim.advance(np.tile(close, (10, 1)))
    cube.qpos[:3] = bowl.position + np.array([0, 0, 0.01])
    assert not sim.advance(np.tile(close, (5, 1))).success
    assert sim.advance(np.tile(STILL, (20, 1))).success
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


@pytest.mark.parametrize(("task", "name"), [("foods_in_bowl", "tomato"), ("can_on_plate", "can")])
@pytest.mark.parametrize("rolled", [0, 20, 70])
def test_what_has_rolled_lies_on_the_table_and_a_ball_has_the_same_bounds(begin_droid, task, name, rolled):
    sim = begin_droid(task)
    is_ball, half = name == "tomato", np.radians(rolled) / 2
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


JOINTS = arrays.arrays(np.float64, 7, elements=st.floats(-3, 3))


@given(command=JOINTS, measured=JOINTS)
def test_no_target_asks_for_more_than_the_greatest_velocity_and_velocities_are_scaled_together(
    command, measured
):
    for mode in Control:
        lead = control.arm_target(mode, command, measured) - measured
        assert (np.abs(STIFFNESS * lead) <= np.array(DAMPING) * MAX_VELOCITY + 1e-9).all()
    lead = control.arm_target(Control.JOINT_VELOCITY, command, measured) - measured
    scale = max(1.0, np.abs(command).max())
    np.testing.assert_allclose(lead, MAX_STEP * command / scale, atol=1e-12)  # 0.2 rad is below every limit


@pytest.mark.parametrize(("command", "closes"), [(0.0, False), (0.5, False), (0.51, True), (1.0, True)])
def test_the_gripper_closes_above_a_half_at_its_own_speed_and_does_not_wind_up(command, closes):
    target = gripper_target(command, 0.5, 0.5)
    assert abs(target - 0.5) == pytest.approx(control.GRIPPER_SPEED / CONTROL_HZ)
    assert (target > 0.5) == closes
    for _ in range(60):  # blocked
        target = gripper_target(command, target, 0.5)
    assert target == pytest.approx(0.6 if closes else 0.4)
    assert (gripper_target(1.0 - command, target, 0.5) < target) == closes or command == 0.5


def played(sim, name, steps):
    """Where an object's middle is at every control step of holding still."""
    places = [sim.station.pose(name).middle]
    for _ in range(steps):
        sim.advance(STILL)
        places.append(sim.station.pose(name).middle)
    return np.array(places)


def test_what_rides_on_the_conveyor_keeps_its_speed_and_does_not_shake(begin_droid):
    sim = begin_droid("take_from_conveyor")
    speed = sim.task.objects["conveyor"].shape.speed
    foreseen = carrier_motion(sim.station, "block").after(sim.station.pose("block").middle, 2.0)
    places = played(sim, "block", 30)
    np.testing.assert_allclose(places[-1], foreseen, atol=0.004)
    velocities = np.diff(places, axis=0)[1:] * CONTROL_HZ
    np.testing.assert_allclose(velocities[:, 1], speed, rtol=0.05)
    assert np.abs(velocities[:, [0, 2]]).max() < 0.01 * speed + 1e-3


def test_the_turntable_turns_at_its_rate_and_takes_the_saucer_along(begin_droid):
    sim = begin_droid("place_on_turntable")
    rate = math.radians(sim.task.objects["turntable"].shape.turn_rate)
    middle = sim.station.pose("turntable").middle
    foreseen = carrier_motion(sim.station, "saucer").after(sim.station.pose("saucer").middle, 2.0) - middle
    places = played(sim, "saucer", 30) - middle
    np.testing.assert_allclose(places[-1], foreseen, atol=0.004)
    angles = np.unwrap(np.arctan2(places[:, 1], places[:, 0]))
    np.testing.assert_allclose(np.diff(angles)[1:] * CONTROL_HZ, rate, rtol=0.05)
    np.testing.assert_allclose(np.linalg.norm(places[:, :2], axis=1), 0.09, atol=0.001)


def test_the_ball_waits_for_its_gate_then_crosses_the_line_and_leaves_the_table(begin_droid):
    sim = begin_droid("stop_ball")
    delay = round(sim.task.objects["ramp"].shape.delay * CONTROL_HZ)
    places = played(sim, "ball", delay + 45)
    assert np.ptp(places[: delay + 1], axis=0).max() < 1e-3
    line = sim.station.pose("line").middle[1]
    crossed = int(np.argmax(places[:, 1] > line))
    assert delay + 15 < crossed < delay + 30
    speed = np.linalg.norm(np.diff(places, axis=0), axis=1)[crossed] * CONTROL_HZ
    drop = places[0][2] - places[crossed][2]
    assert speed == pytest.approx(math.sqrt(10 / 7 * 9.81 * drop), rel=0.1), "it rolls without slipping"
    assert places[-1][2] < -0.1
    assert sim.progress() == 0


@pytest.mark.parametrize("task", ["can_in_mug", *MOVING])
def test_trajectories_are_the_same_bytes_after_a_reset_and_on_a_copy(begin_droid, task):
    actions = np.random.default_rng(3).uniform(-1, 1, (6, 8))

    def ended(sim):
        sim.advance(actions)
        images = sim.observe().images.values() if task == "can_in_mug" else ()
        return [sim.station.data.qpos.tobytes(), *(image.tobytes() for image in images)]

    sim = begin_droid(task, init_id=1)
    twin = sim.station.copy()
    for action in actions:
        twin.step(action)
    first = ended(sim)
    assert twin.data.qpos.tobytes() == first[0]
    assert ended(begin_droid(task, init_id=1)) == first


@pytest.mark.parametrize(("y", "counts"), [(0.10, True), (0.45, False)])
def test_a_ball_is_stopped_where_it_rests_for_half_a_second_before_the_line(begin_droid, y, counts):
    sim = begin_droid("stop_ball")
    played(sim, "ball", 9)
    assert sim.progress() == 0, "at rest, but it has not been under way"
    ball = sim.station.data.joint("ball")
    ball.qpos[:3], ball.qvel[:] = [0.6, y, 0.0], 0.0
    sim.advance(np.tile(STILL, (8, 1)))
    assert sim.progress() == 0
    sim.advance(np.tile(STILL, (2, 1)))
    assert sim.progress() == (0.5 if counts else 0)


KEY = EpisodeKey(suite="droid_tabletop", task_id=0, init_id=0, seed=7)


def begun(sim: DroidSim, *, noise: float = 0.0) -> DroidExpert:
    expert = DroidExpert(sim, noise=noise)
    expert.reset(KEY)
    return expert


def play(sim: DroidSim, expert: DroidExpert, *, steps: int) -> bool:
    return any(sim.advance(expert.query(sim.policy_state())[:8]).success for _ in range(steps // 8))


def test_the_noise_of_joint_velocities_wanders_as_autoregressive_noise_does():
    """Of a level at which no push begins."""
    noises = [JointNoise(1e-6, dataclasses.replace(KEY, init_id=init_id)) for init_id in range(20)]
    velocities = 1e6 * np.array([[noise.at(step)[0] for step in range(600)] for noise in noises])
    lagged = np.mean(velocities[:, :-1] * velocities[:, 1:]) / np.mean(np.square(velocities))
    assert np.std(velocities) == pytest.approx(0.1, abs=0.015)
    assert lagged == pytest.approx(0.9, abs=0.03)


def test_noise_is_in_what_the_expert_does_and_no_two_episodes_are_alike(begin_droid):
    sim = begin_droid()
    expert = begun(sim, noise=1.0)
    done = expert.query(sim.policy_state())
    assert np.abs(done - expert.intended)[:, :7].max() > 0.02
    again = begun(begin_droid(), noise=1.0)
    assert np.array_equal(done, again.query(sim.policy_state()))
    other = EpisodeKey(suite="droid_tabletop", task_id=0, init_id=1, seed=7)
    assert JointNoise(1.0, KEY).pace != JointNoise(1.0, other).pace


def test_the_expert_goes_on_from_where_somebody_else_has_left_the_world(begin_droid):
    sim = begin_droid()
    expert = begun(sim)
    assert not play(sim, expert, steps=80), "under way, the cube in the gripper"
    assert play(sim, begun(sim), steps=200)


def test_the_expert_does_not_rise_first_out_of_a_grasp_that_is_almost_right(begin_droid):
    sim = begin_droid()
    expert, cube = begun(sim), sim.station.pose("cube")
    while sim.station.end_effector[2] > cube.high[2] + 0.05:
        sim.advance(expert.query(sim.policy_state())[:1])
    aside = expert.query(sim.policy_state())[:1].copy()
    aside[:, :7] = [0.25, 0, 0, 0, 0, 0, 0]
    for _ in range(3):  # about 2 cm
        sim.advance(aside)
    start = sim.station.end_effector
    assert 0.01 < np.linalg.norm(start[:2] - cube.middle[:2]) < 0.03
    successor, heights = begun(sim), [start[2]]
    while sim.station.gripper < 0.1:
        heights.append(sim.advance(successor.query(sim.policy_state())[:1]).end_effector[-1][2])
    assert max(heights) < max(start[2], cube.high[2] + 0.035) + 0.01


def test_what_the_expert_does_depends_on_positions_alone_which_a_policy_observes(begin_droid):
    sim = begin_droid()
    expert = begun(sim)
    while sim.station.end_effector[2] > 0.25:
        sim.advance(expert.query(sim.policy_state())[:1])
    actions = []
    for velocity in (0.0, 0.3):
        sim.station.data.qvel[:7] = velocity
        actions.append(begun(sim).query(sim.policy_state())[0])
    assert np.array_equal(*actions)


def test_the_experts_actions_do_not_alternate_between_control_steps(begin_droid):
    sim = begin_droid("banana_in_bin")
    expert, actions = begun(sim), []
    for _ in range(20):
        actions.extend(expert.query(sim.policy_state())[:8])
        sim.advance(np.array(actions[-8:]))
    assert np.abs(np.diff(np.array(actions)[:, :7], 2, axis=0)).mean(axis=0).max() < 0.15


def test_after_the_first_step_an_object_out_of_reach_makes_the_expert_hold_still(begin_droid):
    def take_away(sim):
        sim.station.data.joint("cube").qpos[0] += 1.0
        mujoco.mj_forward(sim.station.model, sim.station.data)

    sim = begin_droid()
    sim.advance(begun(sim).query(sim.policy_state())[:1])
    take_away(sim)
    path = sim.advance(begun(sim).query(sim.policy_state())).end_effector
    assert np.linalg.norm(path[-1] - path[0]) < 0.02
    take_away(begin_droid())
    with pytest.raises(UsageError, match="cannot reach 'cube'"):
        begun(sim).query(sim.policy_state())


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["droid_tabletop", "droid_tabletop_jointpos"])
@pytest.mark.parametrize("task", [task.name for task in open_suite("droid_tabletop").expert_tasks()])
def test_the_expert_solves_thirteen_tasks_in_nine_of_ten_states_either_way(suite, task):
    opened = open_suite(suite)
    (chosen,) = [each for each in opened.tasks() if each.name == task]
    keys = [EpisodeKey(suite=suite, task_id=chosen.task_id, init_id=number, seed=7) for number in range(10)]
    with closing(opened.open(chosen)) as world:
        assert sum(attempt(world, opened.expert(world), key=key).success for key in keys) >= 9


@pytest.mark.parametrize("task", ["push_box_to_mark", "open_drawer", "stand_bottle_up"])
def test_the_expert_says_what_it_cannot_do(task):
    suite = open_suite("droid_tabletop")
    (chosen,) = [each for each in suite.tasks() if each.name == task]
    with closing(suite.open(chosen)) as world, pytest.raises(UsageError, match=f"cannot do task {task}"):
        suite.expert(world)
