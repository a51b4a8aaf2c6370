"""Moved bodies stay within reach and in view, and those without room stay where they are."""

import math

import mujoco
import numpy as np
import pytest

from configs.motion import Drift
from sim_envs.moving import Bounds, sample_movers

SCENE = """
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
    data = mujoco.MjData(mujoco.MjModel.from_xml_string(SCENE.format(fence=fence)))
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


def test_what_is_out_of_reach_may_stay_at_its_distance():
    data = settled()
    may_be_at = bounds(data, reach=(0.4, 0.6)).check(data, np.array([0.8, 0.0, 0.0]))
    assert [may_be_at(np.array([x, 0.0, 0.0])) for x in (0.39, 0.41, 0.79, 0.81)] == [
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(("fence", "moves"), [("", True), (FENCE, False)])
def test_a_body_without_room_does_not_move(fence, moves):
    data = settled(fence)
    found = sample_movers(data, {"can": data.body("can").id}, Drift(speed=0.03), bounds(data), digest=7)
    assert list(found) == ["can"] * moves
    if moves:
        again = sample_movers(data, {"can": data.body("can").id}, Drift(speed=0.03), bounds(data), digest=7)
        assert found["can"]._trajectory.way.tolist() == again["can"]._trajectory.way.tolist()
        assert math.hypot(*found["can"]._trajectory.way) == pytest.approx(1)
