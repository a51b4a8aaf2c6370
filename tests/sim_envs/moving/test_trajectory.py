"""Trajectories start and end at rest, are continuous, keep their speed, and stay within free space."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.motion import Drift, Shuttle
from sim_envs.moving import RISE_S, DriftTrajectory, FreeSpace, ShuttleTrajectory, sample_trajectory
from sim_envs.scripted.surfaces import box_surface, rectangle

TICK = 0.01
SECONDS = np.arange(0.0, 20.0, TICK)


class Between(FreeSpace):
    """A known rectangle (m) around the object."""

    def __init__(self, *, x=(-1.0, 1.0), y=(-1.0, 1.0)):
        self._low, self._high = np.array([x[0], y[0]]), np.array([x[1], y[1]])

    def along(self, way, most):
        step = np.where(np.abs(way[:2]) > 1e-9, way[:2], 1e-9)
        return float(min(most, np.maximum(self._low / step, self._high / step).min()))


motions = st.one_of(
    st.builds(Shuttle, speed=st.floats(0.001, 0.3), period=st.floats(1.0, 60.0)),
    st.builds(Drift, speed=st.floats(0.001, 0.3)),
)
sides = st.floats(0.0, 0.3)
rooms = st.builds(
    lambda left, right, back, front: Between(x=(-left, right), y=(-back, front)), sides, sides, sides, sides
)


@given(motion=motions, room=rooms, seed=st.integers(0, 1000))
def test_trajectories_are_continuous_and_stay_within_free_space(motion, room, seed):
    trajectory = sample_trajectory(motion, room, np.random.default_rng(seed))
    if trajectory is None:
        return
    places = np.array([trajectory.offset(t) for t in SECONDS])
    velocities = np.array([trajectory.velocity(t) for t in SECONDS])
    assert not places[0].any()
    assert not velocities[0].any()
    speeds = np.linalg.norm(velocities, axis=1)
    assert speeds.max() <= motion.speed + 1e-12
    np.testing.assert_allclose(
        np.diff(places, axis=0),
        TICK * (velocities[1:] + velocities[:-1]) / 2,
        atol=1e-9 + 1e-5 * motion.speed,
    )
    swing = 2 * math.pi / motion.period if isinstance(motion, Shuttle) else 0.0
    assert (
        np.linalg.norm(np.diff(velocities, axis=0), axis=1).max()
        <= (1.6 * motion.speed / RISE_S + motion.speed * swing) * TICK
    )
    for side in (1, -1):
        assert (side * places @ trajectory.way).max() <= room.along(side * trajectory.way, 10.0) + 1e-9


def test_a_shuttle_reaches_its_speed_and_returns():
    trajectory = sample_trajectory(Shuttle(speed=0.03, period=4.0), Between(), np.random.default_rng(0))
    assert isinstance(trajectory, ShuttleTrajectory)
    speeds = [np.linalg.norm(trajectory.velocity(t)) for t in SECONDS]
    assert max(speeds) == pytest.approx(0.03, rel=1e-3)
    np.testing.assert_allclose(trajectory.offset(10.0), trajectory.offset(6.0), atol=1e-12)


def test_a_drift_keeps_its_speed_and_ends_at_rest():
    trajectory = sample_trajectory(Drift(speed=0.03), Between(), np.random.default_rng(0))
    assert isinstance(trajectory, DriftTrajectory)
    assert np.linalg.norm(trajectory.velocity(3.0)) == pytest.approx(0.03)
    assert np.linalg.norm(trajectory.offset(20.0)) == pytest.approx(trajectory.length)
    assert not trajectory.velocity(20.0).any()


def test_directions_and_phases_vary_and_avoid_obstacles():
    draws = [np.random.default_rng(seed) for seed in range(8)]
    free = [sample_trajectory(Shuttle(speed=0.03, period=4.0), Between(), draw) for draw in draws]
    assert len({tuple(trajectory.way) for trajectory in free}) > 3
    assert len({trajectory.phase for trajectory in free}) == 8
    narrow = Between(x=(-0.005, 0.005))
    trajectories = [
        sample_trajectory(Drift(speed=0.03), narrow, np.random.default_rng(seed)) for seed in range(8)
    ]
    assert all(abs(trajectory.way[1]) == pytest.approx(1.0) for trajectory in trajectories)
    assert sample_trajectory(Drift(speed=0.03), Between(x=(0, 0), y=(0, 0)), draws[0]) is None


def test_free_space_ends_at_obstacles_edges_and_forbidden_positions():
    table = rectangle(center=(0.0, 0.0), half=(0.2, 0.3), height=0.5, spacing=0.008)
    obj, other = (box_surface(np.full(3, 0.02), 0.004) + np.array([0.0, y, 0.52]) for y in (0.0, 0.15))
    room = FreeSpace(obj, np.concatenate([table, other]), may_be_at=lambda place: place[1] > -0.1)
    x, y = np.eye(3)[:2]
    assert room.along(y, 0.3) == pytest.approx(0.08, abs=0.011)  # up to 3 cm from the other's side
    assert room.along(x, 0.3) == pytest.approx(0.16, abs=0.011)  # up to 3 cm from the edge
    assert room.along(-y, 0.3) == pytest.approx(0.1, abs=0.006)
    assert room.along(x, 0.05) == 0.05
