"""Plans the expert's moves: pick-and-place, and blocking a ball."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float64

from configs.errors import UsageError
from sim_envs.droid.interception import carrier_motion, closing_time, duration, ramp_exit
from sim_envs.droid.robot import GRIP_SITE
from sim_envs.droid.rubric import ObjectPose, Rubric
from sim_envs.droid.shapes import BananaShape, BinShape, BoxShape, Shape, Vessel, footprint
from sim_envs.droid.station import RESET_JOINTS, Station
from sim_envs.droid.task_file import (
    InsideCriterion,
    LiftCriterion,
    OnCriterion,
    ReachCriterion,
    StoppedCriterion,
    TaskConfig,
)
from sim_envs.droid.waypoints import (
    JointWaypoint,
    TimedGrasp,
    descent,
    down_at,
    pick,
    place,
    reach_of,
    rise,
)
from sim_envs.scripted.kinematics import ReachabilityCheck
from sim_envs.scripted.poses import Pose

_WIDEST = 0.078
"""Widest object that the gripper can grasp, m."""

_LOWEST = 0.021
"""Height (m) of the grip site at which closed fingertips keep off the table."""

_BELOW_TOP = 0.03
"""Depth (m) below the top at which tall objects are grasped."""

_DROP = 0.004
"""Height (m) from which an object is dropped onto a target."""

_INTO = 0.3
"""Fraction of a vessel's depth by which an object is lowered into it."""

_UNDER_WAY = 4.0
"""Maximal time (s) from a grasp until the hand is above the target."""

_FINGER = 0.03
"""Thickness (m) of a finger along the path of an object that moves in between the fingers."""

_OBLIQUE = 0.5
"""Maximal cosine of the angle between the closing direction and a moving object's velocity."""

_HELD = 0.045
"""An object between the fingers is held if its center is within this distance (m) of the grip site."""

_CLOSED_ON_SOMETHING = (0.1, 0.95)
"""Position of the gripper (0 open, 1 closed) with something between the fingers."""

_LOST = 0.07
"""An object was dropped, or never grasped, if its center is farther (m) from the grip site."""

_BAR_HEIGHT = 0.035
"""Height (m) of the grip site when blocking a ball."""

_BEFORE_LINE = (0.12, 0.17, 0.22, 0.27, 0.32)
"""Distances (m) from the line at which a ball may be blocked, best first."""


Carry = InsideCriterion | OnCriterion
Move = Carry | StoppedCriterion


def moves(task: TaskConfig) -> tuple[Move, ...]:
    """The moves of a task.

    Raises:
        UsageError: It has other goals, or an object is too wide for the gripper.
    """
    found = tuple(each for each in task.rubric if isinstance(each, Move))
    others = {
        each.kind for each in task.rubric if not isinstance(each, Move | ReachCriterion | LiftCriterion)
    }
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


def planned(station: Station, move: Move) -> Iterator[JointWaypoint]:
    """The waypoints of one move, from the current state.

    Raises:
        UsageError: The arm cannot reach them.
    """
    return _bar(station, move) if isinstance(move, StoppedCriterion) else _carry(station, move)


def _carry(station: Station, move: Carry) -> Iterator[JointWaypoint]:
    """Pick and place an object; moving objects and targets are intercepted."""
    rubric, reach = Rubric(station.task, station.data), reach_of(station)
    obj, target = rubric.pose(move.object), rubric.pose(move.target)
    height = max(_LOWEST, min(obj.middle[2], obj.high[2] - _BELOW_TOP))
    middle, along = _spot(station.task, move, target)
    hand = _hand(station)
    held = _is_held(station, hand, obj)
    held_grasp = TimedGrasp(pose=hand, closing=_heading(hand), closes=None, lifted=0.0)
    for grasp in [held_grasp] if held else _grasps(station, reach, move.object, height):
        closing = grasp.closing
        over = _release_height(station.task, move, target) + float(grasp.pose.position[2] - obj.low[2])
        # Of two opposite closing directions, the one with the smaller wrist rotation.
        turned = closing if along is None else (closing - _heading(obj) + along) % math.pi
        ride = carrier_motion(station, move.target)
        for seconds in ride.times(grasp.lifted + _UNDER_WAY):
            drop = down_at(ride.after(middle, seconds), over, turned)
            if reach.along(descent(drop), start=RESET_JOINTS) is not None:
                yield from rise(reach, hand, grip=float(held))
                if not held:
                    for each in pick(reach, grasp, station.model.body(move.object).id):
                        yield each.following(station, move.object)
                yield from place(reach, drop, None if ride.at_rest else station.data.time + seconds)
                return
    raise UsageError(
        f"the expert cannot reach {move.object!r} and {move.target!r} of task {station.task.name}"
    )


def is_done(station: Station, move: Move) -> bool:
    """Whether an object is at its target. Blocking is never done."""
    return isinstance(move, Carry) and Rubric(station.task, station.data).holds(move, gripper=0.0)


def has_lost(station: Station, move: Carry, goal: JointWaypoint) -> bool:
    """Whether the object being carried has been dropped."""
    if goal.grip == 0.0 or goal.grips:
        return False
    obj = Rubric(station.task, station.data).pose(move.object)
    return float(np.linalg.norm(_hand(station).position - obj.middle)) > _LOST


def _is_held(station: Station, hand: Pose, obj: ObjectPose) -> bool:
    near = float(np.linalg.norm(hand.position - obj.middle)) < _HELD
    return near and _CLOSED_ON_SOMETHING[0] < station.gripper < _CLOSED_ON_SOMETHING[1]


def _hand(station: Station) -> Pose:
    return Pose.of(station.data.site(GRIP_SITE))


def _bar(station: Station, move: StoppedCriterion) -> Iterator[JointWaypoint]:
    """Lower the open hand into a ball's path, as near to the line as reachable, and wait."""
    start, way = ramp_exit(station, move.object)
    line, reach = Rubric(station.task, station.data).pose(move.line), reach_of(station)
    across = line.rotation[:, 0]
    length = float((line.position - start) @ across / (way @ across))
    closings = _least_turn([math.atan2(way[1], way[0]) + math.pi / 2])
    for before in _BEFORE_LINE:
        for closing in closings:
            there = down_at(start + (length - before) * way, _BAR_HEIGHT, closing)
            path = reach.along([there], start=RESET_JOINTS)
            if path is not None:
                yield JointWaypoint(joints=path[0], grip=0.0, not_before=math.inf)
                return
    raise UsageError(f"the expert cannot reach the way of {move.object!r} of task {station.task.name}")


def _grasps(station: Station, reach: ReachabilityCheck, name: str, height: float) -> Iterator[TimedGrasp]:
    """Feasible grasps that the arm reaches in time, earliest first."""
    obj, shape = Rubric(station.task, station.data).pose(name), station.task.objects[name].shape
    ride = carrier_motion(station, name)
    now, takes = station.data.time, closing_time(_width(shape))
    for seconds in ride.times(0.0):
        middle = ride.after(obj.middle, seconds)
        velocity = ride.velocity_at(middle)
        speed = float(np.linalg.norm(velocity))
        closings = _closing_angles(shape, _heading(obj) + ride.rate * seconds)
        if speed > 0:
            way = math.atan2(velocity[1], velocity[0])  # along which the object moves in between the fingers
            closings = [angle for angle in closings if abs(math.cos(angle - way)) < _OBLIQUE]
        for closing in closings:
            pose = down_at(middle, height, closing)
            arrives = _arrival(station, reach, name, pose)
            if arrives is None:
                continue
            if speed == 0:
                yield TimedGrasp(pose=pose, closing=closing, closes=None, lifted=arrives + takes)
            elif arrives < seconds - max(takes, (footprint(shape) + _FINGER) / speed):
                closes = now + seconds - takes
                yield TimedGrasp(pose=pose, closing=closing, closes=closes, lifted=seconds)


def _arrival(station: Station, reach: ReachabilityCheck, name: str, pose: Pose) -> float | None:
    """Seconds until the hand is at a grasp; None if it cannot reach it, now or where the object then is."""
    beside, mover = station.model.body(name).id, station.movers.get(name)
    down = reach.along(descent(pose), start=RESET_JOINTS, beside=beside)
    if down is None:
        return None
    arrives = duration([station.joints, *down])
    if mover is not None and mover.leads:
        down = reach.along(descent(pose.shifted(mover.ahead(arrives))), start=RESET_JOINTS, beside=beside)
    return None if down is None else arrives


def _release_height(task: TaskConfig, move: InsideCriterion | OnCriterion, target: ObjectPose) -> float:
    """Height (m) of an object's underside when it is released."""
    shape = task.objects[move.target].shape
    if isinstance(move, InsideCriterion):
        assert isinstance(shape, Vessel)
        opening = shape.opening
        return float(target.position[2]) + opening.rim - _INTO * (opening.rim - opening.floor)
    return float(target.high[2]) + _DROP


def _spot(
    task: TaskConfig, move: InsideCriterion | OnCriterion, target: ObjectPose
) -> tuple[Float64[np.ndarray, " 3"], float | None]:
    """Where on a target to place an object (m), and the direction (rad) that a long object should have there.

    Objects for the same bin are spread along it.
    """
    shape = task.objects[move.target].shape
    if not isinstance(shape, BinShape):
        return target.middle, None
    axis = int(shape.size[1] > shape.size[0])
    along = target.rotation[:, axis]
    names = [each.object for each in _carried(task) if each.target == move.target]
    room = shape.size[axis] * 0.3
    offset = room * (names.index(move.object) - (len(names) - 1) / 2)
    is_long = isinstance(task.objects[move.object].shape, BananaShape)
    return target.middle + offset * along, math.atan2(along[1], along[0]) if is_long else None


def _heading(pose: Pose) -> float:
    """Direction (rad) of the pose's x axis, seen from above."""
    return math.atan2(pose.rotation[1, 0], pose.rotation[0, 0])


def _closing_angles(shape: Shape, heading: float) -> list[float]:
    """Closing directions (rad) for a shape, smallest wrist rotation first."""
    if isinstance(shape, BananaShape):
        return _least_turn([heading + math.pi / 2])
    if isinstance(shape, BoxShape):
        return _least_turn([heading + math.pi / 2 * turn for turn in (0, 1) if shape.size[turn] <= _WIDEST])
    return _least_turn([math.pi / 2 + math.radians(turn) for turn in (0, 30, -30, 60, -60, 90)])


def _least_turn(angles: Sequence[float]) -> list[float]:
    """Closing directions (rad) and their opposites, smallest wrist rotation first."""
    turns = [(angle + turn + math.pi) % (2 * math.pi) - math.pi for angle in angles for turn in (0, math.pi)]
    return sorted(turns, key=lambda angle: abs(angle - math.pi / 2))
