"""Objects that move until they are touched, on any MuJoCo model: free space, trajectories, movers."""

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping

import mujoco
import numpy as np
from jaxtyping import Float64

from contracts.motion import Drift, Shuttle
from sim_envs.scripted.poses import Vector3
from sim_envs.scripted.surfaces import Collisions, HeightMap, Points

_CELL = 0.01  # side (m) of the cells of the ground map: surfaces of large objects are sampled every 0.008
_LEVEL = 0.006  # surfaces within this height (m) of the support belong to it
_CLEARANCE = 0.03  # distance (m) kept from other objects and edges, enough for a finger
_MIN_CLEARANCE = 0.004  # an object that starts nearer than this (m) can only move away
_ROUNDED = 0.002  # tolerance (m) of distances, since surfaces are sampled as points
_LOOK = 0.35  # radius (m) around the object in which the scene is considered
_STRIDE = 0.005  # distance (m) between the positions checked along a direction

_XY = Float64[np.ndarray, "_ 2"]


class FreeSpace:
    """Free space around an object at its current position."""

    def __init__(self, obj: Points, others: Points, *, may_be_at: Callable[[Vector3], bool]) -> None:
        """Map the surroundings from points on the object and on everything else except the robot.

        `may_be_at` says whether the object's center may be at a position (m).
        """
        from scipy.spatial import KDTree  # 0.2 s that runs without motion do not need

        self._center = (obj.min(axis=0) + obj.max(axis=0)) / 2
        self._may_be_at = may_be_at
        self._footprint = _thinned(obj[:, :2])
        # Obstacles above the ground and cells without ground, in the plane.
        center, ground = self._center[:2], float(obj[:, 2].min())
        near = others[np.abs(others[:, :2] - center).max(axis=1) < _LOOK]
        above = near[near[:, 2] > ground + _LEVEL]
        level = near[np.abs(near[:, 2] - ground) <= _LEVEL]
        seen = HeightMap.over(level, center=center, reach=_LOOK, cell=_CELL)
        gaps = seen.center_of(np.argwhere(seen.top < ground - _LEVEL))
        self._limits = KDTree(np.concatenate([_thinned(above[:, :2]), gaps]))
        self._at_first = self._clearance(np.zeros(3))

    def along(self, way: Vector3, most: float) -> float:
        """Free distance (m) along a horizontal direction, up to `most`."""
        free = 0.0
        for place in np.arange(1, math.ceil(most / _STRIDE) + 1) * _STRIDE:
            step = place * way
            needed = max(min(self._at_first - _ROUNDED, _CLEARANCE), _MIN_CLEARANCE)
            if self._at_first < _MIN_CLEARANCE:
                needed = min(self._at_first + float(np.linalg.norm(step)) / 2, _MIN_CLEARANCE)
            if not self._may_be_at(self._center + step) or self._clearance(step) < needed:
                break
            free = min(float(place), most)
        return free

    def _clearance(self, step: Vector3) -> float:
        """Distance (m) to the nearest obstacle or edge after a displacement."""
        return float(self._limits.query(self._footprint + step[:2])[0].min())


def _thinned(points: _XY) -> _XY:
    """Thin points to one per quarter of a cell."""
    _, first = np.unique(np.floor(points / (_CELL / 2)).astype(np.int64), axis=0, return_index=True)
    return points[first]


RISE_S = 0.5  # seconds to accelerate to full speed, and to come to rest
_LONGEST = 0.2  # longest drift (m): the object stays within sight and reach
_MIN = 0.01  # minimal free space (m) of an object that moves

_DIRECTIONS = 24


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trajectory:
    """Displacement of an object over time, while nothing touches it."""

    way: Vector3  # horizontal unit vector of its direction
    # Maps a time (s) to distance (m) and speed (m/s) along the direction.
    along: Callable[[float], tuple[float, float]]

    def offset(self, seconds: float) -> Vector3:
        """Displacement (m) after a time."""
        return self.way * self.along(max(seconds, 0.0))[0]

    def velocity(self, seconds: float) -> Vector3:
        """Velocity (m/s) after a time."""
        return self.way * self.along(max(seconds, 0.0))[1]


def straight_line(way: Vector3, *, length: float, cruise: float) -> Trajectory:
    """A straight line (m) from rest to rest, with a maximal speed (m/s)."""

    def along(seconds: float) -> tuple[float, float]:
        braking = seconds - length / cruise
        distance = cruise * (_eased(seconds) - _eased(braking))
        return distance, cruise * (_pace(seconds) - _pace(braking))

    return Trajectory(way=way, along=along)


def sample_trajectory(
    motion: Shuttle | Drift, room: FreeSpace, draws: np.random.Generator
) -> Trajectory | None:
    """Sample a trajectory that stays within free space.

    The direction is sampled among those with enough free space, always by the same number of draws. If there
    is none, the direction with most is taken: a shuttle then keeps its period and a drift its speed, over a
    shorter distance. None if there is hardly any free space.
    """
    angles = draws.permutation(_DIRECTIONS) * (2 * math.pi / _DIRECTIONS)
    phase = draws.uniform(0.0, 2 * math.pi)
    ways = [np.array([math.cos(angle), math.sin(angle), 0.0]) for angle in angles]
    if isinstance(motion, Drift):
        way = max(ways, key=lambda way: room.along(way, _LONGEST))
        if (length := room.along(way, _LONGEST)) < _MIN:
            return None
        return straight_line(way, length=length, cruise=min(motion.speed, length / RISE_S))
    wanted = motion.speed * motion.period / math.pi

    def width(way: Vector3) -> float:
        return min(room.along(way, wanted) + room.along(-way, wanted), wanted)

    way = max(ways, key=width)
    amplitude = width(way) / 2
    if 2 * amplitude < _MIN:
        return None
    # The initial phase is shifted as far as the free space on both sides requires.
    behind = amplitude * (1 + math.sin(phase))
    behind = min(max(behind, 2 * amplitude - room.along(way, wanted)), room.along(-way, wanted))
    sine = min(max(behind / amplitude - 1, -1.0), 1.0)
    begins = math.asin(sine) if math.cos(phase) > 0 else math.pi - math.asin(sine)
    rate = 2 * math.pi / motion.period

    def along(seconds: float) -> tuple[float, float]:
        angle = begins + rate * _eased(seconds)
        distance = amplitude * (math.sin(angle) - math.sin(begins))
        return distance, amplitude * rate * math.cos(angle) * _pace(seconds)

    return Trajectory(way=way, along=along)


def _eased(seconds: float) -> float:
    """Time (s) with a smooth start; after the start it lags by half of `RISE_S`."""
    share = seconds / RISE_S
    if share <= 0.0:
        return 0.0
    return RISE_S * (share**3 - share**4 / 2 if share < 1.0 else share - 0.5)


def _pace(seconds: float) -> float:
    """Derivative of `_eased`: from 0 to 1."""
    share = min(max(seconds / RISE_S, 0.0), 1.0)
    return share * share * (3 - 2 * share)


_AT_REST = (0.005, 0.1)  # a body slower than this (m/s, rad/s) is at rest, and its trajectory may start

PredictedMotion = Callable[[float], Vector3]  # displacement (m) of an object after some seconds from now


class Mover:
    """Moves one body in one episode, starting when the body is at rest.

    While it is moved, its pose and velocity are set from the trajectory, so that it neither tips nor drags
    its support. At the first contact with anything that is not fixed to the ground, physics takes over, with
    the body's current velocity.
    """

    def __init__(self, data: mujoco.MjData, body: int, trajectory: Trajectory) -> None:
        """Start an episode; the body has a free joint."""
        model, joint = data.model, int(data.model.body_jntadr[body])
        assert model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE, "only a free body can be moved"
        self._trajectory = trajectory
        self._qpos, self._dof = int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])
        self._bind(data)
        roots = model.body_rootid[model.geom_bodyid]
        self._own = roots == model.body_rootid[body]
        self._fixed = model.body_weldid[model.geom_bodyid] == 0
        self._start: np.ndarray | None = None
        self._began = 0.0
        self._touched: float | None = None
        self.lead()

    def copy(self, data: mujoco.MjData) -> "Mover":
        """An independent mover of a copy of the state."""
        twin = copy.copy(self)
        twin._bind(data)
        return twin

    @property
    def leads(self) -> bool:
        """Whether the body follows the trajectory now."""
        return self._start is not None and self._touched is None

    def ahead(self, seconds: float) -> Vector3:
        """The displacement (m) in the next `seconds`, if nothing touches the body."""
        return self.offset(seconds) - self.offset()

    def offset(self, seconds: float = 0.0) -> Vector3:
        """The displacement (m) since the start, `seconds` from now; once touched, that at the touch."""
        if self._start is None:
            return np.zeros(3)
        if self._touched is not None:
            return self._trajectory.offset(self._touched - self._began)
        return self._trajectory.offset(self._data.time - self._began + seconds)

    def lead(self) -> None:
        """Set the body's pose and velocity; call it after every physics step."""
        if self._touched is None:
            pairs = self._data.contact.geom
            own = self._own[pairs]
            if (own & (~own & ~self._fixed[pairs])[:, ::-1]).any():
                self._touched = self._data.time
        if self._touched is not None:
            return
        if self._start is None:
            fast = np.linalg.norm(self._velocity.reshape(2, 3), axis=1)
            if fast[0] >= _AT_REST[0] or fast[1] >= _AT_REST[1]:
                return
            self._start, self._began = self._pose.copy(), self._data.time
        seconds = self._data.time - self._began
        self._pose[:] = self._start
        self._pose[:3] += self._trajectory.offset(seconds)
        self._velocity[:3], self._velocity[3:] = self._trajectory.velocity(seconds), 0.0

    def _bind(self, data: mujoco.MjData) -> None:
        self._data = data
        self._pose = data.qpos[self._qpos : self._qpos + 7]
        self._velocity = data.qvel[self._dof : self._dof + 6]


_SIGHT = 0.9  # largest distance from the image center, as a fraction of that to its edge


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounds:
    """Where objects may be: within reach of the arm and in view of a camera."""

    robot: int  # id of the robot's root body
    reach: tuple[float, float]  # range of distances from it, m
    camera: int  # id of the camera
    aspect: float = 1.0  # width of its images over their height

    def check(self, data: mujoco.MjData, start: Vector3) -> Callable[[Vector3], bool]:
        """Whether an object may move to a position (m), from its initial one.

        An object that starts outside the range of reach may stay at its initial distance.
        """
        base, eye = data.xpos[self.robot, :2].copy(), data.cam_xpos[self.camera].copy()
        axes = data.cam_xmat[self.camera].reshape(3, 3).copy()
        away = float(np.linalg.norm(start[:2] - base))
        nearest, farthest = min(self.reach[0], away), max(self.reach[1], away)
        highest = _SIGHT * math.tan(math.radians(data.model.cam_fovy[self.camera]) / 2)
        edge = highest * np.array([self.aspect, 1.0])

        def may_be_at(place: Vector3) -> bool:
            seen = (place - eye) @ axes
            in_sight = (np.abs(seen[:2]) <= -seen[2] * edge).all()
            return bool(in_sight and nearest <= np.linalg.norm(place[:2] - base) <= farthest)

        return may_be_at


def sample_movers(
    data: mujoco.MjData, bodies: Mapping[str, int], motion: Shuttle | Drift, bounds: Bounds, *, digest: int
) -> dict[str, Mover]:
    """The movers of an episode, by name of the object; objects without free space do not move.

    The state is that after settling, each body has a free joint, and `digest`, a hash of the episode,
    determines directions and phases.
    """
    collisions = Collisions(data, robot=bounds.robot)
    roots = data.model.body_rootid
    found: dict[str, Mover] = {}
    swept: list[Points] = []
    for number, (name, body) in enumerate(bodies.items()):
        own = roots == roots[body]
        obj, others = (collisions.surface(part) for part in (own, ~own))
        allowed = bounds.check(data, obj.mean(axis=0))
        room = FreeSpace(obj, np.concatenate([others, *swept]), may_be_at=allowed)
        trajectory = sample_trajectory(motion, room, np.random.default_rng([digest, number]))
        if trajectory is not None:
            found[name] = Mover(data, body, trajectory)
            swept += [obj + trajectory.offset(seconds) for seconds in np.arange(0.0, 10.0, 0.5)]
    return found
