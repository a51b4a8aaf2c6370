"""Where to grasp a thing, from the shapes of the thing and of what surrounds it.

There is no table of objects: collision surfaces are seen as clouds of points, and a gripper that points
down, or another way, is tried at every place and turn. A grasp is possible where both open fingers and the
palm find room and there is material between the pads; so a can is taken across its middle, a carton by its
narrow side, a bowl by its rim, a mug from the side by its handle.
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
    """A pose of the gripper from which closing it takes hold of a thing.

    Attributes:
        pose: Where the grip site is to be, in the thing's frame.
        width: How much material lies between the fingers (m).
        cost: Ranks it among others: lower is better.
    """

    pose: Pose
    width: float
    cost: float

    def differs_from(self, other: "Grasp") -> bool:
        """Whether this is worth a try after the other has failed."""
        moved = np.linalg.norm(self.pose.position - other.pose.position)
        turned = np.linalg.norm(self.pose.twist_to(other.pose)[3:])
        return bool(moved > _ANOTHER_PLACE or turned > _ANOTHER_YAW)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GraspSearch:
    """How finely grasps are looked for, and what makes one better than another.

    Attributes:
        shape: The gripper.
        yaws: Number of yaws tried over half a turn.
        per_yaw: Places looked at closely for each yaw.
        cell: Side of the cells in which the scene is seen (m).
        margin: Room kept around fingers and palm (m).
        reach: How far around the thing the scene is looked at (m).
        deepest: How far the fingertips go below the top of what is between them, at most (m).
        shallowest: And at least (m).
        flat: Points this close (m) to the outermost one are touched together with it.
        width_cost: Per metre of material between the fingers.
        offset_cost: Per metre by which one finger arrives before the other.
        lever_cost: Per metre from the centre of mass, and again per metre of it across the closing direction.
        depth_cost: Per metre that is missing to the deepest.
        turn_cost: Per radian of the closing direction from the one of the resting arm (m).
        room: What the fingers would like to have around them beyond the margin (m).
        room_cost: Per metre by which the fingertips would have to stay higher to have it.
        highest: That height counts up to this (m).
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
    thing: Points,
    surroundings: Points,
    *,
    frame: Pose,
    center_of_mass: Vector3,
    search: GraspSearch | None = None,
) -> list[Grasp]:
    """All grasps found by a gripper that points down, best first; arguments as for `grasps_turned`."""
    search = search or GraspSearch()
    turns = [downward(float(yaw)) for yaw in np.arange(search.yaws) * math.pi / search.yaws]
    return grasps_turned(
        turns, thing, surroundings, frame=frame, center_of_mass=center_of_mass, search=search
    )


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
        turns: The gripper's rotations that are tried; its z axis is the direction from which it comes.
        thing: Points on the surface of what is to be grasped, in world coordinates.
        surroundings: Points on everything else.
        frame: The thing's pose; grasps are given in it, so that they hold when it moves.
        center_of_mass: Of the thing, in world coordinates.
        search: How to look.
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
    """The scene as a gripper of one rotation sees it: x along the closing direction, z against its own."""

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
        """Every possible grasp of this rotation."""
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
        """For every cell as the grasp's centre, how low the fingertips can go with a margin around them."""
        shape = self._search.shape

        def under_fingers(outer: float) -> Float64[np.ndarray, "nx ny"]:
            half = ((outer - shape.inner) / 2 + margin, shape.half_width + margin)
            middle = (shape.inner + outer) / 2
            return np.maximum(*(seen.under_rectangle(half, side * middle) for side in (-1, 1)))

        ends, thicker = under_fingers(shape.outer), under_fingers(shape.thick_outer)
        hand = seen.under_rectangle((shape.hand[0] + margin, shape.hand[1] + margin))
        return np.maximum.reduce([ends, thicker - shape.thick, hand - shape.tip - shape.palm]) + margin

    def _sample(self, possible: Bool[np.ndarray, "nx ny"]) -> Int64[np.ndarray, "_ 2"]:
        """Evenly chosen cells among the possible ones."""
        cells = np.argwhere(possible)
        return cells[:: max(1, math.ceil(len(cells) / self._search.per_yaw))]

    def _close_over(
        self,
        cell: Int64[np.ndarray, " 2"],
        tips: Float64[np.ndarray, "nx ny"],
        easy: Float64[np.ndarray, "nx ny"],
    ) -> Grasp | None:
        """The grasp that closes over a cell, moved so that both fingers arrive together if there is room."""
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
        """The points of the thing that closing fingers would meet."""
        shape, points = self._search.shape, self._thing
        return points[
            (np.abs(points[:, 0] - x) < shape.inner)
            & (np.abs(points[:, 1] - y) < shape.pad_half_width)
            & (points[:, 2] > tip)
            & (points[:, 2] < tip + shape.pad_high)
        ]

    def _touched_at(self, end: float, touched: Points) -> float:
        """Where across its width a finger that comes from one end first meets the thing."""
        return float(touched[np.abs(touched[:, 0] - end) < self._search.flat, 1].mean())
