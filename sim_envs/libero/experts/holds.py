"""Finds grasps and pushes for the moving part of a fixture, from its shape and joint alone.

Every box of the part is tried from many directions; the hand must be free of collisions before, during and
after the motion: a drawer is pulled by its bar, a door by its handle, and a knob is turned by its ridge.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.spatial.transform import Rotation

from sim_envs.libero.experts.joints import FixtureJoint
from sim_envs.libero.experts.scene import ExpertScene
from sim_envs.scripted.gripper import (
    FIST_HALF,
    FULLY_OPEN,
    PANDA,
    downward,
    fingers_have_room,
    has_room,
    near,
    thinned,
)
from sim_envs.scripted.poses import Box, Matrix3, Pose, Vector3

RESTING = downward(math.pi / 2)
"""Rotation of the hand of the resting arm."""

_CLOSE_BEHIND = 0.015
"""Distance (m) behind the part at which the hand descends if there is no room for more."""

STAND_OFF = 0.06
"""Distance (m) from the part at which the hand stops before it approaches."""

_WIDEST = 0.066
"""Maximal thickness (m) of a grasped part: the open fingers are 0.076 apart."""

_DEEPEST = 0.022
"""Maximal extent (m) of a part from the grip site towards the palm."""

_SHALLOWER = (0.0, 0.004)
"""Offsets (m) of the grasp: with the middle of the pads, or only with the fingertips."""

_MARGIN = 0.001
_STEEP = 0.2
"""Maximal sine of a hand's upward angle: beyond it the arm would obstruct itself."""

_FAN = np.arange(24) * math.pi / 12
_TILTS = np.deg2rad([0.0, 15.0, -15.0, 30.0, -30.0])
_LEANS = np.deg2rad([0.0, 15.0, 30.0, 45.0, 60.0])
_SPOTS = (0.0, 0.75, -0.75)
"""Contact points on a face, as fractions of half its sides."""

_TOUCH = 0.001
_AGAINST = 0.9
"""Minimal cosine between a face's normal and the direction opposite to the part's motion."""

_LEVER_WORTH = 4.0
"""Cost of a metre of lever, in radians of hand rotation."""

_MAX_STRAIN = 2.2
"""Maximal rotation (rad) of the hand from rest."""

_GRIP_WORTH = 20.0
"""Value of a metre of material between the pads, in radians of hand rotation."""

_LONG_ENOUGH = 0.03

_REACH = 0.45
_FINGERS_REACH = 0.065
_FINE, _COARSE = 0.003, 0.007
"""Cells (m) to which surroundings are thinned: around the fingers, and around the rest of the hand."""


def ways_to_hold(scene: ExpertScene, joint: FixtureJoint, by: float) -> Iterator[Pose]:
    """Poses for grasping the part that a joint moves, easiest first.

    Args:
        scene: The scene.
        joint: The joint.
        by: Displacement of the joint while it is held.
    """
    obstacles = _Obstacles(scene, joint)
    tries = []
    for box in scene.part_boxes(joint):
        poses = [_with_less_strain(pose, joint, by) for pose in _grasps_of(box)]
        poses = [pose for pose in poses if _strain(pose, joint, by) < _MAX_STRAIN]
        free = obstacles.with_fingers_free(poses, FULLY_OPEN)
        tries += [(pose, _strain(pose, joint, by) - _GRIP_WORTH * _gripped(box, pose)) for pose in free]
    tries.sort(key=lambda found: found[1])
    for going in (obstacles.beside_all, obstacles.beside_fixtures):
        for pose, _ in tries:
            coming = [pose.backed_off(back) for back in (STAND_OFF, STAND_OFF / 2, 0.0)]
            way = [joint.carried(pose, by * part) for part in (0.5, 1.0)]
            if has_room(coming, FULLY_OPEN, obstacles.before, margin=_MARGIN) and has_room(
                way, FULLY_OPEN / 2, going, margin=_MARGIN
            ):
                yield pose


@dataclasses.dataclass(frozen=True, kw_only=True)
class Push:
    """A push of a part with a closed hand from behind.

    Attributes:
        pose: Pose of the grip site.
        spot: Contact point of the fingers.
        back: Distance (m) behind the contact point at which the hand comes down.
    """

    pose: Pose
    spot: Vector3
    back: float = STAND_OFF

    def before(self, joint: FixtureJoint, by: float) -> Pose:
        """The pose at which the hand descends."""
        way = math.copysign(1.0, by) * joint.direction_at(self.spot)
        return self.pose.shifted(-self.back * way)

    def after(self, joint: FixtureJoint, by: float) -> Pose:
        """The hand's pose, not rotated, after a displacement of the joint."""
        spot = joint.carried(Pose(position=self.spot, rotation=np.eye(3)), by).position
        sign = math.copysign(1.0, by)
        before, after = sign * joint.direction_at(self.spot), sign * joint.direction_at(spot)
        gap = float((self.spot - self.pose.position) @ before)
        beside = self.pose.position - self.spot + gap * before
        return Pose(position=spot - gap * after + beside, rotation=self.pose.rotation)


def ways_to_push(scene: ExpertScene, joint: FixtureJoint, by: float) -> Iterator[Push]:
    """Pushes of the part that a joint moves, easiest first; objects in the way are pushed aside if necessary.

    Args:
        scene: The scene.
        joint: The joint.
        by: Displacement of the joint.
    """
    obstacles = _Obstacles(scene, joint)
    sign = math.copysign(1.0, by)
    tries: list[Push] = []
    for box in scene.part_boxes(joint):
        for spot in _contact_points(box, joint, sign):
            poses = list(_closed_hands(spot, sign * joint.direction_at(spot)))
            tries += [Push(pose=pose, spot=spot) for pose in obstacles.with_fingers_free(poses, 0.0)]
    tries.sort(key=lambda push: _push_cost(push, joint))
    for before, going, back in (
        (obstacles.before, obstacles.beside_all, STAND_OFF),
        (obstacles.before, obstacles.beside_fixtures, STAND_OFF),
        (obstacles.before, obstacles.beside_fixtures, _CLOSE_BEHIND),
        (obstacles.beside_fixtures, obstacles.beside_fixtures, _CLOSE_BEHIND),
    ):
        for push in (dataclasses.replace(push, back=back) for push in tries):
            after = [push.after(joint, by * part) for part in (0.5, 1.0)]
            if has_room([push.before(joint, by), push.pose], 0.0, before, margin=0.0) and has_room(
                after, 0.0, going, margin=0.0
            ):
                yield push


class _Obstacles:
    """Obstacles of the hand before and during the part's motion."""

    def __init__(self, scene: ExpertScene, joint: FixtureJoint) -> None:
        own = scene.part_surface(joint)
        center = own.mean(axis=0)
        others = near(scene.surroundings_of_part(joint), center, _REACH)
        fixtures = near(scene.fixtures_beside(joint), center, _REACH)
        self._closely = thinned(np.concatenate([own, others]), _FINE)
        self.before = thinned(self._closely, _COARSE)
        self.beside_all, self.beside_fixtures = thinned(others, _COARSE), thinned(fixtures, _COARSE)

    def with_fingers_free(self, poses: Sequence[Pose], opening: float) -> list[Pose]:
        """The poses, of some that are close together, without collisions of the fingers."""
        if not poses:
            return []
        reach = _FINGERS_REACH + max(np.abs(pose.position - poses[0].position).max() for pose in poses)
        points = near(self._closely, poses[0].position, float(reach))
        return [pose for pose in poses if fingers_have_room(pose, opening, points)]


def _grasps_of(box: Box) -> Iterator[Pose]:
    """Grasps with the fingers on two opposite sides of a box."""
    longest = int(np.argmax(box.half))
    for side in (axis for axis in range(3) if axis != longest):
        for tilt in _TILTS:
            turn = Rotation.from_rotvec(tilt * box.pose.rotation[:, longest]).as_matrix()
            closing = turn @ box.pose.rotation[:, side]
            if 2 * _support(box, closing) > _WIDEST:
                continue
            along = box.pose.rotation[:, longest]
            across = np.cross(closing, along)
            for angle in _FAN:
                approach = math.cos(angle) * across + math.sin(angle) * along
                if approach[2] < _STEEP:
                    pose = Pose(position=box.pose.position, rotation=_rotation(closing, approach))
                    back = max(0.0, _depth(box, approach) - _DEEPEST)
                    yield from (pose.backed_off(back + more) for more in _SHALLOWER)


def _support(box: Box, direction: Vector3) -> float:
    """Half the extent (m) of a box along a direction."""
    return float(np.abs(direction @ box.pose.rotation) @ box.half)


def _gripped(box: Box, pose: Pose) -> float:
    """Half the length (m) of the material between the pads, where more is no better; short parts slip."""
    return min(_support(box, pose.rotation[:, 1]), _LONG_ENOUGH)


def _depth(box: Box, direction: Vector3) -> float:
    """Depth (m) of a box's center below its surface along a direction."""
    cosines = np.abs(direction @ box.pose.rotation)
    return float((box.half / np.maximum(cosines, 1e-9)).min())


def _contact_points(box: Box, joint: FixtureJoint, sign: float) -> Iterator[Vector3]:
    """Contact points on the face of a box opposite to its direction of motion."""
    way = sign * joint.direction_at(box.pose.position)
    cosines = way @ box.pose.rotation
    axis = int(np.argmax(np.abs(cosines)))
    if abs(cosines[axis]) < _AGAINST:
        return
    first, second = (other for other in range(3) if other != axis)
    for part, other in itertools.product(_SPOTS, _SPOTS):
        local = np.zeros(3)
        local[axis] = -math.copysign(box.half[axis], cosines[axis])
        local[first], local[second] = part * box.half[first], other * box.half[second]
        yield box.pose.to_world(local)


def _closed_hands(spot: Vector3, way: Vector3) -> Iterator[Pose]:
    """Poses of closed hands that touch a point from behind, with different tilts and sides of a finger."""
    flat = np.array([way[0], way[1], 0.0]) / max(float(np.hypot(way[0], way[1])), 1e-9)
    across = np.cross(np.array([0.0, 0.0, 1.0]), flat)
    for lean in _LEANS:
        approach = math.sin(lean) * flat - math.cos(lean) * np.array([0.0, 0.0, 1.0])
        for closing, half in ((np.cross(across, approach), FIST_HALF[0]), (across, FIST_HALF[1])):
            rotation = _nearest_to_rest(_rotation(closing, approach))
            gap = half * math.cos(lean) + PANDA.tip * math.sin(lean) + _TOUCH
            yield Pose(position=spot - gap * flat, rotation=rotation)


def _rotation(closing: Vector3, approach: Vector3) -> Matrix3:
    return np.stack([closing, np.cross(approach, closing), approach], axis=1)


def _nearest_to_rest(rotation: Matrix3) -> Matrix3:
    """The rotation or its equivalent for a symmetric gripper, whichever is nearer to rest."""
    return min((rotation, rotation @ np.diag([-1.0, -1.0, 1.0])), key=_turned)


def _turned(rotation: Matrix3) -> float:
    """Rotation (rad) of a hand from rest."""
    return math.acos(min(1.0, max(-1.0, (float(np.sum(rotation * RESTING)) - 1) / 2)))


def _with_less_strain(pose: Pose, joint: FixtureJoint, by: float) -> Pose:
    halves: Sequence[Matrix3] = (pose.rotation, pose.rotation @ np.diag([-1.0, -1.0, 1.0]))
    poses = [Pose(position=pose.position, rotation=half) for half in halves]
    return min(poses, key=lambda pose: _strain(pose, joint, by))


def _strain(pose: Pose, joint: FixtureJoint, by: float) -> float:
    """Maximal rotation (rad) of the hand from rest, over start and end."""
    return max(_turned(pose.rotation), _turned(joint.carried(pose, by).rotation))


def _push_cost(push: Push, joint: FixtureJoint) -> float:
    """Cost of rotating the hand, and of a point off the middle of a slide or near the axis of a hinge."""
    lever = float(np.linalg.norm(np.cross(joint.axis, push.spot - joint.anchor)[:2]))
    return _turned(push.pose.rotation) + _LEVER_WORTH * (lever if joint.slides else -lever)
