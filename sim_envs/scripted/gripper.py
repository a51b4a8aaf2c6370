"""The shape of a parallel gripper in the frame of its grip site."""

import dataclasses
import math

import numpy as np

from sim_envs.scripted.poses import Matrix3


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
