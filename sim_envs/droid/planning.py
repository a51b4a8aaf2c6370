"""Plans the expert's moves as joint waypoints: pick-and-place, and blocking a ball."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from contracts.errors import UsageError
from sim_envs.droid import shapes
from sim_envs.droid.control import ARM_JOINTS, FINGER_JOINTS, GRIP_SITE, GRIPPER_SPEED, GRIPPER_STROKE, Joints
from sim_envs.droid.shapes import BananaShape, BinShape, Shape, Vessel
from sim_envs.droid.station import RESET_JOINTS, ObjectPose, Station
from sim_envs.droid.task_file import InsideCriterion, OnCriterion, StoppedCriterion, TaskConfig
from sim_envs.scripted.gripper import downward
from sim_envs.scripted.kinematics import ReachabilityCheck
from sim_envs.scripted.poses import Pose, Vector3

FASTEST = 0.9  # maximal joint velocity (rad/s) of the expert

_PASSING, _SETTLING = 0.2, 1.0  # seconds added to travel time at full speed: per waypoint, and once
_STEP, _WITHIN = 0.25, 12.0  # spacing of candidate interception times, and their range (s)
_OFF = 0.005  # an object this far (m) below its carrier's surface is no longer carried


@dataclasses.dataclass(frozen=True, kw_only=True)
class CarrierMotion:
    """Motion of an object on its carrier."""

    velocity: Vector3 = dataclasses.field(default_factory=lambda: np.zeros(3))  # m/s
    rate: float = 0.0  # rotation about a vertical axis, rad/s
    axis: Vector3 = dataclasses.field(default_factory=lambda: np.zeros(3))  # a point of that axis, m

    @property
    def at_rest(self) -> bool:
        """Whether the object is at rest."""
        return not self.velocity.any() and self.rate == 0

    def after(self, point: Vector3, seconds: float) -> Vector3:
        """The position (m) of a point of the object after some seconds."""
        cos, sin = math.cos(self.rate * seconds), math.sin(self.rate * seconds)
        turned = np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
        return self.axis + turned @ (point - self.axis) + seconds * self.velocity

    def velocity_at(self, point: Vector3) -> Vector3:
        """Velocity (m/s) of a point of the object."""
        return self.velocity + self.rate * np.array([self.axis[1] - point[1], point[0] - self.axis[0], 0.0])

    def times(self, earliest: float) -> Sequence[float]:
        """Candidate interception times, in seconds from now; only the earliest if it is at rest."""
        return (earliest,) if self.at_rest else tuple(np.arange(earliest, earliest + _WITHIN, _STEP))


def carrier_motion(station: Station, name: str) -> CarrierMotion:
    """The motion of an object at its carrier's nominal speed, which the drive reaches in milliseconds."""
    carrier = station.task.objects[name].carrier
    if carrier is None:
        return CarrierMotion()
    shape, pose, below = station.task.objects[carrier].shape, station.pose(carrier), station.pose(name).low[2]
    match shape:
        case shapes.ConveyorShape() if below > shape.size[2] - _OFF:
            return CarrierMotion(velocity=shape.speed * pose.rotation[:, 0])
        case shapes.TurntableShape() if below > shape.height - _OFF:
            return CarrierMotion(rate=math.radians(shape.turn_rate), axis=pose.position)
        case _:
            return CarrierMotion()


_TRAVEL = 0.18  # height (m) of the grip site above the table on the way
_ABOVE = 0.14  # least height (m) from which the hand descends to a grasp or release, and to which it rises
_LOW = 0.04  # the hand rises to the way's height first if it is more than this (m) below it
_NEAR, _BY = 0.012, 0.06  # tolerances (rad) of all joints: at grasps and releases, and on the way
_BESIDE, _TURNED = 0.03, 0.3  # a hand is nearly above a goal within this distance (m) and rotation (rad)
_ABOVE_IT = 0.01  # and above it within this distance (m)
_CLEARANCE = 0.035  # height (m) of the grip site above an object at which open fingers clear it
_HOVER = 0.03  # height (m) above a moving target at which the hand waits
_LOWERING = 0.8  # the time (s) it takes to lower from there
_LETTING_GO = 0.4  # seconds that the gripper takes to release an object


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointWaypoint:
    """A waypoint of the arm."""

    joints: Joints  # joint positions, rad
    grip: float  # gripper command on the way
    near: float = _BY  # tolerance of all joints, rad
    grips: bool = False  # whether to wait there until the gripper has stopped
    not_before: float = 0.0  # simulated time (s) until which to wait there
    # The object that the waypoint moves with, and its displacement (m) at `joints`; None if fixed.
    follows: tuple[str, Vector3] | None = None

    def after(self, station: Station, seconds: float) -> "JointWaypoint":
        """The waypoint some seconds from now; the arm waits while it cannot follow."""
        if self.follows is None:
            return self
        name, start = self.follows
        way = station.movers[name].offset(seconds) - start
        joints = _reach_of(station).shifted(self.joints, way)
        if joints is None:
            return dataclasses.replace(self, joints=station.joints.copy(), not_before=math.inf)
        return dataclasses.replace(self, joints=joints)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _TimedGrasp:
    pose: Pose  # pose of the grip site
    closing: float  # closing direction, rad
    closes: float | None  # simulated time (s) at which the fingers start to close; None if it does not matter
    lifted: float  # when the object is grasped, s from now


def _pick(
    reach: ReachabilityCheck, grasp: _TimedGrasp, beside: int, *, highest: float
) -> Iterator[JointWaypoint]:
    """Move down from a height (m), close at the grasp's time, move up; the body `beside` may be touched."""
    poses = _descent(grasp.pose)
    path = _solved(reach, poses, beside)
    for pose, joints in zip(poses, path, strict=True):
        if joints is path[-1] or pose.position[2] <= highest:
            yield JointWaypoint(joints=joints, grip=0.0, near=_NEAR if joints is path[-1] else _BY)
    if grasp.closes is not None:
        yield JointWaypoint(joints=path[-1], grip=0.0, not_before=grasp.closes)
    yield JointWaypoint(joints=path[-1], grip=1.0, grips=True)
    for joints in reversed(path[:-1]):
        yield JointWaypoint(joints=joints, grip=1.0)


def _place(
    reach: ReachabilityCheck, drop: Pose, when: float | None, *, highest: float
) -> Iterator[JointWaypoint]:
    """Move down from a height (m) and release, at a simulated time (s) if given."""
    poses = _descent(drop)
    *way, down = _solved(reach, poses, None)
    for pose, joints in zip(poses, way, strict=False):
        if pose.position[2] <= highest:
            yield JointWaypoint(joints=joints, grip=1.0)
    if when is None:
        yield JointWaypoint(joints=down, grip=1.0, near=_NEAR)
    else:
        (above,) = _solved(reach, [drop.at_height(drop.position[2] + _HOVER)], None)
        yield JointWaypoint(joints=above, grip=1.0, not_before=when - _LETTING_GO - _LOWERING)
        yield JointWaypoint(joints=down, grip=1.0, not_before=when - _LETTING_GO)
    yield JointWaypoint(joints=down, grip=0.0, grips=True)
    yield JointWaypoint(joints=way[0], grip=0.0)


def _solved(reach: ReachabilityCheck, poses: Sequence[Pose], beside: int | None) -> list[Joints]:
    """Joint positions for poses that are known to be reachable in sequence."""
    path = reach.along(poses, start=RESET_JOINTS, beside=beside)
    assert path is not None, "the same poses were reached before"
    return path


def _descent(pose: Pose) -> list[Pose]:
    """Poses from above down to a pose, in steps of a few centimetres."""
    height = float(pose.position[2])
    top = max(_TRAVEL, height + _ABOVE)
    return [pose.at_height(each) for each in np.linspace(top, height, 2 + math.ceil((top - height) / 0.05))]


def _entry_height(hand: Pose, goal: Pose, clear: float) -> float | None:
    """Height (m) from which a hand above a goal moves down to it; None if it is not above it.

    That is the hand's own, or `clear` if it is only nearly above it. So the hand does not first rise to the
    height of the way out of a grasp that is almost right.
    """
    twist = hand.twist_to(goal)
    away, turned = float(np.linalg.norm(twist[:2])), float(np.linalg.norm(twist[3:]))
    if away > _BESIDE or turned > _TURNED or twist[2] > _ABOVE_IT:
        return None
    height = float(hand.position[2])
    return height if away <= _ABOVE_IT else max(height, clear)


def _down_at(place: Vector3, height: float, closing: float) -> Pose:
    """Pose of the grip site at a position, pointing down and closing along an angle (rad)."""
    return Pose(position=np.array([place[0], place[1], height]), rotation=downward(closing))


def _reach_of(station: Station) -> ReachabilityCheck:
    """A reachability check on a copy of the station's state."""
    return ReachabilityCheck(
        station.data,
        site=int(station.model.site(GRIP_SITE).id),
        joints=ARM_JOINTS,
        open_fingers=dict.fromkeys(FINGER_JOINTS, 0.0),
        resting=RESET_JOINTS,
    )


_WIDEST = 0.078  # widest object that the gripper can grasp, m
_LOWEST = 0.021  # height (m) of the grip site at which closed fingertips keep off the table
_BELOW_TOP = 0.03  # depth (m) below the top at which tall objects are grasped
_DROP = 0.004  # height (m) from which an object is dropped onto a target
_INTO = 0.3  # fraction of a vessel's depth by which an object is lowered into it
_UNDER_WAY = 4.0  # maximal time (s) from a grasp until the hand is above the target
_FINGER = 0.03  # thickness (m) of a finger along the path of an object that moves in between the fingers
_OBLIQUE = 0.5  # maximal cosine of the angle between the closing direction and a moving object's velocity
_HELD = 0.045  # what is between the fingers is held if its center is this near (m) to the grip site
_CLOSED_ON_SOMETHING = (0.1, 0.95)  # position of the gripper with something between the fingers
_LOST = 0.07  # an object was dropped, or never grasped, if its center is farther (m) from the grip site
_BAR_HEIGHT = 0.035  # height (m) of the grip site when blocking a ball
_BEFORE_LINE = (0.12, 0.17, 0.22, 0.27, 0.32)  # where a ball may be blocked, m before the line, best first


Carry = InsideCriterion | OnCriterion
Move = Carry | StoppedCriterion
_ON_THE_WAY = ("reach", "lift")  # criteria that moves meet, too


def moves(task: TaskConfig) -> tuple[Move, ...]:
    """The moves of a task; a UsageError if it has other goals, or an object is too wide for the gripper."""
    found = tuple(each for each in task.rubric if isinstance(each, Move))
    others = {each.kind for each in task.rubric if not (isinstance(each, Move) or each.kind in _ON_THE_WAY)}
    wide = [each.object for each in _carried(task) if _width(task.objects[each.object].shape) > _WIDEST]
    if others or wide or not found:
        reason = f"{wide[0]!r} is too wide" if wide else f"{', '.join(sorted(others))} is beyond it"
        raise UsageError(
            f"the expert picks and places, and cannot do task {task.name}: {reason}; choose another policy"
        )
    return found


def _carried(task: TaskConfig) -> tuple[Carry, ...]:
    return tuple(each for each in task.rubric if isinstance(each, Carry))


def _width(shape: Shape) -> float:
    """Width of a shape between the fingers, m."""
    return 2 * shape.radius if isinstance(shape, BananaShape) else min(shape.extent[:2])


def carry(station: Station, move: Carry) -> Iterator[JointWaypoint]:
    """Pick and place an object, from the current state; moving objects and targets are intercepted.

    A UsageError if the arm cannot reach them.
    """
    reach, hand = _reach_of(station), Pose.of(station.data.site(GRIP_SITE))
    obj, target = station.pose(move.object), station.pose(move.target)
    height = max(_LOWEST, min(obj.middle[2], obj.high[2] - _BELOW_TOP))
    spot, along = _release(station.task, move, target)
    is_near = float(np.linalg.norm(hand.position - obj.middle)) < _HELD
    held = is_near and _CLOSED_ON_SOMETHING[0] < station.gripper < _CLOSED_ON_SOMETHING[1]
    held_grasp = _TimedGrasp(pose=hand, closing=_heading(hand), closes=None, lifted=0.0)
    for grasp in [held_grasp] if held else _grasps(station, reach, move.object, height):
        closing = grasp.closing
        over = float(spot[2]) + float(grasp.pose.position[2] - obj.low[2])
        # Of two opposite closing directions, the one with the smaller wrist rotation.
        turned = closing if along is None else (closing - _heading(obj) + along) % math.pi
        ride = carrier_motion(station, move.target)
        for seconds in ride.times(grasp.lifted + _UNDER_WAY):
            drop = _down_at(ride.after(spot, seconds), over, turned)
            if reach.along(_descent(drop), start=RESET_JOINTS) is not None:
                goal = drop if held else grasp.pose
                clear = float(drop.position[2] if held else obj.high[2]) + _CLEARANCE
                is_timed = grasp.closes is not None or not ride.at_rest
                entry = None if is_timed else _entry_height(hand, goal, clear)
                rest, slack, highest = (_TRAVEL, _LOW, math.inf) if entry is None else (entry, 0.0, entry)
                above = reach.along([hand.at_height(rest)]) if hand.position[2] < rest - slack else None
                if above is not None:
                    yield JointWaypoint(joints=above[0], grip=float(held))
                if not held:
                    if entry is not None and station.gripper > _CLOSED_ON_SOMETHING[0]:
                        here = station.joints.copy() if above is None else above[0]
                        yield JointWaypoint(joints=here, grip=0.0, grips=True)
                    body, mover = station.model.body(move.object).id, station.movers.get(move.object)
                    follows = (move.object, mover.offset()) if mover and mover.leads else None
                    for each in _pick(reach, grasp, body, highest=highest):
                        yield dataclasses.replace(each, follows=follows)
                when = None if ride.at_rest else station.data.time + seconds
                yield from _place(reach, drop, when, highest=highest if held else math.inf)
                return
    raise UsageError(f"the expert cannot reach {move.object!r} and {move.target!r} of {station.task.name}")


def has_lost(station: Station, move: Carry, goal: JointWaypoint) -> bool:
    """Whether the object being carried has been dropped."""
    if goal.grip == 0.0 or goal.grips:
        return False
    away = station.end_effector - station.pose(move.object).middle
    return float(np.linalg.norm(away)) > _LOST


def block(station: Station, move: StoppedCriterion) -> Iterator[JointWaypoint]:
    """Lower the open hand into a ball's path near the line, and wait; a UsageError if it cannot reach it."""
    carrier = station.task.objects[move.object].carrier
    assert carrier is not None
    ramp, shape = station.pose(carrier), station.task.objects[carrier].shape
    assert isinstance(shape, shapes.RampShape)
    way = ramp.rotation[:, 0]
    start = ramp.position + way * shape.size[0] / 2
    line, reach = station.pose(move.line), _reach_of(station)
    across = line.rotation[:, 0]
    length = float((line.position - start) @ across / (way @ across))
    closings = _least_turn([math.atan2(way[1], way[0]) + math.pi / 2])
    for before in _BEFORE_LINE:
        for closing in closings:
            there = _down_at(start + (length - before) * way, _BAR_HEIGHT, closing)
            path = reach.along([there], start=RESET_JOINTS)
            if path is not None:
                yield JointWaypoint(joints=path[0], grip=0.0, not_before=math.inf)
                return
    raise UsageError(f"the expert cannot reach the way of {move.object!r} of task {station.task.name}")


def _grasps(station: Station, reach: ReachabilityCheck, name: str, height: float) -> Iterator[_TimedGrasp]:
    """Feasible grasps that the arm reaches in time, earliest first."""
    obj, shape = station.pose(name), station.task.objects[name].shape
    ride, now = carrier_motion(station, name), station.data.time
    takes = max(0.0, 1 - _width(shape) / GRIPPER_STROKE) / GRIPPER_SPEED  # until the fingers touch it
    for seconds in ride.times(0.0):
        middle = ride.after(obj.middle, seconds)
        velocity = ride.velocity_at(middle)
        speed = float(np.linalg.norm(velocity))
        closings = _closing_angles(shape, _heading(obj) + ride.rate * seconds)
        if speed > 0:
            way = math.atan2(velocity[1], velocity[0])  # along which the object moves in between the fingers
            closings = [angle for angle in closings if abs(math.cos(angle - way)) < _OBLIQUE]
        for closing in closings:
            pose = _down_at(middle, height, closing)
            arrives = _arrival(station, reach, name, pose)
            if arrives is None:
                continue
            if speed == 0:
                yield _TimedGrasp(pose=pose, closing=closing, closes=None, lifted=arrives + takes)
            elif arrives < seconds - max(takes, (shapes.footprint(shape) + _FINGER) / speed):
                closes = now + seconds - takes
                yield _TimedGrasp(pose=pose, closing=closing, closes=closes, lifted=seconds)


def _arrival(station: Station, reach: ReachabilityCheck, name: str, pose: Pose) -> float | None:
    """Seconds until the hand is at a grasp; None if it cannot reach it, now or where the object then is."""
    beside, mover = station.model.body(name).id, station.movers.get(name)
    down = reach.along(_descent(pose), start=RESET_JOINTS, beside=beside)
    if down is None:
        return None
    pairs = itertools.pairwise([station.joints, *down])
    ways = [float(np.abs(after - before).max()) for before, after in pairs]
    arrives = sum(ways) / FASTEST + len(ways) * _PASSING + _SETTLING
    if mover is not None and mover.leads:
        down = reach.along(_descent(pose.shifted(mover.ahead(arrives))), start=RESET_JOINTS, beside=beside)
    return None if down is None else arrives


def _release(task: TaskConfig, move: Carry, target: ObjectPose) -> tuple[Vector3, float | None]:
    """Where the underside of an object is released (m), and the direction (rad) that a long object has there.

    Objects for the same bin are spread along it.
    """
    shape, height = task.objects[move.target].shape, float(target.high[2]) + _DROP
    if isinstance(move, InsideCriterion):
        assert isinstance(shape, Vessel)
        height = float(target.position[2]) + shape.extent[2] - _INTO * shapes.depth(shape)
    spot = np.array([*target.middle[:2], height])
    if not isinstance(shape, BinShape):
        return spot, None
    axis = int(shape.size[1] > shape.size[0])
    along = target.rotation[:, axis]
    names = [each.object for each in _carried(task) if each.target == move.target]
    room = shape.size[axis] * 0.3
    offset = room * (names.index(move.object) - (len(names) - 1) / 2)
    is_long = isinstance(task.objects[move.object].shape, BananaShape)
    spot[:2] += offset * along[:2]
    return spot, math.atan2(along[1], along[0]) if is_long else None


def _heading(pose: Pose) -> float:
    """Direction (rad) of the pose's x axis, seen from above."""
    return math.atan2(pose.rotation[1, 0], pose.rotation[0, 0])


def _closing_angles(shape: Shape, heading: float) -> list[float]:
    """Closing directions (rad) for a shape, smallest wrist rotation first."""
    if isinstance(shape, BananaShape):
        return _least_turn([heading + math.pi / 2])
    if isinstance(shape, shapes.BoxShape):
        return _least_turn([heading + math.pi / 2 * turn for turn in (0, 1) if shape.size[turn] <= _WIDEST])
    return _least_turn([math.pi / 2 + math.radians(turn) for turn in (0, 30, -30, 60, -60, 90)])


def _least_turn(angles: Sequence[float]) -> list[float]:
    """Closing directions (rad) and their opposites, smallest wrist rotation first."""
    turns = [(angle + turn + math.pi) % (2 * math.pi) - math.pi for angle in angles for turn in (0, math.pi)]
    return sorted(turns, key=lambda angle: abs(angle - math.pi / 2))
