"""Joint waypoints of the arm for picking and placing."""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float64

from sim_envs.droid.control import Joints
from sim_envs.droid.robot import ARM_JOINTS, FINGER_JOINT, GRIP_SITE, MIMICS
from sim_envs.droid.station import RESET_JOINTS, Station
from sim_envs.scripted.kinematics import ArmJoints, ReachabilityCheck
from sim_envs.scripted.poses import Pose, Vector3

_TRAVEL = 0.18
"""Height (m) of the grip site above the table on the way."""

_ABOVE = 0.14
"""Minimal height (m) from which the hand descends to a grasp or a release, and to which it rises again."""

_NEAR, _BY = 0.012, 0.06
"""Tolerances (rad) of all joints at waypoints: of grasps and releases, and on the way."""

_HOVER, _LOWERING = 0.03, 0.8
"""Height (m) above a moving target at which the hand waits, and the time (s) it takes to lower from there."""

_LETTING_GO = 0.4
"""Seconds that the gripper takes to release an object."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointWaypoint:
    """A waypoint of the arm.

    Attributes:
        joints: Joint positions, rad.
        grip: Gripper command on the way.
        near: Tolerance of all joints, rad.
        grips: Whether to wait there until the gripper has stopped.
        not_before: Simulated time (s) until which to wait there.
        follows: The object that the waypoint moves with, and its displacement (m) at `joints`; None if fixed.
    """

    joints: Joints
    grip: float
    near: float = _BY
    grips: bool = False
    not_before: float = 0.0
    follows: tuple[str, Vector3] | None = None

    def following(self, station: Station, name: str) -> "JointWaypoint":
        """The waypoint, moving with an object from now on if that moves by itself."""
        mover = station.movers.get(name)
        return dataclasses.replace(self, follows=(name, mover.offset())) if mover and mover.leads else self

    def after(self, station: Station, seconds: float) -> "JointWaypoint":
        """The waypoint some seconds from now; the arm waits while it cannot follow."""
        if self.follows is None:
            return self
        name, start = self.follows
        way = station.movers[name].offset(seconds) - start
        joints = reach_of(station).shifted(self.joints, way)
        if joints is None:
            return dataclasses.replace(self, joints=station.joints.copy(), not_before=math.inf)
        return dataclasses.replace(self, joints=joints)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimedGrasp:
    """A grasp with its time.

    Attributes:
        pose: Pose of the grip site.
        closing: Closing direction, rad.
        closes: Simulated time (s) at which the fingers start to close; None if it does not matter.
        lifted: When the object is grasped, s from now.
    """

    pose: Pose
    closing: float
    closes: float | None
    lifted: float


def rise(reach: ReachabilityCheck, hand: Pose, *, grip: float) -> Iterator[JointWaypoint]:
    """Move straight up, unless the hand is already high."""
    above = reach.along([hand.at_height(_TRAVEL)]) if hand.position[2] < _TRAVEL - 0.04 else None
    if above is not None:
        yield JointWaypoint(joints=above[0], grip=grip)


def pick(reach: ReachabilityCheck, grasp: TimedGrasp, beside: int) -> Iterator[JointWaypoint]:
    """Move down, close at the grasp's time, move up; `beside` is the id of the body that may be touched."""
    path = solved(reach, descent(grasp.pose), beside)
    for joints in path:
        yield JointWaypoint(joints=joints, grip=0.0, near=_NEAR if joints is path[-1] else _BY)
    if grasp.closes is not None:
        yield JointWaypoint(joints=path[-1], grip=0.0, not_before=grasp.closes)
    yield JointWaypoint(joints=path[-1], grip=1.0, grips=True)
    for joints in reversed(path[:-1]):
        yield JointWaypoint(joints=joints, grip=1.0)


def place(reach: ReachabilityCheck, drop: Pose, when: float | None) -> Iterator[JointWaypoint]:
    """Move down and release, at a simulated time (s) if given."""
    *way, down = solved(reach, descent(drop), None)
    for joints in way:
        yield JointWaypoint(joints=joints, grip=1.0)
    if when is None:
        yield JointWaypoint(joints=down, grip=1.0, near=_NEAR)
    else:
        (above,) = solved(reach, [drop.at_height(drop.position[2] + _HOVER)], None)
        yield JointWaypoint(joints=above, grip=1.0, not_before=when - _LETTING_GO - _LOWERING)
        yield JointWaypoint(joints=down, grip=1.0, not_before=when - _LETTING_GO)
    yield JointWaypoint(joints=down, grip=0.0, grips=True)
    yield JointWaypoint(joints=way[0], grip=0.0)


def solved(reach: ReachabilityCheck, poses: Sequence[Pose], beside: int | None) -> list[Joints]:
    """Joint positions for poses that are known to be reachable in sequence."""
    path = reach.along(poses, start=RESET_JOINTS, beside=beside)
    assert path is not None, "the same poses were reached before"
    return path


def descent(pose: Pose) -> list[Pose]:
    """Poses from above down to a pose, in steps of a few centimetres."""
    height = float(pose.position[2])
    top = max(_TRAVEL, height + _ABOVE)
    return [pose.at_height(each) for each in np.linspace(top, height, 2 + math.ceil((top - height) / 0.05))]


def down_at(place: Float64[np.ndarray, " 3"], height: float, closing: float) -> Pose:
    """Pose of the grip site at a position, pointing down and closing along an angle (rad)."""
    cos, sin = math.cos(closing), math.sin(closing)
    rotation = np.array([[cos, sin, 0.0], [sin, -cos, 0.0], [0.0, 0.0, -1.0]])
    return Pose(position=np.array([place[0], place[1], height]), rotation=rotation)


def reach_of(station: Station) -> ReachabilityCheck:
    """A reachability check on a copy of the station's state."""
    model = station.model
    fingers = np.array([model.joint(name).qposadr[0] for name in (FINGER_JOINT, *dict(MIMICS))])
    arm = ArmJoints(
        root=int(model.body("link0").id),
        site=int(model.site(GRIP_SITE).id),
        qpos=station.qpos,
        dof=station.dof,
        fingers=fingers,
        open=np.zeros(len(fingers)),
        limits=np.array([model.joint(name).range for name in ARM_JOINTS]),
        resting=RESET_JOINTS,
    )
    return ReachabilityCheck(model, station.data, arm)
