"""Motions of the hand, and their actions by a linear model of LIBERO's operational-space controller."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jaxtyping import Float64, Int64
from scipy.linalg import block_diag, expm, solve_discrete_are

from contracts.truth import Phase
from sim_envs.libero.experts.scene import ExpertScene
from sim_envs.moving import PredictedMotion
from sim_envs.scripted.gripper import FULLY_OPEN, Terrain, hand_underside, has_room, near
from sim_envs.scripted.poses import Pose, Vector3, Vector6

OPEN, CLOSED = -1.0, 1.0  # gripper commands of LIBERO's action space


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waypoint:
    """A pose for the grip site to pass through."""

    pose: Pose  # current pose in the world
    near: float = 0.006  # position tolerance (m)
    aligned: float = 0.1  # rotation tolerance (rad)
    ahead: PredictedMotion | None = None  # predicted motion of the pose; None if it is fixed

    def after(self, seconds: float) -> "Waypoint":
        """The waypoint after some seconds."""
        if self.ahead is None:
            return self
        return dataclasses.replace(self, pose=self.pose.shifted(self.ahead(seconds)))


def progress(path: Sequence[Waypoint], pose: Pose, passed: int) -> int:
    """The number of passed waypoints, given that `passed` were passed before."""
    while passed < len(path) and pose.is_within(path[passed].pose, path[passed].near, path[passed].aligned):
        passed += 1
    return passed


@dataclasses.dataclass(frozen=True, kw_only=True)
class GripperMotion:
    """A gripper path, followed until its end, an interruption, or a time limit."""

    phase: Phase
    # Called at each query, so that waypoints follow moving objects; their number must not change.
    path: Callable[[], Sequence[Waypoint]]
    grip: float  # gripper command
    steps: int  # time limit in control steps
    dwell: int = 0  # control steps to stay at the end of the path
    interrupted: Callable[[], bool] = lambda: False  # checked at each query; true ends the motion at once
    finished: Callable[[], bool] = lambda: False  # likewise at the end of the path; true ends the dwell early


# A skill yields motions; it continues when one has ended, and may read the scene in between.
Skill = Iterator[GripperMotion]
Path = Sequence[Waypoint]

CORNER = 0.015  # position tolerance (m) of waypoints on the way; less than the clearances below the hand
METRES_PER_STEP = 0.012
# Expected metres and radians per control step, and steps to spare, of time limits.
_FAST, _CAREFUL = (METRES_PER_STEP, np.inf, 30), (0.008, 0.04, 40)
_MARGIN = 0.03  # clearance (m) below the hand on its way to a part
_NEARBY = 0.12  # length (m) of a way up to which the hand goes straight if nothing is in between
_STRIDE = 0.01  # distance (m) between the poses checked on it
_AROUND = 0.25  # half the side (m) of the surroundings of a hand with its wrist
_CLOSING_STEPS = 30  # control steps in which the fingers close, even if they push the object
_STOPPED = 0.02  # speed (m/s) of closing finger pads below which an object has stopped them
CLOSED_ON_NOTHING = 0.003  # opening (m) at which there is nothing between the fingers


def move(
    scene: ExpertScene,
    phase: Phase,
    path: Path | Callable[[], Path],
    grip: float,
    *,
    holding: str = "",
    pace: tuple[float, float, int] = _FAST,
) -> GripperMotion:
    """Follow a path; dropping the object `holding` ends the motion."""
    waypoints = path if callable(path) else lambda: path
    return GripperMotion(
        phase=phase,
        path=waypoints,
        grip=grip,
        steps=time_for(scene.gripper, waypoints(), pace),
        interrupted=lambda: bool(holding) and not holds(scene, holding),
    )


def can_go_straight(scene: ExpertScene, *stops: Pose, opening: float = FULLY_OPEN) -> bool:
    """Whether the hand is near some poses, and has room on its straight way along them.

    A hand that takes over from a policy there does not rise first: that would teach to rise above a grasp.
    """
    way, here = [scene.gripper], scene.gripper
    for stop in stops:
        twist = here.twist_to(stop)
        count = int(np.linalg.norm(twist[:3]) / _STRIDE) + 2
        way += [here.moved(share * twist) for share in np.linspace(0.0, 1.0, count)[1:]]
        here = stop
    if any(np.linalg.norm(pose.position - here.position) > _NEARBY for pose in way):
        return False
    obstacles = near(scene.surroundings(), here.position, _NEARBY + _AROUND)
    return has_room(way, opening, obstacles, margin=0.0)


def reach(scene: ExpertScene, end: Pose, before: Pose, grip: float) -> GripperMotion:
    """Move above all obstacles to a pose in front of the part, then straight to the part."""
    start = scene.gripper
    opening = FULLY_OPEN if grip == OPEN else scene.opening
    for stops in ((end,), (before, end)):
        if can_go_straight(scene, *stops, opening=opening):
            path = (*(Waypoint(pose=stop, near=0.01) for stop in stops[:-1]), Waypoint(pose=end, near=0.005))
            return move(scene, Phase.APPROACH, path, grip, pace=_CAREFUL)
    terrain = Terrain(scene.surroundings(), start=start.position[:2], end=before.position[:2])
    lowest = max(terrain.lowest_along(hand_underside(pose)) for pose in (start, end))
    height = max(lowest + _MARGIN, before.position[2])
    path = (
        Waypoint(pose=start.at_height(max(start.position[2], height)), near=CORNER, aligned=np.pi),
        Waypoint(pose=before.at_height(height), near=CORNER, aligned=0.2),
        Waypoint(pose=before, near=0.01),
        Waypoint(pose=end, near=0.005),
    )
    return move(scene, Phase.APPROACH, path, grip, pace=_CAREFUL)


def leave(scene: ExpertScene, way: Vector3, grip: float) -> GripperMotion:
    """Move away by a vector (m), keeping the rotation."""
    path = (Waypoint(pose=scene.gripper.shifted(way), near=CORNER, aligned=np.pi),)
    return move(scene, Phase.RETREAT, path, grip, pace=_CAREFUL)


def release(scene: ExpertScene, phase: Phase, *, steps: int = 10) -> GripperMotion:
    """Open the fingers without moving the hand, for some control steps."""
    path = (Waypoint(pose=scene.gripper, near=np.inf, aligned=np.inf),)
    return GripperMotion(phase=phase, path=lambda: path, grip=OPEN, steps=steps, dwell=steps)


def grab(scene: ExpertScene, obj: str) -> Skill:
    """Close the fingers until they are stopped by an object, following it while it moves by itself.

    What follows begins at once: no observation tells for how long the fingers have held it, so a policy
    that imitates a hand that goes on squeezing holds still for good.
    """
    start = scene.gripper
    follows = scene.predicted_motion(obj) is not None
    offset = start.position - scene.pose(obj).position

    def path() -> Path:
        ahead, here = scene.predicted_motion(obj) if follows else None, scene.gripper if follows else start
        if ahead is not None:
            here = Pose(position=scene.pose(obj).position + offset, rotation=here.rotation)
        return (Waypoint(pose=here, near=np.inf, aligned=np.inf, ahead=ahead),)

    yield GripperMotion(
        phase=Phase.GRASP,
        path=path,
        grip=CLOSED,
        steps=_CLOSING_STEPS,
        dwell=_CLOSING_STEPS,
        finished=lambda: (
            (holds(scene, obj) and scene.finger_speed < _STOPPED) or scene.opening < CLOSED_ON_NOTHING
        ),
    )


def holds(scene: ExpertScene, obj: str) -> bool:
    """Whether both fingers touch an object."""
    return scene.fingers_touching(obj) == 2


def time_for(start: Pose, path: Path, pace: tuple[float, float, int] = _CAREFUL) -> int:
    """Time limit of a path in control steps: twice the expected time, plus a constant."""
    metres, radians, spare = pace
    stops = [start, *(waypoint.pose for waypoint in path)]
    twists = [one.twist_to(other) for one, other in itertools.pairwise(stops)]
    steps = sum(
        max(np.linalg.norm(twist[:3]) / metres, np.linalg.norm(twist[3:]) / radians) for twist in twists
    )
    return round(2 * float(steps)) + spare


# Metres and radians per control step at an action of 1 (robosuite's osc_pose.json).
ACTION_SCALE = np.array([0.05, 0.05, 0.05, 0.5, 0.5, 0.5])
CONTROL_SECONDS = 0.05
_STIFFNESS = 150.0
_DAMPING = 2 * _STIFFNESS**0.5
# Minimal acceleration per wrench (1/kg, 1/(kg m²)) along any direction: a stretched arm cannot move in one
# direction, for which the regulator has no solution.
_MIN_MOBILITY = 1e-3
_FARTHEST = np.array([0.06, 0.3])  # errors (m, rad) beyond which the gripper moves at full speed
_ERROR_COST = np.repeat([1.0, 0.05], 3)
_VELOCITY_COST = np.repeat([1e-3, 1e-5], 3)
_DELTA_COST = np.repeat([0.05, 0.002], 3)


class ArmModel:
    """Linear response of the gripper to a delta over one control step, near one arm configuration."""

    def __init__(self, mobility: Float64[np.ndarray, "6 6"]) -> None:
        """The model for an arm whose gripper accelerates by `mobility @ wrench`.

        robosuite's controller decouples forces and torques separately, so that a coupled spring remains,
        integrated here exactly over a control step.
        """
        along, directions = np.linalg.eigh(mobility)
        if along[0] < _MIN_MOBILITY:
            mobility = (directions * np.maximum(along, _MIN_MOBILITY)) @ directions.T
        inertia = block_diag(np.linalg.inv(mobility[:3, :3]), np.linalg.inv(mobility[3:, 3:]))
        coupling, still = mobility @ inertia, np.zeros((6, 6))
        rates = np.block([[still, np.eye(6)], [-_STIFFNESS * coupling, -_DAMPING * coupling]])
        step = expm(rates * CONTROL_SECONDS)
        # Displacement and final velocity per delta, and per initial velocity.
        self._moved_by_delta, self._velocity_by_delta = np.eye(6) - step[:6, :6], -step[6:, :6]
        self._moved_by_velocity, self._velocity_kept = step[:6, 6:], step[6:, 6:]
        # The regulator that is optimal for the linear-quadratic costs above.
        state_to_state = np.block([[np.eye(6), self._moved_by_velocity], [still, self._velocity_kept]])
        delta_to_state = self._by_delta = np.concatenate([self._moved_by_delta, self._velocity_by_delta])
        costs, effort = np.diag(np.concatenate([_ERROR_COST, _VELOCITY_COST])), np.diag(_DELTA_COST)
        curved = delta_to_state.T @ solve_discrete_are(state_to_state, delta_to_state, costs, effort)
        # Feedback gain from pose and velocity error to delta.
        self.gain = np.linalg.solve(effort + curved @ delta_to_state, curved @ state_to_state)

    def _delta_towards(
        self, target: Pose, pose: Pose, velocity: Vector6, pace: float, moves: Vector3 | None
    ) -> Vector6:
        """The delta (m, rad) towards a target with velocity `moves` (m/s), at most that of an action of 1."""
        error = pose.twist_to(target).reshape(2, 3)
        norms = np.linalg.norm(error, axis=1)
        error *= np.minimum(1.0, pace * _FARTHEST / np.maximum(norms, 1e-12))[:, None]
        delta = self.gain @ np.concatenate([error.ravel(), -velocity])
        if moves is not None:
            by_velocity = np.concatenate([self._moved_by_velocity, self._velocity_kept - np.eye(6)])
            response = np.concatenate([by_velocity, self._by_delta], axis=1)
            way = np.concatenate([moves * CONTROL_SECONDS, np.zeros(9)])
            # Velocity at the start of each step, and delta, with which the gripper keeps up with the target.
            steady, kept = np.split(np.linalg.solve(response, way), 2)
            delta += self.gain[:, 6:] @ steady + kept
        return delta / max(1.0, np.abs(delta / ACTION_SCALE).max())

    def follow(
        self, path: Path, pose: Pose, velocity: Vector6, *, passed: int, steps: int, pace: float
    ) -> tuple[Float64[np.ndarray, "steps 6"], Int64[np.ndarray, " steps+1"]]:
        """Follow a path from its first waypoint not yet `passed`, open loop for `steps` control steps.

        Returns the deltas (m, rad), and the predicted number of passed waypoints after 0, 1, … steps.
        """
        deltas, counts = np.zeros((steps, 6)), np.zeros(steps + 1, dtype=np.int64)
        counts[0] = progress(path, pose, passed)
        for step in range(steps):
            now, then = step * CONTROL_SECONDS, (step + 1) * CONTROL_SECONDS
            target = path[min(counts[step], len(path) - 1)]
            ahead = target.ahead
            moves = None if ahead is None else (ahead(now + CONTROL_SECONDS) - ahead(now)) / CONTROL_SECONDS
            delta = deltas[step] = self._delta_towards(target.after(now).pose, pose, velocity, pace, moves)
            moved = self._moved_by_velocity @ velocity + self._moved_by_delta @ delta
            velocity = self._velocity_kept @ velocity + self._velocity_by_delta @ delta
            pose = pose.moved(moved)
            counts[step + 1] = progress([each.after(then) for each in path], pose, int(counts[step]))
        return deltas, counts
