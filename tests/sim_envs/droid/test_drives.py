"""What moves by itself does so at the speed that its task says, from the beginning of the episode on."""

import math

import numpy as np
import pytest

from configs.droid import CONTROL_HZ
from sim_envs.droid.planning import carrier_motion

MOVING = ("take_from_conveyor", "place_on_turntable", "stop_ball")
STILL = np.zeros((1, 8))


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


@pytest.mark.parametrize("task", MOVING)
def test_drives_start_when_the_episode_does_not_before(begin_droid, task):
    sim = begin_droid(task, settle_steps=0)
    sampled = {name: sim.station.pose(name).middle for name in sim.task.objects}
    sim = begin_droid(task, settle_steps=20)
    for name, middle in sampled.items():
        np.testing.assert_allclose(sim.station.pose(name).middle, middle, atol=0.002)


@pytest.mark.parametrize("task", MOVING)
def test_trajectories_are_the_same_bytes_after_a_reset_and_on_a_copy(begin_droid, task):
    actions = np.random.default_rng(3).uniform(-1, 1, (6, 8))

    def ended(sim):
        sim.advance(actions)
        return sim.station.data.qpos.tobytes()

    sim = begin_droid(task, init_id=1)
    twin = sim.station.copy()
    for action in actions:
        twin.step(action)
    first = ended(sim)
    assert twin.data.qpos.tobytes() == first
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
