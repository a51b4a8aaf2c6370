"""A scripted expert that picks things up and puts them down, in either way to command the arm.

It reads the simulation. Its feedback acts at every control step: a chunk of actions is what that feedback
does on a copy of the simulation, and is executed open-loop.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float64

from configs.errors import UsageError
from sim_envs.droid.control import CONTROL_HZ, MAX_STEP, Control
from sim_envs.droid.noise import JointNoise
from sim_envs.droid.robot import ARM_JOINTS, DAMPING, FINGER_JOINT, FRICTION, GRIP_SITE, MIMICS, STIFFNESS
from sim_envs.droid.rubric import ObjectPose, Rubric
from sim_envs.droid.shapes import BananaShape, BinShape, BoxShape, Shape, Vessel
from sim_envs.droid.sim import ACTION_SIZE, DroidSim
from sim_envs.droid.station import RESET_JOINTS, Station
from sim_envs.droid.task_file import InsideCriterion, OnCriterion, TaskConfig
from sim_envs.scripted.kinematics import Arm, Reach
from sim_envs.scripted.noise import checked_level
from sim_envs.scripted.policy import HORIZON
from sim_envs.scripted.poses import Pose
from sim_envs.world import EpisodeKey

_WIDEST = 0.078
"""What the gripper takes between its fingers, m."""

_LOWEST = 0.021
"""Height (m) of the grip site at which closed fingertips keep off the table."""

_BELOW_TOP = 0.03
"""How far (m) below the top of a tall thing it is grasped."""

_TRAVEL = 0.18
"""Height (m) of the grip site above the table on the way."""

_ABOVE = 0.14
"""How far (m) above the place where it grasps or lets go the hand comes and goes, at least."""

_DROP = 0.004
"""Height (m) from which something is let go onto a target."""

_INTO = 0.3
"""Share of a vessel's depth that something is lowered into it."""

_NEAR, _BY = 0.012, 0.06
"""A waypoint is passed when all joints are so close, rad: where it matters, and on the way."""

_PATIENCE = 60
"""Control steps after which a waypoint counts as passed."""

_FASTEST, _EAGERNESS = 0.9, 4.0
"""Greatest velocity (rad/s) of a joint, and velocity per missing radian (1/s)."""

_BRAKE_S = np.array([0.15, 0.15, 0.12, 0.1, 0.0, 0.0, 0.0])
"""Lead (rad) of each joint's target per missing velocity (rad/s); the light joints need none."""

_STOPPED = 0.004
"""The gripper has stopped when it moves less in a control step, as a share of its range."""

_HELD = 0.045
"""Something between the fingers is held if its middle is so close (m) to the grip site."""

_CLOSED_ON_SOMETHING = (0.1, 0.95)
"""Position of the gripper (0 open, 1 closed) with something between the fingers."""

_LOST = 0.07
"""Something has been dropped, or never grasped, if its middle is farther (m) from the grip site."""

Joints = Float64[np.ndarray, " 7"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointWaypoint:
    """Where the arm goes next.

    Attributes:
        joints: Of the arm, rad.
        grip: Command to the gripper on the way.
        near: How close (rad) all joints have to come.
        grips: Whether to wait there until the gripper has stopped.
    """

    joints: Joints
    grip: float
    near: float = _BY
    grips: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Progress:
    """How far the expert is.

    Attributes:
        move: What is under way; None before anything is planned and when all is done.
        path: What is left of it.
        waited: Control steps since the last waypoint.
        gripper: Where the gripper was a step ago.
    """

    move: InsideCriterion | OnCriterion | None = None
    path: tuple[JointWaypoint, ...] = ()
    waited: int = 0
    gripper: float = 0.0


class DroidExpert:
    """Picks and places in the order of the rubric, and again what it drops or finds undone.

    Implements `sim_envs.scripted.policy.ScriptedPolicy`.

    Attributes:
        intended: The actions of the last query.
    """

    def __init__(self, sim: DroidSim, *, noise: float = 0.0) -> None:
        """Bind it to a world that has been reset.

        Args:
            sim: The world.
            noise: How much pace and path vary and how often something is dropped, from 0 to 1.

        Raises:
            UsageError: The task asks for more than picking and placing, or the noise is not between 0 and 1.
        """
        self._sim = sim
        self._level = checked_level(noise)
        self._noise: JointNoise | None = None
        self._moves = _moves(sim.task)
        self._history: list[_Progress] = [_Progress()]
        self._asked_at = 0.0
        self.intended: Float64[np.ndarray, "horizon action"] = np.empty((0, ACTION_SIZE))

    def reset(self, key: EpisodeKey) -> None:
        """Begin an episode, or go on from where somebody else has left the world."""
        self._noise = JointNoise(self._level, key) if self._level else None
        self._history, self._asked_at = [_Progress()], self._sim.station.data.time

    def query(self, state: Float64[np.ndarray, " state"]) -> Float64[np.ndarray, "horizon action"]:
        """The next chunk, rehearsed on a copy of the simulation."""
        del state
        now = self._sim.station.data.time
        passed = round((now - self._asked_at) * CONTROL_HZ)
        progress = self._history[min(passed, len(self._history) - 1)]
        twin = self._sim.station.copy()
        self._history, self._asked_at = [progress], now
        meant, done = [], []
        for step in range(HORIZON):
            progress, goal = self._advanced(twin, progress)
            meant.append(_command(twin, goal))
            done.append(self._disturbed(twin, goal, round(now * CONTROL_HZ) + step))
            twin.step(done[-1])
            self._history.append(progress)
        self.intended = np.array(meant)
        return np.array(done)

    def _disturbed(self, station: Station, goal: JointWaypoint, step: int) -> Float64[np.ndarray, " 8"]:
        """The action that is executed, with the episode's noise in it."""
        if self._noise is None:
            return _command(station, goal)
        if self._noise.loosens(step):
            goal = dataclasses.replace(goal, grip=0.0)
        return _command(station, goal, pace=self._noise.pace, drift=self._noise.velocity(step))

    def _advanced(self, station: Station, progress: _Progress) -> tuple[_Progress, JointWaypoint]:
        """Where to go now: past the waypoints that have been reached, into the next move if none is left."""
        path, waited, move = progress.path, progress.waited, progress.move
        if path and _is_passed(station, progress):
            path, waited = path[1:], 0
        if path and move is not None and _has_lost(station, move, path[0]):
            path = ()
        if not path:
            move, waited = self._next_move(station), 0
            path = () if move is None else tuple(_planned(station, move))
        goal = path[0] if path else JointWaypoint(joints=station.joints.copy(), grip=0.0)
        return _Progress(move=move, path=path, waited=waited + 1, gripper=station.gripper), goal

    def _next_move(self, station: Station) -> InsideCriterion | OnCriterion | None:
        """The first thing that is not where it belongs."""
        rubric = Rubric(station.task, station.data)
        return next((move for move in self._moves if not rubric.holds(move, gripper=0.0)), None)


def _moves(task: TaskConfig) -> tuple[InsideCriterion | OnCriterion, ...]:
    """What is to be put where.

    Raises:
        UsageError: Something else is asked for, or a thing is too wide to be grasped.
    """
    placed = [each for each in task.rubric if isinstance(each, InsideCriterion | OnCriterion)]
    others = {each.kind for each in task.rubric} - {"reach", "lift", "inside", "on_top"}
    wide = [each.object for each in placed if _width(task.objects[each.object].shape) > _WIDEST]
    if others or wide or not placed:
        reason = f"{wide[0]!r} is too wide" if wide else f"{', '.join(sorted(others))} is beyond it"
        raise UsageError(
            f"the expert picks and places, and cannot do task {task.name}: {reason}; choose another policy"
        )
    return tuple(placed)


def _width(shape: Shape) -> float:
    """What has to fit between the fingers, m."""
    return 2 * shape.radius if isinstance(shape, BananaShape) else min(shape.extent[:2])


def _planned(station: Station, move: InsideCriterion | OnCriterion) -> Iterator[JointWaypoint]:
    """The waypoints of one move, from where everything is now.

    Raises:
        UsageError: The arm cannot reach them.
    """
    rubric = Rubric(station.task, station.data)
    thing, target = rubric.pose(move.object), rubric.pose(move.target)
    shape = station.task.objects[move.object].shape
    held = _is_held(station, thing)
    hand = _hand(station)
    middle, along = _spot(station.task, move, target)
    reach = _reach(station)
    for grasp in [hand] if held else _grasps(shape, thing):
        closing = math.atan2(grasp.rotation[1, 0], grasp.rotation[0, 0])
        over = _release_height(station.task, move, target) + float(grasp.position[2] - thing.low[2])
        turned = closing if along is None else _nearest(closing - _heading(thing) + along)
        drop = _down(middle, over, turned)
        beside = station.model.body(move.object).id
        down = held or reach.along(_descent(grasp), start=RESET_JOINTS, beside=beside) is not None
        if down and reach.along(_descent(drop), start=RESET_JOINTS) is not None:
            yield from _rise(reach, hand, grip=float(held))
            if not held:
                yield from _pick(reach, grasp, move.object, station)
            yield from _place(reach, drop)
            return
    raise UsageError(
        f"the expert cannot reach {move.object!r} and {move.target!r} of task {station.task.name}"
    )


def _hand(station: Station) -> Pose:
    site = station.data.site(GRIP_SITE)
    return Pose(position=site.xpos.copy(), rotation=site.xmat.reshape(3, 3).copy())


def _is_held(station: Station, thing: ObjectPose) -> bool:
    near = float(np.linalg.norm(_hand(station).position - thing.middle)) < _HELD
    return near and _CLOSED_ON_SOMETHING[0] < station.gripper < _CLOSED_ON_SOMETHING[1]


def _has_lost(station: Station, move: InsideCriterion | OnCriterion, goal: JointWaypoint) -> bool:
    """Whether the hand is on its way with something that it does not have."""
    if goal.grip == 0.0 or goal.grips:
        return False
    thing = Rubric(station.task, station.data).pose(move.object)
    return float(np.linalg.norm(_hand(station).position - thing.middle)) > _LOST


def _grasps(shape: Shape, thing: ObjectPose) -> list[Pose]:
    """Where the hand may take something, pointing down, the least turn of the wrist first."""
    height = max(_LOWEST, min(thing.middle[2], thing.high[2] - _BELOW_TOP))
    return [_down(thing.middle, height, closing) for closing in _closing_angles(shape, thing)]


def _release_height(task: TaskConfig, move: InsideCriterion | OnCriterion, target: ObjectPose) -> float:
    """Height (m) of the underside of a thing when it is let go."""
    shape = task.objects[move.target].shape
    if isinstance(move, InsideCriterion):
        assert isinstance(shape, Vessel)
        opening = shape.opening
        return float(target.position[2]) + opening.rim - _INTO * (opening.rim - opening.floor)
    return float(target.high[2]) + _DROP


def _spot(
    task: TaskConfig, move: InsideCriterion | OnCriterion, target: ObjectPose
) -> tuple[Float64[np.ndarray, " 3"], float | None]:
    """Where on a target to put something, m, and the direction (rad) that a long thing is to have there.

    What goes into one bin is spread along it.
    """
    shape = task.objects[move.target].shape
    if not isinstance(shape, BinShape):
        return target.middle, None
    axis = int(shape.size[1] > shape.size[0])
    along = target.rotation[:, axis]
    names = [each.object for each in _moves(task) if each.target == move.target]
    room = shape.size[axis] * 0.3
    offset = room * (names.index(move.object) - (len(names) - 1) / 2)
    is_long = isinstance(task.objects[move.object].shape, BananaShape)
    return target.middle + offset * along, math.atan2(along[1], along[0]) if is_long else None


def _heading(pose: ObjectPose) -> float:
    return math.atan2(pose.rotation[1, 0], pose.rotation[0, 0])


def _nearest(angle: float) -> float:
    """Of two opposite directions (rad) of closing fingers the one with the least turn of the wrist."""
    return angle % math.pi


def _closing_angles(shape: Shape, pose: ObjectPose) -> list[float]:
    """Directions (rad) in which the fingers may close, least turn of the wrist first."""
    heading = _heading(pose)
    if isinstance(shape, BananaShape):
        across = [heading + math.pi / 2]
    elif isinstance(shape, BoxShape):
        across = [heading + math.pi / 2 * turn for turn in (0, 1) if shape.size[turn] <= _WIDEST]
    else:
        across = [math.pi / 2 + math.radians(turn) for turn in (0, 30, -30, 60, -60)]
    turns = [(angle + turn + math.pi) % (2 * math.pi) - math.pi for angle in across for turn in (0, math.pi)]
    return sorted(turns, key=lambda angle: abs(angle - math.pi / 2))


def _rise(reach: Reach, hand: Pose, *, grip: float) -> Iterator[JointWaypoint]:
    """Straight up from among the things on the table, unless the hand is above them."""
    above = reach.along([hand.at_height(_TRAVEL)]) if hand.position[2] < _TRAVEL - 0.04 else None
    if above is not None:
        yield JointWaypoint(joints=above, grip=grip)


def _pick(reach: Reach, grasp: Pose, name: str, station: Station) -> Iterator[JointWaypoint]:
    beside = station.model.body(name).id
    path = _solved(reach, _descent(grasp), beside)
    for joints in path:
        yield JointWaypoint(joints=joints, grip=0.0, near=_NEAR if joints is path[-1] else _BY)
    yield JointWaypoint(joints=path[-1], grip=1.0, grips=True)
    for joints in reversed(path[:-1]):
        yield JointWaypoint(joints=joints, grip=1.0)


def _place(reach: Reach, drop: Pose) -> Iterator[JointWaypoint]:
    path = _solved(reach, _descent(drop), None)
    for joints in path:
        yield JointWaypoint(joints=joints, grip=1.0, near=_NEAR if joints is path[-1] else _BY)
    yield JointWaypoint(joints=path[-1], grip=0.0, grips=True)
    yield JointWaypoint(joints=path[0], grip=0.0)


def _solved(reach: Reach, poses: Sequence[Pose], beside: int | None) -> list[Joints]:
    """The arm's joints at each of some poses that can be reached one after the other."""
    path: list[Joints] = []
    for pose in poses:
        joints = reach.along([pose], start=path[-1] if path else RESET_JOINTS, beside=beside)
        assert joints is not None, "the same poses were reached before"
        path.append(joints)
    return path


def _descent(pose: Pose) -> list[Pose]:
    """From above, in steps of a few centimetres."""
    height = float(pose.position[2])
    top = max(_TRAVEL, height + _ABOVE)
    return [pose.at_height(each) for each in np.linspace(top, height, 2 + math.ceil((top - height) / 0.05))]


def _down(place: Float64[np.ndarray, " 3"], height: float, closing: float) -> Pose:
    """The grip site over a place, pointing down, its fingers closing along an angle (rad)."""
    cos, sin = math.cos(closing), math.sin(closing)
    rotation = np.array([[cos, sin, 0.0], [sin, -cos, 0.0], [0.0, 0.0, -1.0]])
    return Pose(position=np.array([place[0], place[1], height]), rotation=rotation)


def _reach(station: Station) -> Reach:
    """For trying poses with open fingers, on a copy of the state."""
    model = station.model
    fingers = np.array([model.joint(name).qposadr[0] for name in (FINGER_JOINT, *dict(MIMICS))])
    arm = Arm(
        root=int(model.body("link0").id),
        site=int(model.site(GRIP_SITE).id),
        qpos=station.qpos,
        dof=station.dof,
        fingers=fingers,
        open=np.zeros(len(fingers)),
        limits=np.array([model.joint(name).range for name in ARM_JOINTS]),
        resting=RESET_JOINTS,
    )
    return Reach(model, station.data, arm)


def _is_passed(station: Station, progress: _Progress) -> bool:
    goal = progress.path[0]
    if progress.waited >= _PATIENCE:
        return True
    if goal.grips:
        return progress.waited > 4 and abs(station.gripper - progress.gripper) < _STOPPED
    return bool(np.abs(goal.joints - station.joints).max() < goal.near)


def _command(
    station: Station, goal: JointWaypoint, *, pace: float = 1.0, drift: Joints | float = 0.0
) -> Float64[np.ndarray, " 8"]:
    """The action that moves the arm towards a goal.

    The joints are underdamped, so the lead of the target has a part for the velocity wanted, one for what is
    missing of that velocity, and one that overcomes friction.

    Args:
        station: Where the arm is.
        goal: Where it is to go.
        pace: Share of the full speed.
        drift: Velocity (rad/s) that disturbs it.
    """
    missing = goal.joints - station.joints
    wanted = _EAGERNESS * missing
    wanted *= min(1.0, pace * _FASTEST / max(float(np.abs(wanted).max()), 1e-9))
    wanted += drift
    lead = wanted * np.array(DAMPING) / STIFFNESS + _BRAKE_S * (wanted - station.joint_velocities)
    lead += np.clip(missing / 0.004, -1.0, 1.0) * FRICTION / STIFFNESS
    if station.control is Control.JOINT_POSITION:
        return np.append(station.joints + lead, goal.grip)
    return np.append(np.clip(lead / MAX_STEP, -1.0, 1.0), goal.grip)
