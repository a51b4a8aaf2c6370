"""A moved body follows its trajectory until it is touched, and does not disturb other bodies."""

import copy

import mujoco
import numpy as np
import pytest

from sim_envs.moving import DriftTrajectory, Mover

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
TRAJECTORY = DriftTrajectory(way=np.array([1.0, 0.0, 0.0]), length=0.2, cruise=0.05)


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


def test_a_body_follows_its_trajectory_upright_and_nothing_else_moves(data):
    still = copy.copy(data)
    start, mover = (
        data.body("bottle").xpos.copy(),
        Mover(data.model, data, data.body("bottle").id, TRAJECTORY),
    )
    ahead = mover.ahead(1.0)
    play(data, 1.0, mover)
    play(still, 1.0)
    assert mover.leads
    np.testing.assert_allclose(data.qpos[:2] - start[:2], ahead[:2], atol=1e-9)
    np.testing.assert_allclose(data.qpos[:3] - start, TRAJECTORY.offset(1.0), atol=1e-4)
    np.testing.assert_array_equal(data.qvel[:6], [0.05, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(data.qpos[7:], still.qpos[7:], atol=1e-9)


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
