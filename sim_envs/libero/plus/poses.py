"""Poses of LIBERO-plus: of the camera, rounded as in its code, and of the arm."""

import functools

import numpy as np
from jaxtyping import Float64
from scipy.spatial.transform import Rotation

from sim_envs.libero.plus.names import View
from sim_envs.scripted.poses import Vector3

_PIVOT = np.array([0.0, 0.0, 0.8])
_DECIMALS = 4

Quaternion = Float64[np.ndarray, " 4"]


def camera_pose(view: View, position: Vector3, quaternion: Quaternion) -> tuple[Vector3, Quaternion]:
    """Position (m) and orientation (w, x, y, z; not normalised) of `agentview`, given LIBERO's in the arena.

    The published code rounds after every step, also where an angle is zero: only steps that it skips are
    left out.
    """

    def turned(rotation: Rotation, quaternion: Quaternion) -> Quaternion:
        return _rounded(
            (rotation * Rotation.from_quat(quaternion, scalar_first=True)).as_quat(scalar_first=True)
        )

    if view.vertical:
        rotation = _about("y", view.vertical)
        position = _rounded(_PIVOT + rotation.apply(position - _PIVOT))
        quaternion = turned(rotation, quaternion)
    rotation = _about("z", view.horizontal)
    position, quaternion = _rounded(rotation.apply(position)), turned(rotation, quaternion)
    if view.distance != 100:
        position = _rounded(_PIVOT + (position - _PIVOT) * (view.distance / 100))
    if view.turn:
        quaternion = turned(_about("z", view.turn), quaternion)
    if view.tilt:
        quaternion = turned(_about("y", view.tilt), quaternion)
    return position, quaternion


def _about(axis: str, degrees: int) -> Rotation:
    """Positive angles about y move the camera up."""
    vector = (
        np.radians(-degrees) * np.array([0, 1, 0])
        if axis == "y"
        else np.radians(degrees) * np.array([0, 0, 1])
    )
    return Rotation.from_rotvec(vector)


def _rounded(values: np.ndarray) -> np.ndarray:
    """Python's `round` of every number; NumPy's differs in the last bit."""
    return np.array([round(float(value), _DECIMALS) for value in values])


ROBOTS = 500
_REST = np.array([0, -1.61037389e-01, 0.00, -2.44459747e00, 0.00, 2.22675220e00, np.pi / 4])


@functools.cache
def _arm_poses() -> Float64[np.ndarray, "robot joint"]:
    random = np.random.RandomState(42)
    poses = [_REST]
    for number in range(1, ROBOTS + 1):
        way = random.randn(len(_REST))
        distance = 0.1 * np.ceil(number / 100)
        poses.append(np.round(_REST + way / np.linalg.norm(way) * distance, 8))
    return np.array(poses)


def arm_pose(robot: int) -> Float64[np.ndarray, " joint"]:
    """Joint positions (rad) of the robot with this number; 0 is LIBERO's.

    The published vectors, of 0.1 to 0.5 rad from LIBERO's, in steps of a hundred.
    """
    return _arm_poses()[robot].copy()
