"""Grasp search from the shapes of an object and its surroundings.

There is no table of objects: collision surfaces are point clouds, and the gripper is tried at every position
and rotation. A grasp is feasible if both open fingers and the palm are free of collisions and material is
between the pads. So a can is grasped across its middle, a carton by its narrow side, a bowl by its rim, and a
mug from the side by its handle.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator

import numpy as np
from jaxtyping import Bool, Float64, Int64

from sim_envs.scripted.gripper import PANDA, GripperShape, downward
from sim_envs.scripted.poses import Matrix3, Pose, Vector3
from sim_envs.scripted.surfaces import HeightMap, Points

_ANOTHER_PLACE = 0.015
_ANOTHER_YAW = 0.4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grasp:
    """A gripper pose for grasping an object.

    Attributes:
        pose: Pose of the grip site in the object's frame.
        width: Width of the material between the fingers (m).
        cost: Cost for ranking; lower is better.
    """

    pose: Pose
    width: float
    cost: float

    def differs_from(self, other: "Grasp") -> bool:
        """Whether this is worth trying after the other has failed."""
        moved = np.linalg.norm(self.pose.position - other.pose.position)
        turned = np.linalg.norm(self.pose.twist_to(other.pose)[3:])
        return bool(moved > _ANOTHER_PLACE or turned > _ANOTHER_YAW)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GraspSearch:
    """Resolution and cost weights of the grasp search.

    Attributes:
        shape: Shape of the gripper.
        yaws: Number of yaws over half a turn.
        per_yaw: Positions evaluated for each yaw.
        cell: Side of a height map cell (m).
        margin: Clearance around fingers and palm (m).
        reach: Radius of the surroundings beyond the object (m).
        deepest: Largest depth of the fingertips below the top of the material between them (m).
        shallowest: Smallest depth (m).
        flat: Points within this distance (m) of the outermost one are touched together with it.
        width_cost: Per metre of material between the fingers.
        offset_cost: Per metre by which one finger arrives before the other.
        lever_cost: Per metre from the centre of mass, plus its part across the closing direction.
        depth_cost: Per metre of missing depth.
        turn_cost: Per radian between the closing direction and that of the resting arm.
        room: Preferred clearance of the fingers beyond the margin (m).
        room_cost: Per metre by which the fingertips would have to stay higher for it.
        highest: Upper bound of that height (m).
    """

    shape: GripperShape = PANDA
    yaws: int = 12
    per_yaw: int = 80
    cell: float = 0.0025
    margin: float = 0.003
    reach: float = 0.13
    deepest: float = 0.034
    shallowest: float = 0.012
    flat: float = 0.0015
    width_cost: float = 0.1
    offset_cost: float = 1.5
    lever_cost: float = 0.4
    depth_cost: float = 1.0
    turn_cost: float = 0.02
    room: float = 0.02
    room_cost: float = 0.5
    highest: float = 0.02


def grasps_from_above(
    thing: Points, surroundings: Points, *, frame: Pose, center_of_mass: Vector3
) -> list[Grasp]:
    """All grasps from straight above, best first; arguments as for `grasps_turned`."""
    yaws = GraspSearch().yaws
    turns = [downward(float(yaw)) for yaw in np.arange(yaws) * math.pi / yaws]
    return grasps_turned(turns, thing, surroundings, frame=frame, center_of_mass=center_of_mass)


def grasps_turned(
    turns: Iterable[Matrix3],
    thing: Points,
    surroundings: Points,
    *,
    frame: Pose,
    center_of_mass: Vector3,
    search: GraspSearch | None = None,
) -> list[Grasp]:
    """All grasps found, best first.

    Args:
        turns: Gripper rotations to try; the z axis is the approach direction.
        thing: Points on the object's surface, in world coordinates.
        surroundings: Points on everything else.
        frame: The object's pose; grasps are given in this frame, so that they stay valid when it moves.
        center_of_mass: Of the object, in world coordinates.
        search: Resolution and costs.
    """
    search = search or GraspSearch()
    thing, surroundings = thing - center_of_mass, surroundings - center_of_mass
    reach = float(np.linalg.norm(thing, axis=1).max()) + search.reach
    near = surroundings[np.linalg.norm(surroundings, axis=1) < math.sqrt(3) * reach]
    found = []
    for turn in turns:
        for grasp in _View(thing, near, turn=turn, search=search).grasps():
            position = frame.to_local(grasp.pose.position + center_of_mass)
            pose = Pose(position=position, rotation=frame.rotation.T @ grasp.pose.rotation)
            found.append(dataclasses.replace(grasp, pose=pose))
    return sorted(found, key=lambda grasp: grasp.cost)


class _View:
    """The scene in a gripper's frame: x along the closing direction, z against the approach."""

    def __init__(self, thing: Points, surroundings: Points, *, turn: Matrix3, search: GraspSearch) -> None:
        self._turn, self._search = turn, search
        self._upright = turn @ np.diag([1.0, -1.0, -1.0])
        self._thing = thing @ self._upright
        reach = float(np.abs(self._thing[:, :2]).max()) + search.reach

        def seen(points: Points) -> HeightMap:
            return HeightMap.over(points, center=np.zeros(2), reach=reach, cell=search.cell)

        self._own, self._others = seen(self._thing), seen(surroundings @ self._upright)
        self._all = dataclasses.replace(self._own, top=np.maximum(self._own.top, self._others.top))
        self._turned_away = math.acos(min(abs(float(turn[1, 0])), 1.0))

    def grasps(self) -> Iterator[Grasp]:
        """All feasible grasps with this rotation."""
        shape, search = self._search.shape, self._search
        material = self._own.under_rectangle((shape.inner - search.margin, shape.pad_half_width))
        between = self._others.under_rectangle((shape.inner, shape.half_width + search.margin))
        free = np.maximum(self._lowest_tips(self._all, search.margin), between + search.margin)
        tips = np.maximum(free, material - search.deepest)
        easy = self._lowest_tips(self._others, search.margin + search.room)
        for cell in self._sample(material - tips > search.shallowest):
            grasp = self._close_over(cell, tips, easy)
            if grasp is not None:
                missing = search.deepest - (material - tips)[tuple(cell)]
                yield dataclasses.replace(grasp, cost=grasp.cost + search.depth_cost * float(missing))

    def _lowest_tips(self, seen: HeightMap, margin: float) -> Float64[np.ndarray, "nx ny"]:
        """The lowest fingertip height with a margin, for every cell as the grasp's center."""
        shape = self._search.shape

        def under_fingers(outer: float) -> Float64[np.ndarray, "nx ny"]:
            half = ((outer - shape.inner) / 2 + margin, shape.half_width + margin)
            middle = (shape.inner + outer) / 2
            return np.maximum(*(seen.under_rectangle(half, side * middle) for side in (-1, 1)))

        ends, thicker = under_fingers(shape.outer), under_fingers(shape.thick_outer)
        hand = seen.under_rectangle((shape.hand[0] + margin, shape.hand[1] + margin))
        return np.maximum.reduce([ends, thicker - shape.thick, hand - shape.tip - shape.palm]) + margin

    def _sample(self, possible: Bool[np.ndarray, "nx ny"]) -> Int64[np.ndarray, "_ 2"]:
        """An evenly spaced subset of the feasible cells."""
        cells = np.argwhere(possible)
        return cells[:: max(1, math.ceil(len(cells) / self._search.per_yaw))]

    def _close_over(
        self,
        cell: Int64[np.ndarray, " 2"],
        tips: Float64[np.ndarray, "nx ny"],
        easy: Float64[np.ndarray, "nx ny"],
    ) -> Grasp | None:
        """The grasp at a cell, centered between the fingers if there is room."""
        search = self._search
        x, y = self._all.center_of(cell)
        tip = tips[tuple(cell)]
        touched = self._between_pads(x, y, tip)
        if len(touched) == 0:
            return None
        low, high = touched[:, 0].min(), touched[:, 0].max()
        middle = (low + high) / 2
        centered = self._all.cells_of(np.array([[middle, y]]))[0]
        if tips[tuple(centered)] <= tip + search.flat:
            x, cell = middle, centered
        crowded = min(max(float(easy[tuple(cell)]) - float(tip), 0.0), search.highest)
        cost = (
            search.width_cost * (high - low)
            + search.offset_cost * abs(middle - x)
            + search.lever_cost * (math.hypot(middle, y) + abs(y))
            + search.turn_cost * self._turned_away
            + search.room_cost * crowded
            + sum(abs(self._touched_at(end, touched) - y) for end in (low, high))
        )
        position = self._upright @ np.array([x, y, tip + search.shape.tip])
        pose = Pose(position=position, rotation=self._turn)
        return Grasp(pose=pose, width=float(high - low), cost=float(cost))

    def _between_pads(self, x: float, y: float, tip: float) -> Points:
        """The object's points between the pads."""
        shape, points = self._search.shape, self._thing
        return points[
            (np.abs(points[:, 0] - x) < shape.inner)
            & (np.abs(points[:, 1] - y) < shape.pad_half_width)
            & (points[:, 2] > tip)
            & (points[:, 2] < tip + shape.pad_high)
        ]

    def _touched_at(self, end: float, touched: Points) -> float:
        """Where across its width a finger from one end first touches the object."""
        return float(touched[np.abs(touched[:, 0] - end) < self._search.flat, 1].mean())
