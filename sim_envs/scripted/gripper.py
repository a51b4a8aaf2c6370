"""The shape of the gripper, seen from its grip site."""

import dataclasses
import math

import numpy as np

from sim_envs.scripted.poses import Matrix3


@dataclasses.dataclass(frozen=True, kw_only=True)
class GripperShape:
    """A parallel gripper; metres from the grip site. z points out of the hand, x from finger to finger.

    Attributes:
        tip: How far the fingertips reach beyond the grip site.
        palm: How far the palm lies behind it.
        pad_high: Upper edge of the pads, above the fingertips.
        pad_half_width: Half the width of a pad, across the closing direction.
        inner: Inner face of a finger that is fully open, from the middle.
        outer: Outer face of the end of a finger that is fully open, from the middle.
        thick: How far above the fingertips the fingers are thicker.
        thick_outer: Outer face of that part, when fully open, from the middle.
        half_width: Half the width of a finger.
        hand: Half the sides of the hand.
        back: How far the other end of the hand lies behind the grip site.
    """

    tip: float
    palm: float
    pad_high: float
    pad_half_width: float
    inner: float
    outer: float
    thick: float
    thick_outer: float
    half_width: float
    hand: tuple[float, float]
    back: float


PANDA = GripperShape(
    tip=0.0092,
    palm=0.031,
    pad_high=0.0208,
    pad_half_width=0.008,
    inner=0.038,
    outer=0.054,
    thick=0.035,
    thick_outer=0.0655,
    half_width=0.0105,
    hand=(0.104, 0.032),
    back=0.123,
)
"""Franka's hand as robosuite models it: the extent of its collision geoms."""


def downward(yaw: float) -> Matrix3:
    """The rotation of a gripper that points down and closes along the horizontal direction `yaw` (rad)."""
    x = np.array([math.cos(yaw), math.sin(yaw), 0.0])
    z = np.array([0.0, 0.0, -1.0])
    return np.stack([x, np.cross(z, x), z], axis=1)


def pointing(heading: float, tilt: float) -> Matrix3:
    """The rotation of a gripper that points towards a heading, tilted up from straight down (rad).

    It closes along the horizontal across its heading.
    """
    z = np.array([math.sin(tilt) * math.cos(heading), math.sin(tilt) * math.sin(heading), -math.cos(tilt)])
    x = np.array([-math.sin(heading), math.cos(heading), 0.0])
    return np.stack([x, np.cross(z, x), z], axis=1)
