"""Grasp search from the shapes of an object and its surroundings.

Objects are point clouds of their collision surfaces. A gripper pose is feasible if open fingers and palm are
free of collisions and material is between the pads: a can is grasped across its middle, a carton across its
narrow side, a bowl by its rim, and a mug from the side by its handle.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator

import numpy as np
from jaxtyping import Float64, Int64

from sim_envs.scripted.gripper import PANDA, downward
from sim_envs.scripted.poses import Matrix3, Pose, Vector3
from sim_envs.scripted.surfaces import HeightMap, Points

_ANOTHER_PLACE, _ANOTHER_YAW = 0.015, 0.4  # grasps at least this far apart (m, rad) are different attempts
_YAWS, _PER_YAW = 12, 80  # yaws over half a turn, and positions evaluated for each
_CELL = 0.0025  # side (m) of a height map cell
_MARGIN = 0.003  # clearance (m) around fingers and palm
_REACH = 0.13  # radius (m) of the surroundings beyond the object
_DEEPEST, _SHALLOWEST = 0.034, 0.012  # depth (m) of the fingertips below the top of the material between them
_FLAT = 0.0015  # points within this distance (m) of the outermost one are touched together with it

_WIDTH_COST = 0.1  # cost per metre of material between the fingers
_OFFSET_COST = 1.5  # cost per metre by which one finger arrives before the other
_LEVER_COST = 0.4  # cost per metre from the centre of mass, plus its part across the closing direction
_DEPTH_COST = 1.0  # cost per metre of missing depth
_TURN_COST = 0.02  # cost per radian between the closing direction and that of the resting arm
_ROOM = 0.02  # preferred clearance (m) of the fingers beyond the margin
_ROOM_COST = 0.5  # cost per metre by which the fingertips would have to stay higher for it
_HIGHEST = 0.02  # upper bound of that height (m)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grasp:
    """A gripper pose for grasping an object."""

    pose: Pose  # pose of the grip site in the object's frame
    width: float  # width of the material between the fingers (m)
    cost: float  # cost for ranking; lower is better

    def differs_from(self, other: "Grasp") -> bool:
        """Whether this is worth trying after the other has failed."""
        return not self.pose.is_within(other.pose, _ANOTHER_PLACE, _ANOTHER_YAW)


def grasps_from_above(
    obj: Points, surroundings: Points, *, frame: Pose, center_of_mass: Vector3
) -> list[Grasp]:
    """All grasps from straight above, best first; arguments as for `grasps_turned`."""
    turns = [downward(float(yaw)) for yaw in np.arange(_YAWS) * math.pi / _YAWS]
    return grasps_turned(turns, obj, surroundings, frame=frame, center_of_mass=center_of_mass)


def grasps_turned(
    turns: Iterable[Matrix3], obj: Points, surroundings: Points, *, frame: Pose, center_of_mass: Vector3
) -> list[Grasp]:
    """All grasps found, best first.

    Args:
        turns: Gripper rotations to try; the z axis is the approach direction.
        obj: Points on the object's surface, in world coordinates.
        surroundings: Points on everything else.
        frame: The object's pose; grasps are given in this frame, so that they stay valid when it moves.
        center_of_mass: Of the object, in world coordinates.
    """
    obj, surroundings = obj - center_of_mass, surroundings - center_of_mass
    reach = float(np.linalg.norm(obj, axis=1).max()) + _REACH
    near = surroundings[np.linalg.norm(surroundings, axis=1) < math.sqrt(3) * reach]
    found = []
    for turn in turns:
        for grasp in _View(obj, near, turn=turn).grasps():
            position = frame.to_local(grasp.pose.position + center_of_mass)
            pose = Pose(position=position, rotation=frame.rotation.T @ grasp.pose.rotation)
            found.append(dataclasses.replace(grasp, pose=pose))
    return sorted(found, key=lambda grasp: grasp.cost)


class _View:
    """The scene in a gripper's frame: x along the closing direction, z against the approach."""

    def __init__(self, obj: Points, surroundings: Points, *, turn: Matrix3) -> None:
        self._turn = turn
        self._upright = turn @ np.diag([1.0, -1.0, -1.0])
        self._obj = obj @ self._upright
        reach = float(np.abs(self._obj[:, :2]).max()) + _REACH

        def seen(points: Points) -> HeightMap:
            return HeightMap.over(points, center=np.zeros(2), reach=reach, cell=_CELL)

        self._own, self._others = seen(self._obj), seen(surroundings @ self._upright)
        self._all = dataclasses.replace(self._own, top=np.maximum(self._own.top, self._others.top))
        self._turned_away = math.acos(min(abs(float(turn[1, 0])), 1.0))

    def grasps(self) -> Iterator[Grasp]:
        """All feasible grasps with this rotation."""
        material = self._own.under_rectangle((PANDA.inner - _MARGIN, PANDA.pad_half_width))
        between = self._others.under_rectangle((PANDA.inner, PANDA.half_width + _MARGIN))
        free = np.maximum(self._lowest_tips(self._all, _MARGIN), between + _MARGIN)
        tips = np.maximum(free, material - _DEEPEST)
        easy = self._lowest_tips(self._others, _MARGIN + _ROOM)
        cells = np.argwhere(material - tips > _SHALLOWEST)
        for cell in cells[:: max(1, math.ceil(len(cells) / _PER_YAW))]:  # evenly spaced
            grasp = self._close_over(cell, tips, easy)
            if grasp is not None:
                missing = _DEEPEST - (material - tips)[tuple(cell)]
                yield dataclasses.replace(grasp, cost=grasp.cost + _DEPTH_COST * float(missing))

    def _lowest_tips(self, seen: HeightMap, margin: float) -> Float64[np.ndarray, "nx ny"]:
        """The lowest fingertip height with a margin, for every cell as the grasp's center."""

        def under_fingers(outer: float) -> Float64[np.ndarray, "nx ny"]:
            half = ((outer - PANDA.inner) / 2 + margin, PANDA.half_width + margin)
            middle = (PANDA.inner + outer) / 2
            return np.maximum(*(seen.under_rectangle(half, side * middle) for side in (-1, 1)))

        ends, thicker = under_fingers(PANDA.outer), under_fingers(PANDA.thick_outer)
        hand = seen.under_rectangle((PANDA.hand[0] + margin, PANDA.hand[1] + margin))
        return np.maximum.reduce([ends, thicker - PANDA.thick, hand - PANDA.tip - PANDA.palm]) + margin

    def _close_over(
        self,
        cell: Int64[np.ndarray, " 2"],
        tips: Float64[np.ndarray, "nx ny"],
        easy: Float64[np.ndarray, "nx ny"],
    ) -> Grasp | None:
        """The grasp at a cell, centered between the fingers if there is room."""
        (x, y), tip = self._all.center_of(cell), tips[tuple(cell)]
        across, along, height = self._obj.T
        between = (np.abs(across - x) < PANDA.inner) & (np.abs(along - y) < PANDA.pad_half_width)
        touched = self._obj[between & (height > tip) & (height < tip + PANDA.pad_high)]
        if len(touched) == 0:
            return None
        low, high = touched[:, 0].min(), touched[:, 0].max()
        middle = (low + high) / 2
        centered = self._all.cells_of(np.array([[middle, y]]))[0]
        if tips[tuple(centered)] <= tip + _FLAT:
            x, cell = middle, centered
        # Offsets across the closing direction at which the fingers first touch the object.
        offsets = (touched[np.abs(touched[:, 0] - end) < _FLAT, 1].mean() - y for end in (low, high))
        crowded = min(max(float(easy[tuple(cell)]) - float(tip), 0.0), _HIGHEST)
        cost = (
            _WIDTH_COST * (high - low)
            + _OFFSET_COST * abs(middle - x)
            + _LEVER_COST * (math.hypot(middle, y) + abs(y))
            + _TURN_COST * self._turned_away
            + _ROOM_COST * crowded
            + sum(abs(float(offset)) for offset in offsets)
        )
        pose = Pose(position=self._upright @ np.array([x, y, tip + PANDA.tip]), rotation=self._turn)
        return Grasp(pose=pose, width=float(high - low), cost=float(cost))
