"""The shape of the gripper and the hand, in the frame of the grip site, and their collisions."""

import dataclasses
import functools
import math
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float64

from sim_envs.scripted.poses import Matrix3, Pose, Vector3
from sim_envs.scripted.surfaces import Points, box_surface


@dataclasses.dataclass(frozen=True, kw_only=True)
class GripperShape:
    """A parallel gripper, m from the grip site: z points out of the hand, x from finger to finger.

    The defaults are the extent of robosuite's collision geoms of Franka's hand.

    Attributes:
        tip: Distance of the fingertips beyond the grip site.
        palm: Distance of the palm behind the grip site.
        pad_high: Height of the pads above the fingertips.
        pad_half_width: Half the width of a pad, across the closing direction.
        inner: Distance of an open finger's inner face from the center.
        outer: Distance of an open finger's outer face from the center, at the tip.
        thick: Height above the fingertips from which the fingers are thicker.
        thick_outer: Distance of an open finger's outer face from the center, in the thicker part.
        half_width: Half the width of a finger.
        hand: Half extents of the hand.
        back: Distance of the back of the hand behind the grip site.
    """

    tip: float = 0.0092
    palm: float = 0.031
    pad_high: float = 0.0208
    pad_half_width: float = 0.008
    inner: float = 0.038
    outer: float = 0.054
    thick: float = 0.035
    thick_outer: float = 0.0655
    half_width: float = 0.0105
    hand: tuple[float, float] = (0.104, 0.032)
    back: float = 0.123


PANDA = GripperShape()


def downward(yaw: float) -> Matrix3:
    """Rotation of a gripper that points down and closes along the horizontal direction `yaw` (rad)."""
    x = np.array([math.cos(yaw), math.sin(yaw), 0.0])
    z = np.array([0.0, 0.0, -1.0])
    return np.stack([x, np.cross(z, x), z], axis=1)


def pointing(heading: float, tilt: float) -> Matrix3:
    """Rotation of a gripper that points towards a heading, tilted up from straight down (rad).

    It closes horizontally, across its heading.
    """
    z = np.array([math.sin(tilt) * math.cos(heading), math.sin(tilt) * math.sin(heading), -math.cos(tilt)])
    x = np.array([-math.sin(heading), math.cos(heading), 0.0])
    return np.stack([x, np.cross(z, x), z], axis=1)


FULLY_OPEN = 2 * PANDA.inner

FIST_HALF = (PANDA.outer - PANDA.inner, PANDA.half_width)
"""Half the sides (m) of two closed fingers, along the closing direction and across it."""

_HAND_DEPTH = 0.066
_WRIST_HALF = 0.05
_WRIST_DEPTH = 0.11
"""Sizes (m) of Franka's hand and the last link above it."""

_SPACING = 0.01
_FINGER_BOXES = 4

_Bounds = Float64[np.ndarray, "boxes 2 3"]


@functools.cache
def hand_bounds(opening: float) -> _Bounds:
    """Lower and upper corners (m) of boxes around fingers, hand and wrist, in the grip site's frame."""
    inner = opening / 2
    thin, thick = PANDA.outer - PANDA.inner, PANDA.thick_outer - PANDA.inner
    hand_top, wrist_top = -PANDA.palm - _HAND_DEPTH, -PANDA.palm - _HAND_DEPTH - _WRIST_DEPTH
    fingers = [
        [(low, -PANDA.half_width, -PANDA.palm), (high, PANDA.half_width, top)]
        for thickness, top in ((thin, PANDA.tip), (thick, PANDA.tip - PANDA.thick))
        for low, high in ((-inner - thickness, -inner), (inner, inner + thickness))
    ]
    hand = [(-PANDA.hand[0], -PANDA.hand[1], hand_top), (PANDA.hand[0], PANDA.hand[1], -PANDA.palm)]
    wrist = [(-_WRIST_HALF, -_WRIST_HALF, wrist_top), (_WRIST_HALF, _WRIST_HALF, hand_top)]
    return np.array([*fingers, hand, wrist])


def has_room(poses: Iterable[Pose], opening: float, obstacles: Points, *, margin: float) -> bool:
    """Whether all obstacles keep the margin (m) to a hand at all of the poses."""
    bounds = hand_bounds(opening) + np.array([[-margin], [margin]])
    return not any(_is_hit(pose.to_local(obstacles), bounds) for pose in poses)


def hand_underside(pose: Pose, opening: float) -> Points:
    """The underside of a hand with any rotation."""
    corners = hand_bounds(opening)
    points = [box_surface((high - low) / 2, _SPACING) + (high + low) / 2 for low, high in corners]
    return np.concatenate(points) @ pose.rotation.T


def fingers_have_room(pose: Pose, opening: float, obstacles: Points) -> bool:
    """Whether no obstacle is within the fingers; a cheap first check."""
    return not _is_hit(pose.to_local(obstacles), hand_bounds(opening)[:_FINGER_BOXES])


def thinned(points: Points, cell: float) -> Points:
    """Thin points to one per cell (m)."""
    cells = np.floor((points - points.min(axis=0)) / cell).astype(np.int64)
    _, first = np.unique(np.ravel_multi_index(tuple(cells.T), cells.max(axis=0) + 1), return_index=True)
    return points[first]


def near(points: Points, center: Vector3, reach: float) -> Points:
    """The points within a distance (m) of a center along every axis."""
    return points[np.all(np.abs(points - center) < reach, axis=1)]


def _is_hit(points: Points, bounds: _Bounds) -> bool:
    x, y, z = points.T
    return any(
        ((x > low[0]) & (x < high[0]) & (y > low[1]) & (y < high[1]) & (z > low[2]) & (z < high[2])).any()
        for low, high in bounds
    )
