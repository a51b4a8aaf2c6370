"""Dimensions that change where an episode starts: the arm's joints, and where objects are."""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import mujoco
import numpy as np
from jaxtyping import Float64
from typing_extensions import override

from sim_envs.moving import FreeSpace
from sim_envs.perturbations.dimension import Dimension
from sim_envs.perturbations.scene import Scene
from sim_envs.scripted.surfaces import Points

_RADIUS = 0.1  # rad per severity, as in LIBERO-plus
_LIMIT = 0.05  # least distance (rad) of a joint from its limits
_ABOVE = 0.06  # least height (m) of the fingertips above what the objects stand on


class Robot(Dimension):
    """The arm starts with other joint positions, which its controller holds."""

    medium, moves = "scene", True
    meanings = tuple(
        f"the arm starts {_RADIUS * s:g} rad away in joint space, in a drawn direction" for s in range(1, 6)
    )

    @override
    def change(self, scene: Scene, severity: int, draws: np.random.Generator) -> bool:
        model, data = scene.model, scene.data
        way = draws.normal(size=len(scene.joints))
        touching = scene.touching(scene.of_robot)
        data.qpos[scene.joints] += severity * _RADIUS * way / np.linalg.norm(way)
        mujoco.mj_forward(model, data)
        for joint in np.flatnonzero(
            np.isin(model.jnt_qposadr, scene.joints) & model.jnt_limited.astype(bool)
        ):
            low, high = model.jnt_range[joint]
            if not low + _LIMIT <= data.qpos[model.jnt_qposadr[joint]] <= high - _LIMIT:
                return False
        ground = min(_clouds(scene)[body][:, 2].min() for body in scene.wanted)
        high_enough = data.site_xpos[scene.grip][2] >= ground + _ABOVE
        return bool(high_enough) and scene.touching(scene.of_robot) <= touching


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Group:
    """Objects that overlap when seen from above, and so move together."""

    bodies: tuple[int, ...]
    points: Points

    @property
    def ground(self) -> float:
        return float(self.points[:, 2].min())

    @property
    def middle(self) -> Float64[np.ndarray, " 3"]:
        return (self.points.min(axis=0) + self.points.max(axis=0)) / 2


def _clouds(scene: Scene) -> dict[int, Points]:
    """Points on the collision surfaces of the objects, and of what belongs to the task."""
    collisions = scene.collisions
    bodies = [*scene.objects.values(), *scene.wanted]
    roots = scene.model.body_rootid
    clouds = {body: collisions.surface(roots == roots[body]) for body in dict.fromkeys(bodies)}
    return {body: points if len(points) else scene.data.xpos[[body]] for body, points in clouds.items()}


def _groups(scene: Scene) -> list[_Group]:
    clouds = _clouds(scene)
    groups: list[set[int]] = []
    for body in scene.objects.values():
        joined = {body}
        for group in [each for each in groups if any(_overlap(clouds[body], clouds[b]) for b in each)]:
            groups.remove(group)
            joined |= group
        groups.append(joined)
    return [
        _Group(bodies=tuple(sorted(group)), points=np.concatenate([clouds[body] for body in group]))
        for group in sorted(groups, key=min)
    ]


def _overlap(one: Points, other: Points) -> bool:
    low, high = (np.array([end(each[:, :2], axis=0) for each in (one, other)]) for end in (np.min, np.max))
    return bool((low.max(axis=0) < high.min(axis=0)).all())


def _shift(scene: Scene, group: _Group, way: Float64[np.ndarray, " 3"]) -> None:
    for body in group.bodies:
        address = int(scene.model.jnt_qposadr[scene.model.body_jntadr[body]])
        scene.data.qpos[address : address + 3] += way


_SHIFT = 0.01  # m per severity: LIBERO-plus's median over its levels is 0.010 to 0.048
_DIRECTIONS = 24


class Layout(Dimension):
    """Objects are shifted where there is room; what stands in or on an object goes with it."""

    medium, moves, objects = "scene", True, 1
    meanings = tuple(
        f"every object that has room shifted by {100 * _SHIFT * s:g} cm, each in a drawn direction"
        for s in range(1, 6)
    )

    @override
    def change(self, scene: Scene, severity: int, draws: np.random.Generator) -> bool:
        data, distance, moved = scene.data, severity * _SHIFT, False
        was_hidden, touching, was_solved = scene.seen() == 0, scene.touching(scene.of_robot), scene.solved()
        for group in _groups(scene):
            own = np.isin(scene.model.body_rootid, scene.model.body_rootid[list(group.bodies)])
            others = scene.collisions.surface(~own)
            space = FreeSpace(group.points, others, may_be_at=scene.bounds.check(data, group.middle))
            for angle in draws.permutation(_DIRECTIONS) * (2 * math.pi / _DIRECTIONS):
                way = np.array([math.cos(angle), math.sin(angle), 0.0])
                if space.along(way, distance) >= distance:
                    _shift(scene, group, distance * way)
                    mujoco.mj_kinematics(scene.model, data)
                    moved = True
                    break
        mujoco.mj_forward(scene.model, data)
        clear = scene.touching(scene.of_robot) <= touching
        seen = bool(((scene.seen() > 0) | was_hidden).all())
        return moved and clear and seen and (was_solved or not scene.solved())


_LEVEL = 0.006  # places whose heights differ by less (m) are on the same ground


class Swap(Dimension):
    """Objects exchange places, one that is to be grasped among them."""

    medium, moves, objects, falls_back = "scene", True, 2, True
    meanings = tuple(
        f"{s + 1} objects (or as many as find room) change places in a circle, one to be grasped among them"
        for s in range(1, 6)
    )

    @override
    def change(self, scene: Scene, severity: int, draws: np.random.Generator) -> bool:
        every = _groups(scene)
        groups = [each for each in every if np.ptp(each.points[:, :2], axis=0).max() < _WIDEST]
        if len(groups) < 2:  # otherwise wider ones would mostly be drawn in vain
            groups = every
        first = [each for each in groups if set(each.bodies) & set(scene.to_grasp)] or groups
        if not first:
            return False
        start = first[draws.integers(len(first))]
        others = [each for each in groups if each is not start and abs(each.ground - start.ground) < _LEVEL]
        chosen = [start, *(others[number] for number in draws.permutation(len(others))[:severity])]
        if len(chosen) < 2:
            return False
        before, beside = scene.places(), draws.uniform(-_BESIDE, _BESIDE, (len(chosen), 3)) * [1, 1, 0]
        for share in (0.0, 0.5, 1.0):
            if self._exchanged(scene, chosen, share * beside):
                return True
            scene.place(before)
        return False

    def _exchanged(
        self, scene: Scene, chosen: Sequence[_Group], beside: Float64[np.ndarray, "group 3"]
    ) -> bool:
        """Put each group in the place of the next, or a distance (m) beside it, if that can be solved."""
        was_hidden, was_solved = scene.seen() == 0, scene.solved()
        every = scene.part_of(*itertools.chain(*(each.bodies for each in chosen)))
        touching = len(scene.touching(every))
        for group, after, way in zip(chosen, [*chosen[1:], chosen[0]], beside, strict=True):
            is_used = bool(set(after.bodies) & set(scene.wanted))  # reached and seen in the control
            if not is_used and not scene.bounds.check(scene.data, group.middle)(after.middle + way):
                return False
            _shift(scene, group, (after.middle - group.middle) * [1, 1, 0] + way)
        mujoco.mj_forward(scene.model, scene.data)
        contacts = scene.data.contact
        deep = (every[contacts.geom].any(axis=1) & (contacts.dist < _DEEPEST)).any()
        apart = len(scene.touching(every)) <= touching and not deep
        seen = bool(((scene.seen() > 0) | was_hidden).all())
        return apart and seen and (was_solved or not scene.solved())


_BESIDE = 0.04  # largest distance (m) along either axis from a place that is too narrow
_WIDEST = 0.18  # m: what is larger, such as a basket, seldom has room in another's place
_DEEPEST = -0.002  # distance (m) of penetrating contacts
