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
from sim_envs.droid.robot import ARM_JOINTS, DAMPING, FINGER_JOINT, FRICTION, GRIP_SITE, MIMICS, STIFFNESS
from sim_envs.droid.rubric import ObjectPose, Rubric
from sim_envs.droid.shapes import BananaShape, BinShape, BoxShape, Shape, Vessel
from sim_envs.droid.sim import ACTION_SIZE, DroidSim
from sim_envs.droid.station import RESET_JOINTS, Station
from sim_envs.droid.task_file import InsideCriterion, OnCriterion, TaskConfig
from sim_envs.scripted.kinematics import Arm, Reach
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
        move: Number of the move that is under way.
        path: What is left of it; empty before it is planned.
        waited: Control steps since the last waypoint.
        gripper: Where the gripper was a step ago.
    """

    move: int = 0
    path: tuple[JointWaypoint, ...] = ()
    waited: int = 0
    gripper: float = 0.0


class DroidExpert:
    """Picks and places in the order of the rubric. Implements `sim_envs.scripted.policy.ScriptedPolicy`.

    Attributes:
        intended: The actions of the last query.
    """

    def __init__(self, sim: DroidSim) -> None:
        """Bind it to a world that has been reset.

        Raises:
            UsageError: The task asks for more than picking and placing.
        """
        self._sim = sim
        self._moves = _moves(sim.task)
        self._history: list[_Progress] = [_Progress()]
        self._asked_at = 0.0
        self.intended: Float64[np.ndarray, "horizon action"] = np.empty((0, ACTION_SIZE))

    def reset(self, key: EpisodeKey) -> None:
        """Begin an episode; nothing here is random."""
        del key
        self._history, self._asked_at = [_Progress()], self._sim.station.data.time

    def query(self, state: Float64[np.ndarray, " state"]) -> Float64[np.ndarray, "horizon action"]:
        """The next chunk, rehearsed on a copy of the simulation."""
        del state
        now = self._sim.station.data.time
        passed = round((now - self._asked_at) * CONTROL_HZ)
        progress = self._history[min(passed, len(self._history) - 1)]
        twin = self._sim.station.copy()
        self._history, self._asked_at = [progress], now
        actions = []
        for _ in range(HORIZON):
            progress, action = self._act(twin, progress)
            twin.step(action)
            self._history.append(progress)
            actions.append(action)
        self.intended = np.array(actions)
        return self.intended

    def _act(self, station: Station, progress: _Progress) -> tuple[_Progress, Float64[np.ndarray, " 8"]]:
        """One control step of feedback."""
        progress = self._advanced(station, progress)
        if not progress.path:
            return progress, _command(station, station.joints, 0.0)
        goal = progress.path[0]
        progress = dataclasses.replace(progress, waited=progress.waited + 1, gripper=station.gripper)
        return progress, _command(station, goal.joints, goal.grip)

    def _advanced(self, station: Station, progress: _Progress) -> _Progress:
        """Past the waypoints that have been reached, into the next move if there is none left."""
        path, waited = progress.path, progress.waited
        if path and _is_passed(station, progress):
            path, waited = path[1:], 0
            progress = dataclasses.replace(
                progress, path=path, waited=waited, move=progress.move + (not path)
            )
        if not path and progress.move < len(self._moves):
            planned = tuple(_planned(station, self._moves[progress.move]))
            return dataclasses.replace(progress, path=planned, waited=0)
        return progress


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
    height = max(_LOWEST, min(thing.middle[2], thing.high[2] - _BELOW_TOP))
    over = _release_height(station.task, move, target) + height - thing.low[2]
    middle, along = _spot(station.task, move, target)
    reach = _reach(station)
    for closing in _closing_angles(shape, thing):
        grasp = _down(thing.middle, height, closing)
        turned = closing if along is None else _nearest(closing - _heading(thing) + along)
        drop = _down(middle, over, turned)
        down = reach.along(_descent(grasp), start=RESET_JOINTS, beside=station.model.body(move.object).id)
        onto = reach.along(_descent(drop), start=RESET_JOINTS)
        if down is not None and onto is not None:
            yield from _pick(reach, grasp, move.object, station)
            yield from _place(reach, drop)
            return
    raise UsageError(
        f"the expert cannot reach {move.object!r} and {move.target!r} of task {station.task.name}"
    )


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


def _command(station: Station, goal: Joints, grip: float) -> Float64[np.ndarray, " 8"]:
    """The action that moves the arm towards a goal.

    The joints are underdamped, so the lead of the target has a part for the velocity wanted, one for what is
    missing of that velocity, and one that overcomes friction.
    """
    missing = goal - station.joints
    wanted = _EAGERNESS * missing
    wanted *= min(1.0, _FASTEST / max(float(np.abs(wanted).max()), 1e-9))
    lead = wanted * np.array(DAMPING) / STIFFNESS + _BRAKE_S * (wanted - station.joint_velocities)
    lead += np.clip(missing / 0.004, -1.0, 1.0) * FRICTION / STIFFNESS
    if station.control is Control.JOINT_POSITION:
        return np.append(station.joints + lead, grip)
    return np.append(np.clip(lead / MAX_STEP, -1.0, 1.0), grip)
