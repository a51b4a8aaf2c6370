"""Skills for drawers, doors and knobs: pull and push, from the shape and joint of the moving part alone.

Every box of the part is tried from many directions; the hand must be free of collisions before, during and
after the motion: a drawer is pulled by its bar, a door by its handle, and a knob is turned by its ridge.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy.spatial.transform import Rotation

from contracts.truth import Phase
from sim_envs.libero.experts import motions
from sim_envs.libero.experts.motions import CLOSED, OPEN, GripperMotion, Skill, Waypoint
from sim_envs.libero.experts.scene import ExpertScene, FixtureJoint, Goal
from sim_envs.scripted import gripper
from sim_envs.scripted.gripper import FULLY_OPEN, PANDA, has_room, near, thinned
from sim_envs.scripted.poses import Box, Matrix3, Pose, Vector3

_AHEAD = 0.25  # lead (rad) of the hand's target along an arc
_BEYOND = {True: 0.012, False: 0.12}  # overshoot (m for slides, rad for hinges): the arm is compliant
_INSIDE = 0.25  # margin within the goal's range, as a fraction of that range
_DEEPEST_INSIDE = {True: 0.015, False: 0.3}  # maximal margin (m for slides, rad for hinges)
_ANOTHER = (0.01, 0.2)  # poses at least this far apart (m, rad) are different attempts
_WAYS = 8  # number of candidate pushes, including those that have failed

_OPENING_STEPS = 8

_RESTING = gripper.downward(math.pi / 2)  # rotation of the hand of the resting arm
_HALF_TURN = np.diag([-1.0, -1.0, 1.0])  # rotation that a symmetric gripper does not notice
_CLOSE_BEHIND = 0.015  # distance (m) behind the part at which the hand descends if there is no room for more
_STAND_OFF = 0.06  # distance (m) from the part at which the hand stops before it approaches
_WIDEST = 0.066  # maximal thickness (m) of a grasped part: the open fingers are 0.076 apart
_DEEPEST = 0.022  # maximal extent (m) of a part from the grip site towards the palm
_SHALLOWER = (0.0, 0.004)  # offsets (m) of the grasp: with the middle of the pads, or their tips

_MARGIN = 0.001
_STEEP = 0.2  # maximal sine of a hand's upward angle: beyond it the arm would obstruct itself

_FAN = np.arange(24) * math.pi / 12
_TILTS = np.deg2rad([0.0, 15.0, -15.0, 30.0, -30.0])
_LEANS = np.deg2rad([0.0, 15.0, 30.0, 45.0, 60.0])
_SPOTS = (0.0, 0.75, -0.75)  # contact points on a face, as fractions of half its sides

_TOUCH = 0.001
_AGAINST = 0.9  # minimal cosine between a face's normal and the direction opposite to the part's motion
_LEVER_WORTH = 4.0  # cost of a metre of lever, in radians of hand rotation
_MAX_STRAIN = 2.2  # maximal rotation (rad) of the hand from rest
_GRIP_WORTH = 20.0  # value of a metre of material between the pads, in radians of hand rotation
_LONG_ENOUGH = 0.03
_REACH = 0.45
_FINGERS_REACH = 0.065
_FINE, _COARSE = 0.003, 0.007  # cells (m) to which points near the fingers, and the hand, are thinned


def pull(scene: ExpertScene, goal: Goal) -> Skill:
    """Grasp the goal's part and move it until the goal holds; if it cannot be grasped, push it."""
    tried: list[Pose] = []
    while (travel := _travel(scene, goal)) != 0.0:
        ways = ways_to_hold(scene, _joint(scene, goal), travel)
        hold = next((hold for hold in ways if _differs(hold, tried)), None)
        if hold is None:
            yield from push(scene, goal)
            return
        tried.append(hold)
        yield motions.reach(scene, hold, hold.backed_off(_STAND_OFF), OPEN)
        yield from motions.grab(scene, _joint(scene, goal).fixture)
        yield _along(scene, goal, functools.partial(_joint(scene, goal).carried, scene.gripper))
        yield motions.release(scene, Phase.RETREAT, steps=_OPENING_STEPS)
        yield motions.leave(scene, -_STAND_OFF * scene.gripper.rotation[:, 2], OPEN)


def push(scene: ExpertScene, goal: Goal) -> Skill:
    """Push the goal's part with closed fingers until the goal holds."""
    tried: list[Pose] = []
    while (travel := _travel(scene, goal)) != 0.0:
        joint = _joint(scene, goal)
        ways = list(itertools.islice(ways_to_push(scene, joint, travel), _WAYS))
        fresh = [way for way in ways if _differs(way.pose, tried)]
        if not fresh:
            tried.clear()
            yield motions.release(scene, Phase.RETREAT, steps=_OPENING_STEPS)
            continue
        tried.append(fresh[0].pose)
        before = fresh[0].before(joint, travel)
        yield motions.reach(scene, before, before, CLOSED)
        yield _along(scene, goal, functools.partial(fresh[0].after, _joint(scene, goal)))
        yield motions.leave(scene, before.position - fresh[0].pose.position, CLOSED)


def _joint(scene: ExpertScene, goal: Goal) -> FixtureJoint:
    joint = scene.joint(goal.arguments[0])
    assert joint is not None
    return joint


def _travel(scene: ExpertScene, goal: Goal) -> float:
    """Remaining travel of the joint until the goal holds with a margin; 0 if it holds."""
    joint = _joint(scene, goal)
    wanted = scene.wanted(goal.predicate, joint)
    assert wanted is not None
    low, high = wanted
    if scene.satisfied(goal):
        return 0.0
    inside = min(_INSIDE * (high - low), _DEEPEST_INSIDE[joint.slides])
    aim = low + inside if joint.value < low + inside else high - inside
    return aim - joint.value


def _differs(pose: Pose, tried: Sequence[Pose]) -> bool:
    """Whether a pose is worth trying after others have failed."""
    return not any(pose.is_within(other, *_ANOTHER) for other in tried)


def _along(scene: ExpertScene, goal: Goal, pose_after: Callable[[float], Pose]) -> GripperMotion:
    """Move the hand along a joint until its value satisfies the goal.

    `pose_after` maps a displacement of the joint from its current value to the hand's pose.
    """
    begin = _joint(scene, goal)
    aim = begin.value + _travel(scene, goal)
    beyond = math.copysign(_BEYOND[begin.slides], aim - begin.value)
    farthest = np.inf if begin.slides else _AHEAD
    end = pose_after(aim - begin.value)

    def path() -> Sequence[Waypoint]:
        value = _joint(scene, goal).value
        ahead = float(np.clip(aim + beyond - value, -farthest, farthest))
        return (Waypoint(pose=pose_after(value + ahead - begin.value), near=0.0, aligned=0.0),)

    return GripperMotion(
        phase=goal.phase,
        path=path,
        grip=CLOSED,
        steps=motions.time_for(begin.carried(end, begin.value - aim), (Waypoint(pose=end),)),
        interrupted=lambda: (_joint(scene, goal).value - aim) * beyond >= 0.0,
    )


def ways_to_hold(scene: ExpertScene, joint: FixtureJoint, by: float) -> Iterator[Pose]:
    """Poses for grasping the part that a joint moves by a displacement, easiest first."""
    obstacles = _Obstacles(scene, joint)
    tries = []

    def strain(pose: Pose) -> float:
        """Maximal rotation (rad) of the hand from rest, over start and end."""
        return max(_turned(pose.rotation), _turned(joint.carried(pose, by).rotation))

    for box in scene.part_boxes(joint):
        poses = [
            min(pose, dataclasses.replace(pose, rotation=pose.rotation @ _HALF_TURN), key=strain)
            for pose in _grasps_of(box)
        ]
        poses = [pose for pose in poses if strain(pose) < _MAX_STRAIN]
        for pose in obstacles.with_fingers_free(poses, FULLY_OPEN):
            # Half the length of the material between the pads, where more is no better; short parts slip.
            gripped = min(box.half_along(pose.rotation[:, 1]), _LONG_ENOUGH)
            tries.append((pose, strain(pose) - _GRIP_WORTH * gripped))
    tries.sort(key=lambda found: found[1])
    for going in (obstacles.beside_all, obstacles.beside_fixtures):
        for pose, _ in tries:
            coming = [pose.backed_off(back) for back in (_STAND_OFF, _STAND_OFF / 2, 0.0)]
            way = [joint.carried(pose, by * part) for part in (0.5, 1.0)]
            if has_room(coming, FULLY_OPEN, obstacles.before, margin=_MARGIN) and has_room(
                way, FULLY_OPEN / 2, going, margin=_MARGIN
            ):
                yield pose


@dataclasses.dataclass(frozen=True, kw_only=True)
class Push:
    """A push of a part with a closed hand from behind."""

    pose: Pose  # pose of the grip site
    spot: Vector3  # contact point of the fingers
    back: float = _STAND_OFF  # distance (m) behind the contact point at which the hand comes down

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
    """Pushes that displace the part that a joint moves, easiest first; at need, objects are pushed aside."""
    obstacles = _Obstacles(scene, joint)
    sign = math.copysign(1.0, by)
    tries: list[Push] = []
    for box in scene.part_boxes(joint):
        for spot in _contact_points(box, joint, sign):
            poses = list(_closed_hands(spot, sign * joint.direction_at(spot)))
            tries += [Push(pose=pose, spot=spot) for pose in obstacles.with_fingers_free(poses, 0.0)]

    def cost(push: Push) -> float:
        """Cost of rotating the hand, and of a point off the middle of a slide or near the axis of a hinge."""
        lever = float(np.linalg.norm(np.cross(joint.axis, push.spot - joint.anchor)[:2]))
        return _turned(push.pose.rotation) + _LEVER_WORTH * (lever if joint.slides else -lever)

    tries.sort(key=cost)
    for before, going, back in (
        (obstacles.before, obstacles.beside_all, _STAND_OFF),
        (obstacles.before, obstacles.beside_fixtures, _STAND_OFF),
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
        own, others, fixtures = scene.around_part(joint)
        center = own.mean(axis=0)
        others, fixtures = near(others, center, _REACH), near(fixtures, center, _REACH)
        self._closely = thinned(np.concatenate([own, others]), _FINE)
        self.before = thinned(self._closely, _COARSE)
        self.beside_all, self.beside_fixtures = thinned(others, _COARSE), thinned(fixtures, _COARSE)

    def with_fingers_free(self, poses: Sequence[Pose], opening: float) -> list[Pose]:
        """The poses, of some that are close together, without collisions of the fingers."""
        if not poses:
            return []
        reach = _FINGERS_REACH + max(np.abs(pose.position - poses[0].position).max() for pose in poses)
        points = near(self._closely, poses[0].position, float(reach))
        return [pose for pose in poses if gripper.fingers_have_room(pose, opening, points)]


def _grasps_of(box: Box) -> Iterator[Pose]:
    """Grasps with the fingers on two opposite sides of a box."""
    longest = int(np.argmax(box.half))
    for side in (axis for axis in range(3) if axis != longest):
        for tilt in _TILTS:
            turn = Rotation.from_rotvec(tilt * box.pose.rotation[:, longest]).as_matrix()
            closing = turn @ box.pose.rotation[:, side]
            if 2 * box.half_along(closing) > _WIDEST:
                continue
            along = box.pose.rotation[:, longest]
            across = np.cross(closing, along)
            for angle in _FAN:
                approach = math.cos(angle) * across + math.sin(angle) * along
                if approach[2] < _STEEP:
                    pose = Pose(position=box.pose.position, rotation=gripper.hand_rotation(closing, approach))
                    cosines = np.abs(approach @ box.pose.rotation)
                    depth = float((box.half / np.maximum(cosines, 1e-9)).min())
                    back = max(0.0, depth - _DEEPEST)
                    yield from (pose.backed_off(back + more) for more in _SHALLOWER)


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
        for closing, half in (
            (np.cross(across, approach), gripper.FIST_HALF[0]),
            (across, gripper.FIST_HALF[1]),
        ):
            rotation = gripper.hand_rotation(closing, approach)
            rotation = min((rotation, rotation @ _HALF_TURN), key=_turned)
            gap = half * math.cos(lean) + PANDA.tip * math.sin(lean) + _TOUCH
            yield Pose(position=spot - gap * flat, rotation=rotation)


def _turned(rotation: Matrix3) -> float:
    """Rotation (rad) of a hand from rest."""
    return math.acos(min(1.0, max(-1.0, (float(np.sum(rotation * _RESTING)) - 1) / 2)))
