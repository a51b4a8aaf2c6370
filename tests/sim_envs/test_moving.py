"""Moved bodies stay in free space, reach and view, and follow smooth trajectories until they are touched."""

import math

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.motion import Drift, Shuttle
from sim_envs.moving import RISE_S, Bounds, FreeSpace, Mover, sample_movers, sample_trajectory, straight_line
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


def test_free_space_ends_at_obstacles_edges_and_forbidden_positions():
    table = rectangle(center=(0.0, 0.0), half=(0.2, 0.3), height=0.5, spacing=0.008)
    obj, other = (box_surface(np.full(3, 0.02), 0.004) + np.array([0.0, y, 0.52]) for y in (0.0, 0.15))
    room = FreeSpace(obj, np.concatenate([table, other]), may_be_at=lambda place: place[1] > -0.1)
    x, y = np.eye(3)[:2]
    assert room.along(y, 0.3) == pytest.approx(0.08, abs=0.011)  # up to 3 cm from the other's side
    assert room.along(x, 0.3) == pytest.approx(0.16, abs=0.011)  # up to 3 cm from the edge
    assert room.along(-y, 0.3) == pytest.approx(0.1, abs=0.006)
    assert room.along(x, 0.05) == 0.05


SCENE = """
<mujoco>
  <option timestep="0.002"/>
  <worldbody>
    <geom type="plane" size="1 1 0.1"/>
    <body name="bottle" pos="0 0 0.1"><freejoint/><geom type="cylinder" size="0.02 0.1" mass="0.5"/></body>
    <body name="can" pos="0 0.3 0.05"><freejoint/><geom type="cylinder" size="0.03 0.05" mass="0.3"/></body>
    <body name="post" pos="0.1 0 0.1"><joint type="slide" axis="0 0 1" damping="1e6"/>
      <geom type="box" size="0.01 0.1 0.08" mass="1"/></body>
  </worldbody>
</mujoco>
"""
TRAJECTORY = straight_line(np.array([1.0, 0.0, 0.0]), length=0.2, cruise=0.05)


@pytest.fixture
def data() -> mujoco.MjData:
    data = mujoco.MjData(mujoco.MjModel.from_xml_string(SCENE))
    for _ in range(200):
        mujoco.mj_step(data.model, data)
    return data


def play(data: mujoco.MjData, seconds: float, mover: Mover | None = None) -> None:
    for _ in range(round(seconds / data.model.opt.timestep)):
        mujoco.mj_step(data.model, data)
        if mover is not None:
            mover.lead()


def test_a_contact_ends_the_trajectory_for_good(data):
    mover = Mover(data.model, data, data.body("bottle").id, TRAJECTORY)
    play(data, 3.0, mover)
    assert not mover.leads
    assert data.qpos[0] == pytest.approx(0.07, abs=0.005)  # stopped by the post
    end = mover.offset()
    play(data, 3.0, mover)
    assert np.abs(data.qvel[:6]).max() < 0.01
    np.testing.assert_array_equal(mover.offset(1.0), end)


def test_the_trajectory_starts_when_the_body_is_at_rest(data):
    data.qpos[2] += 0.05
    mujoco.mj_forward(data.model, data)
    data.qvel[2] = -0.1
    mover = Mover(data.model, data, data.body("bottle").id, TRAJECTORY)
    play(data, 0.05, mover)
    assert not mover.leads
    assert data.qvel[2] < -0.1  # it still falls
    play(data, 1.0, mover)
    assert mover.leads
    assert data.qpos[0] > 0.01


FENCED_SCENE = """
<mujoco>
  <worldbody>
    <camera pos="0.5 0 1" fovy="90"/>
    <geom type="box" size="2 2 0.1" pos="0 0 -0.1"/>
    <body name="robot"><geom type="box" size="0.05 0.05 0.1" pos="0 0 0.1"/></body>
    <body name="can" pos="0.5 0 0.05"><freejoint/><geom type="cylinder" size="0.03 0.05"/></body>
    {fence}
  </worldbody>
</mujoco>
"""
FENCE = "".join(
    f'<geom type="box" size="{x} {y} 0.02" pos="{0.5 + dx} {dy} 0.02"/>'
    for x, y, dx, dy in [
        (0.06, 0.01, 0, 0.05),
        (0.06, 0.01, 0, -0.05),
        (0.01, 0.06, 0.05, 0),
        (0.01, 0.06, -0.05, 0),
    ]
)


def settled(fence: str = "") -> mujoco.MjData:
    data = mujoco.MjData(mujoco.MjModel.from_xml_string(FENCED_SCENE.format(fence=fence)))
    mujoco.mj_forward(data.model, data)
    return data


def bounds(data: mujoco.MjData, **changes: float) -> Bounds:
    return Bounds(**({"robot": data.body("robot").id, "reach": (0.3, 3.0), "camera": 0} | changes))


def test_the_view_is_as_wide_as_the_images():
    data = settled()
    for aspect in (1.0, 0.5):
        may_be_at = bounds(data, aspect=aspect).check(data, np.array([0.5, 0.0, 0.0]))
        for way, edge in ((np.array([1.0, 0, 0]), 0.9 * aspect), (np.array([0, 1.0, 0]), 0.9)):
            place = np.array([0.5, 0.0, 0.0])
            assert may_be_at(place + (edge - 0.01) * way)
            assert not may_be_at(place + (edge + 0.01) * way)


@pytest.mark.parametrize(("fence", "moves"), [("", True), (FENCE, False)])
def test_a_body_without_room_does_not_move(fence, moves):
    data = settled(fence)
    found = sample_movers(data, {"can": data.body("can").id}, Drift(speed=0.03), bounds(data), digest=7)
    assert list(found) == ["can"] * moves
    if moves:
        again = sample_movers(data, {"can": data.body("can").id}, Drift(speed=0.03), bounds(data), digest=7)
        assert found["can"]._trajectory.way.tolist() == again["can"]._trajectory.way.tolist()
        assert math.hypot(*found["can"]._trajectory.way) == pytest.approx(1)
