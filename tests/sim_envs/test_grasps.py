"""Grasps and clearances from shapes alone: boxes, cans and bowls on a floor, no simulator."""

import numpy as np
import pytest

from sim_envs.scripted import gripper
from sim_envs.scripted.gripper import PANDA, Grasp, Terrain
from sim_envs.scripted.poses import Pose
from sim_envs.scripted.surfaces import box_surface, rectangle

HERE = Pose(position=np.zeros(3), rotation=np.eye(3))
FLOOR = rectangle(center=(0.0, 0.0), half=(0.4, 0.4), height=0.0, spacing=0.008)


def box(x: float, y: float, z: float, *, at: tuple[float, float] = (0.0, 0.0)) -> np.ndarray:
    """The surface of a box of these half sides that stands on the floor."""
    return box_surface(np.array([x, y, z]), 0.004) + np.array([*at, z])


def ring(radius: float, height: float) -> np.ndarray:
    """The surface of a thin round wall that stands on the floor, like a bowl's."""
    angles = np.linspace(0, 2 * np.pi, 180, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles), np.zeros_like(angles)], axis=1)
    heights = np.linspace(0, height, 15)
    return np.concatenate([r * circle + [0, 0, z] for z in heights for r in (radius - 0.002, radius)])


def grasps(obj: np.ndarray, around: np.ndarray = FLOOR) -> list[Grasp]:
    return gripper.find_grasps(gripper.FROM_ABOVE, obj, around, frame=HERE, center_of_mass=obj.mean(axis=0))


def closing_axis(grasp: Grasp) -> np.ndarray:
    return grasp.pose.rotation[:, 0]


def test_a_carton_is_taken_by_its_narrow_side():
    narrow_in_y = grasps(box(0.05, 0.02, 0.04))[0]
    assert abs(closing_axis(narrow_in_y)[1]) == pytest.approx(1.0)


def test_a_bowl_is_taken_by_its_rim_with_the_fingers_closing_along_the_radius():
    grasp = grasps(ring(0.055, 0.05))[0]
    radius = grasp.pose.position[:2]
    assert np.linalg.norm(radius) == pytest.approx(0.054, abs=0.004)
    assert abs(radius @ closing_axis(grasp)[:2]) / np.linalg.norm(radius) > np.cos(0.2)


def test_a_mug_is_taken_from_the_side_by_its_handle():
    handle = box(0.004, 0.012, 0.02, at=(0.0, -0.055)) + np.array([0.0, 0.0, 0.03])
    mug = np.concatenate([ring(0.045, 0.1), handle])
    turn = gripper.pointing(np.pi / 2, np.pi / 3)
    grasp = gripper.find_grasps([turn], mug, FLOOR, frame=HERE, center_of_mass=mug.mean(axis=0))[0]
    assert np.abs(handle - grasp.pose.position).sum(axis=1).min() < 0.02
    np.testing.assert_allclose(grasp.pose.rotation, turn)


@pytest.mark.parametrize("side", [-1, 1])
def test_no_finger_goes_where_a_neighbour_stands(side):
    obj = box(0.02, 0.02, 0.05)
    neighbour = box(0.03, 0.03, 0.05, at=(side * 0.065, 0.0))
    free = grasps(obj, np.concatenate([FLOOR, neighbour]))
    assert free
    assert all(abs(closing_axis(grasp)[1]) > 0.7 for grasp in free[:20])


def test_nothing_else_is_caught_between_the_fingers():
    obj = box(0.02, 0.05, 0.02)
    wall = box(0.002, 0.1, 0.03, at=(0.028, 0.0))
    found = grasps(obj, np.concatenate([FLOOR, wall]))
    assert found
    for grasp in found:
        across, along, depth = grasp.pose.to_local(wall).T
        assert not ((abs(across) < PANDA.inner) & (abs(along) < PANDA.half_width) & (depth < PANDA.tip)).any()


def test_the_gripper_comes_down_to_what_is_below_it_and_travels_over_what_is_on_its_way():
    wall = box(0.01, 0.2, 0.1)
    down = Pose(position=np.zeros(3), rotation=gripper.downward(np.pi / 2))
    underside = gripper.underside_of(down, opening=0.076)
    start, end = np.array([-0.2, 0.0]), np.array([0.2, 0.0])
    terrain = Terrain(np.concatenate([FLOOR, wall]), start=start, end=end)
    assert terrain.lowest(underside, end) == pytest.approx(PANDA.tip, abs=1e-6)
    assert terrain.lowest_along(underside) == pytest.approx(0.2 + PANDA.tip, abs=1e-6)


def test_what_lies_under_a_roof_is_pulled_out_before_it_is_lifted():
    roof = rectangle(center=(0.0, -0.1), half=(0.1, 0.1), height=0.2, spacing=0.008)
    pose = Pose(position=np.array([0.0, 0.02, 0.08]), rotation=gripper.downward(0.0))
    underside = gripper.underside_of(pose, opening=0.04, held=box(0.02, 0.04, 0.04, at=(0.0, 0.02)))
    here = pose.position[:2]
    terrain = Terrain(np.concatenate([FLOOR, roof]), start=here, end=here)
    out = terrain.nearest_open(underside, here, height=0.085)
    assert terrain.lowest(underside, here) > 0.2
    assert terrain.lowest(underside, out) <= 0.085
    assert out[1] > here[1]
    assert np.linalg.norm(out - here) < 0.06
