"""The scripted expert: turns a task's goals into skills, and executes them in action chunks.

Noise disturbs executed actions, never recorded labels, so that demonstrations show recovery (after DART,
Laskey et al., 2017, arXiv 1703.09327).
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64

from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from contracts.truth import Phase
from sim_envs.libero.experts import motions
from sim_envs.libero.experts.articulated import pull, push
from sim_envs.libero.experts.motions import CLOSED, GripperMotion, Path, Skill, Waypoint
from sim_envs.libero.experts.pick_and_place import insert, insertion, leave_alone, lift, pick, place
from sim_envs.libero.experts.scene import ExpertScene, Goal
from sim_envs.libero.sequences import GoalSequence
from sim_envs.libero.sim import LiberoSim
from sim_envs.libero.tasks import LIBERO_INTERFACE
from sim_envs.scripted.gripper import FULLY_OPEN, PANDA, Grasp, downward
from sim_envs.scripted.policy import HORIZON, checked_level
from sim_envs.scripted.poses import Pose, Vector3

_PUTTING = ("in", "on")

_FLAT = 0.035  # objects lower than this (m) have no wall to grasp
_PRESS = 0.008  # commanded depth (m) of the fingertips below the inside of the object, so that it moves along
_CLOSE_ENOUGH = 0.008  # distance (m) from the target at which sliding ends
_AHEAD = 0.025  # commanded lead (m) of the fingers: small enough that they do not climb a rim
_SLIPPED = 0.07  # distance (m) from the object's center beyond which the fingers have slipped off
_STEPS = 200  # control steps after which sliding starts again
_MIDDLE = 0.02  # radius (m) around the object's center in which its inside is searched
_UP = 0.08 * np.array([0.0, 0.0, 1.0])  # how the hand comes and leaves (m)


def achieve(scene: ExpertScene) -> Skill:
    """Achieve the unsatisfied goals in a feasible order, then hold still.

    Goals are checked again after each skill, since a skill may undo another goal.
    """
    while True:
        missing = [goal for goal in ordered_goals(scene.goals, scene) if not scene.satisfied(goal)]
        if missing:
            goal = opening_for(missing[0], scene) or missing[0]
            yield from SKILLS[goal.predicate](scene, goal)
        else:
            yield motions.release(scene, Phase.DONE)


def achieve_in_order(scene: ExpertScene, sequence: GoalSequence, late: int) -> Skill:
    """Achieve the subgoals of a sequence, then leave them; one that holds from before is undone first.

    What has counted is known `late` control steps later; until then an object stays up, or down.
    """
    while True:
        known = sequence.reached(late)
        if known.next is None:
            yield leave_alone(scene, known.counted[-1][1])
            continue
        (goal,) = Goal.all_of([known.next])
        held = motions.holds(scene, goal.arguments[0])
        if known.next_is_reset and scene.satisfied(goal):
            yield motions.release(scene, Phase.PLACE)  # until it has counted
        elif known.next_is_reset and held:
            yield from place(scene, *goal.arguments, stays=True)
        elif held or scene.satisfied(goal):
            yield from lift(scene, *goal.arguments, until=lambda then=known: sequence.reached(late) != then)
        else:
            yield from put(scene, goal)


def ordered_goals(goals: Sequence[Goal], scene: ExpertScene) -> list[Goal]:
    """The goals in the given order, except that each follows those that have to come first.

    An object goes in before its container is closed, and an object that carries another is moved before the
    other is put on it. A cycle is broken at its first goal.
    """

    def comes_first(one: Goal, other: Goal) -> bool:
        if one.predicate not in _PUTTING:
            return False
        obj, target = one.arguments
        if other.predicate == "close":
            container, closed = scene.container(target), scene.joint(other.arguments[0])
            return container is not None and closed is not None and container.name == closed.name
        return other.predicate in _PUTTING and other.arguments[1] == obj

    waiting, ordered = list(goals), []
    while waiting:
        free = (goal for goal in waiting if not any(comes_first(other, goal) for other in waiting))
        ordered.append(next(free, waiting[0]))
        waiting.remove(ordered[-1])
    return ordered


def opening_for(goal: Goal, scene: ExpertScene) -> Goal | None:
    """The goal to open a closed container before something can be put in; None if none is needed."""
    container = scene.container(goal.arguments[1]) if goal.predicate == "in" else None
    if container is None:
        return None
    name = goal.arguments[1] if scene.joint(goal.arguments[1]) is not None else container.fixture
    opening = Goal(predicate="open", arguments=(name,))
    return None if scene.satisfied(opening) else opening


def put(scene: ExpertScene, goal: Goal) -> Skill:
    """Move the first argument on or into the second, retrying until the goal holds."""
    obj, target = goal.arguments
    size = np.ptp(scene.surface(obj), axis=0)
    if goal.predicate == "on" and not scene.owner(target) and size[2] < _FLAT and size[:2].min() > FULLY_OPEN:
        yield from _slide(scene, goal)
        return
    tried: list[Grasp] = []
    while not scene.satisfied(goal):
        from_the_side = insertion(scene, obj, target, tried)
        if from_the_side is not None:
            tried.append(from_the_side.grasp)
            yield from insert(scene, obj, from_the_side)
        else:
            yield from pick(scene, obj, tried)
            yield from place(scene, obj, target)


def _slide(scene: ExpertScene, goal: Goal) -> Skill:
    """Slide a flat object, which cannot be grasped from above, to the middle of a region of the table."""
    obj, target = goal.arguments
    while not scene.satisfied(goal):
        top = _inside(scene, obj)
        start = Pose(position=np.array([*top[:2], top[2] + PANDA.tip]), rotation=downward(np.pi / 2))
        yield motions.reach(scene, start, start.shifted(_UP), CLOSED)
        yield _drag(scene, obj, target)
        yield motions.leave(scene, _UP, CLOSED)


def _inside(scene: ExpertScene, obj: str) -> Vector3:
    """Top of the object's surface at its center (m)."""
    surface, middle = scene.surface(obj), scene.center_of_mass(obj)
    under = surface[np.linalg.norm(surface[:, :2] - middle[:2], axis=1) < _MIDDLE]
    return np.array([*middle[:2], under[:, 2].max() if len(under) else middle[2]])


def _drag(scene: ExpertScene, obj: str, target: str) -> GripperMotion:
    start = scene.gripper
    low = _inside(scene, obj)[2] + PANDA.tip - _PRESS

    def missing() -> Float64[np.ndarray, " 2"]:
        return (scene.position(target) - scene.position(obj))[:2]

    def has_ended() -> bool:
        off = (scene.gripper.position - scene.position(obj))[:2]
        return bool(np.linalg.norm(missing()) < _CLOSE_ENOUGH or np.linalg.norm(off) > _SLIPPED)

    def path() -> Path:
        way = missing() * min(1.0, _AHEAD / max(float(np.linalg.norm(missing())), 1e-9))
        position = np.array([*(scene.gripper.position[:2] + way), low])
        pose = Pose(position=position, rotation=start.rotation)
        return (Waypoint(pose=pose, near=0.0, aligned=0.0),)

    return GripperMotion(phase=Phase.PUSH, path=path, grip=CLOSED, steps=_STEPS, interrupted=has_ended)


SKILLS: Mapping[str, Callable[[ExpertScene, Goal], Skill]] = {  # that achieve each of BDDL's predicates
    "in": put,
    "on": put,
    "open": pull,
    "close": push,
    "turnon": pull,
    "turnoff": pull,
}


def _require_skills(scene: ExpertScene) -> None:
    """Check that there are skills for all goals of a LIBERO environment."""
    for goal in scene.goals:
        if goal.predicate not in SKILLS:
            raise UsageError(
                f"no scripted skill achieves {goal}; skills: {', '.join(SKILLS)}. Use another policy"
            )
        joint = scene.joint(goal.arguments[0])
        if goal.predicate not in _PUTTING and (joint is None or not scene.wanted(goal.predicate, joint)):
            raise UsageError(f"{goal}: {goal.arguments[0]} has no joint for it; use another policy")


Actions = Float64[np.ndarray, "horizon 7"]

_SLOWEST = 0.5  # largest reduction of the pace at level 1, as a fraction
_ROOMY = 0.015  # minimal position tolerance (m) of waypoints that may be shifted
_ASIDE = 0.015  # standard deviation (m) of their shift sideways, at level 1
_HIGHER = 0.06  # largest shift (m) upwards, at level 1

# Standard deviation of the noise on every executed action at level 1.
_JITTER = np.array([0.1, 0.1, 0.1, 0.03, 0.03, 0.03, 0.0])
_DISTURBED = 0.08  # probability per query that a disturbance begins, at level 1
_MISSED = 0.3  # probability per query that closing fingers open instead, at level 1
_QUERIES = 2  # maximal duration of a disturbance, in queries
_DRIFT = (0.2, 0.7)  # range of the offset that a drift adds to every action


class ExpertNoise:
    """All randomness of a noisy expert in one episode: a function of level and episode key."""

    def __init__(self, level: float, key: EpisodeKey) -> None:
        self._level = level
        self._draws = np.random.default_rng([key.digest(), round(level * 1e6)])
        self._kind: Literal["pause", "drift", "missed grasp"] = "pause"
        self._left = 0
        self._drift = np.zeros(7)

    def motion_variation(self, motion: GripperMotion) -> tuple[float, Float64[np.ndarray, "waypoints 3"]]:
        """Sample the pace of a new motion (fraction of full speed), and the shift (m) of each waypoint."""
        path = motion.path()
        shifts = self._draws.normal(0.0, _ASIDE * self._level, (len(path), 3))
        shifts[:, 2] = self._draws.uniform(0.0, _HIGHER * self._level, len(path))
        for shift, waypoint in zip(shifts, path, strict=True):
            shift[:] *= waypoint is not path[-1] and np.isfinite(waypoint.near) and waypoint.near >= _ROOMY
        return 1.0 - _SLOWEST * self._level * float(self._draws.uniform()), shifts

    def disturb(self, actions: Actions, phase: Phase) -> tuple[Actions, bool]:
        """The actions with noise, and whether a disturbance is active."""
        chance, kind, length = self._draws.uniform(), self._draws.integers(2), self._draws.integers(_QUERIES)
        way, size = self._draws.normal(size=3), self._draws.uniform(*_DRIFT)
        if not self._left:
            self._kind = "missed grasp" if phase is Phase.GRASP else ("pause", "drift")[kind]
            limit = _MISSED if phase is Phase.GRASP else _DISTURBED
            self._drift[:3] = size * way / np.linalg.norm(way)
            self._left = 1 + int(length) if chance < limit * self._level else 0
        noisy = actions + self._level * _JITTER * self._draws.normal(size=actions.shape)
        disturbed = self._left > 0
        if disturbed:
            self._left -= 1
            if self._kind == "drift":
                noisy += self._drift
            else:
                noisy[:, :6] = 0.0
            if self._kind == "missed grasp":
                noisy[:, 6] *= -1.0
        return np.clip(noisy, -1.0, 1.0), disturbed


# Holds still with an open gripper.
_HOLD = np.tile(LIBERO_INTERFACE.hold_action(np.empty(8), None), (HORIZON, 1))
_STILL = (0.002, 0.02)
_STILL_STEPS = 4  # a gripper that moves less than this (m, rad) in this many control steps is stuck


class Expert:
    """A controller with access to the simulator's state. Implements `ScriptedPolicy`.

    Its actions are a function of the states since the reset, and with noise also of the episode key and the
    noise level.
    """

    def __init__(self, sim: LiberoSim, noise: float = 0.0, memory_age_s: float = 0.0) -> None:
        """Bind to a simulator with a task loaded, which is only read.

        `noise` is the variation of pace and path, and frequency of mistakes, from 0 (none) to 1. Of a
        sequence of subgoals it knows what had counted `memory_age_s` ago. A UsageError if the noise is
        another, or no skill achieves one of the goals.
        """
        self._sim = sim
        self._late = round(memory_age_s / motions.CONTROL_SECONDS)
        self._level = checked_level(noise)
        _require_skills(ExpertScene(sim.env))
        self._noise: ExpertNoise | None = None
        self._episode: Iterator[tuple[Actions, Actions, Phase]] | None = None
        self.intended, self.phase = _HOLD.copy(), Phase.APPROACH  # of the last query

    def reset(self, key: EpisodeKey) -> None:
        """Start an episode, after the simulator's own reset."""
        self._noise = ExpertNoise(self._level, key) if self._level > 0.0 else None
        self._episode = None
        self.intended, self.phase = _HOLD.copy(), Phase.APPROACH

    def query(self, state: Float64[np.ndarray, " state"]) -> Actions:
        """The next actions on the path of the current motion."""
        del state  # it reads the simulator
        if self._sim.shows_cue:  # an arm on its way would remember for a policy without memory
            return self.intended
        if self._episode is None:
            scene, sequence = ExpertScene(self._sim.env, self._sim.predicted_motion), self._sim.sequence
            skill = achieve(scene) if sequence is None else achieve_in_order(scene, sequence, self._late)
            self._episode = _play(scene, skill, self._noise)
        executed, self.intended, self.phase = next(self._episode)
        return executed


def _play(
    scene: ExpertScene, skill: Skill, noise: ExpertNoise | None
) -> Iterator[tuple[Actions, Actions, Phase]]:
    """Executed and intended actions, and the phase, of each query of an episode."""
    active = _ActiveMotion(scene, next(skill), noise)
    while True:
        while active.has_ended():
            active = _ActiveMotion(scene, next(skill), noise)
        intended = executed = active.follow(active.motion.path())
        if noise is not None:
            executed, disturbed = noise.disturb(active.varied_actions(), active.motion.phase)
            if disturbed:
                active.forget_plan()
        yield executed, intended, active.motion.phase


class _ActiveMotion:
    """A motion in progress, with its plan."""

    def __init__(self, scene: ExpertScene, motion: GripperMotion, noise: ExpertNoise | None) -> None:
        self.motion = motion
        self._scene = scene
        self._pace, self._shifts = noise.motion_variation(motion) if noise else (1.0, np.zeros((0, 3)))
        self._began = self._planned = scene.seconds
        self._arrived: float | None = None
        self._predicted: Int64[np.ndarray, " steps"] | None = None
        self._planned_at = scene.gripper
        self._passed = 0

    def has_ended(self) -> bool:
        """Whether the motion is interrupted, has reached its end, is stuck, or takes too long."""
        motion, gripper = self.motion, self._scene.gripper
        if motion.interrupted():
            return True
        path, over = motion.path(), False
        if self._predicted is not None:  # waypoints count as passed if the plan predicted it
            steps = min(self._steps_since(self._planned), len(self._predicted) - 1)
            self._passed = min(int(self._predicted[steps]), len(path) - 1)
        if motions.progress(path, gripper, self._passed) == len(path):
            self._arrived = self._scene.seconds if self._arrived is None else self._arrived
            over = self._steps_since(self._arrived) >= motion.dwell or motion.finished()
        elif self._predicted is not None:  # it is stuck if it has not moved since, though it should have
            due = self._steps_since(self._planned) >= _STILL_STEPS
            over = due and self._planned_at.is_within(gripper, *_STILL)
        return over or self._steps_since(self._began) >= motion.steps

    def varied_actions(self) -> Actions:
        path = [
            dataclasses.replace(point, pose=point.pose.shifted(shift))
            for point, shift in zip(self.motion.path(), self._shifts, strict=True)
        ]
        return self.follow(path, pace=self._pace)

    def forget_plan(self) -> None:
        """Discard the plan after a disturbance: it counts neither as progress nor as being stuck."""
        self._predicted = None

    def follow(self, path: Path, *, pace: float = 1.0) -> Actions:
        """Plan, and return its actions."""
        scene = self._scene
        deltas, self._predicted = motions.ArmModel(scene.mobility).follow(
            path, scene.gripper, scene.gripper_velocity, passed=self._passed, steps=HORIZON, pace=pace
        )
        self._planned, self._planned_at = scene.seconds, scene.gripper
        grips = np.full((len(deltas), 1), self.motion.grip)
        return np.clip(np.concatenate([deltas / motions.ACTION_SCALE, grips], axis=1), -1.0, 1.0)

    def _steps_since(self, seconds: float) -> int:
        return round((self._scene.seconds - seconds) / motions.CONTROL_SECONDS)
