"""Skills by goal predicate, the order of a task's goals, and the loop over them; sliding flat objects."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from configs.errors import UsageError
from sim_envs.libero.experts.articulated import pull, push
from sim_envs.libero.experts.insertion import insert, insertion
from sim_envs.libero.experts.motions import CLOSED, GripperMotion, Skill, Waypoint, leave, reach
from sim_envs.libero.experts.pick_and_place import lift, pick, place, release
from sim_envs.libero.experts.scene import ExpertScene, Goal
from sim_envs.libero.sequences import GoalSequence
from sim_envs.scripted.grasps import Grasp
from sim_envs.scripted.gripper import PANDA, XY, downward
from sim_envs.scripted.poses import Pose, Vector3
from sim_envs.truth.ground_truth import Phase

_PUTTING = ("in", "on")

_FLAT = 0.035  # objects lower than this (m) have no wall to grasp
_PRESS = 0.008  # commanded depth (m) of the fingertips below the inside of the object, so that it moves along
_CLOSE_ENOUGH = 0.008  # distance (m) from the target at which sliding ends
_AHEAD = 0.025  # commanded lead (m) of the fingers: small enough that they do not climb a rim
_SLIPPED = 0.07  # distance (m) from the object's center beyond which the fingers have slipped off
_STEPS = 200  # control steps after which sliding starts again
_MIDDLE = 0.02  # radius (m) around the object's center in which its inside is searched

_UP = 0.08


def achieve(scene: ExpertScene) -> Skill:
    """Achieve the unsatisfied goals in a feasible order, then hold still.

    Goals are checked again after each skill, since a skill may undo another goal.
    """
    while True:
        missing = [goal for goal in ordered_goals(scene.goals, scene) if not scene.satisfied(goal)]
        if missing:
            goal = opening_for(missing[0], scene) or missing[0]
            yield from skill_for(goal)(scene, goal)
        else:
            yield release(scene, Phase.DONE)


def achieve_in_order(scene: ExpertScene, sequence: GoalSequence) -> Skill:
    """Achieve the subgoals of a sequence, then hold still; one that holds from before is undone first."""
    while True:
        if sequence.next is None:
            yield release(scene, Phase.DONE)
            continue
        (goal,) = Goal.all_of([sequence.next])
        if not scene.satisfied(goal):
            yield from put(scene, goal)
        elif sequence.next_is_reset:
            yield release(scene, Phase.PLACE)  # until it has counted
        else:
            yield from lift(scene, goal.arguments[0], until=lambda: sequence.next_is_reset)
            yield from place(scene, *goal.arguments, stays=True)


def ordered_goals(goals: Sequence[Goal], scene: ExpertScene) -> list[Goal]:
    """The goals in the given order, except that each follows those that have to come first.

    An object goes in before its container is closed, and an object that carries another is moved before the
    other is put on it. A cycle is broken at its first goal.
    """

    def comes_first(one: Goal, other: Goal) -> bool:
        """Whether achieving `other` before `one` would undo or prevent `one`."""
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
    if is_pushed(scene, goal):
        yield from slide(scene, goal)
        return
    obj, target = goal.arguments
    tried: list[Grasp] = []
    while not scene.satisfied(goal):
        from_the_side = insertion(scene, obj, target, tried)
        if from_the_side is not None:
            tried.append(from_the_side.grasp)
            yield from insert(scene, obj, from_the_side)
        else:
            yield from pick(scene, obj, tried)
            yield from place(scene, obj, target)


def is_pushed(scene: ExpertScene, goal: Goal) -> bool:
    """Whether a goal is to move a flat object, too wide for the gripper, to a region of the table.

    Such an object cannot be grasped from above, so it is slid.
    """
    if goal.predicate != "on" or scene.owner(goal.arguments[1]):
        return False
    size = np.ptp(scene.surface(goal.arguments[0]), axis=0)
    return bool(size[2] < _FLAT and size[:2].min() > 2 * PANDA.inner)


def slide(scene: ExpertScene, goal: Goal) -> Skill:
    """Slide the first argument to the middle of the second, retrying until the goal holds."""
    while not scene.satisfied(goal):
        obj, target = goal.arguments
        spot = _inside(scene, obj)
        start = Pose(position=spot + np.array([0.0, 0.0, PANDA.tip]), rotation=downward(np.pi / 2))
        yield reach(scene, start, start.at_height(start.position[2] + _UP), CLOSED)
        yield _drag(scene, obj, target)
        yield leave(scene, np.array([0.0, 0.0, _UP]), CLOSED)


def _inside(scene: ExpertScene, obj: str) -> Vector3:
    """Top of the object's surface at its center (m)."""
    surface, middle = scene.surface(obj), scene.center_of_mass(obj)
    under = surface[np.linalg.norm(surface[:, :2] - middle[:2], axis=1) < _MIDDLE]
    return np.array([*middle[:2], under[:, 2].max() if len(under) else middle[2]])


def _drag(scene: ExpertScene, obj: str, target: str) -> GripperMotion:
    start = scene.gripper
    low = _inside(scene, obj)[2] + PANDA.tip - _PRESS

    def missing() -> XY:
        return (scene.position(target) - scene.position(obj))[:2]

    def slipped_off() -> bool:
        off = (scene.gripper.position - scene.position(obj))[:2]
        return bool(np.linalg.norm(off) > _SLIPPED)

    def path() -> Sequence[Waypoint]:
        way = missing() * min(1.0, _AHEAD / max(float(np.linalg.norm(missing())), 1e-9))
        position = np.array([*(scene.gripper.position[:2] + way), low])
        pose = Pose(position=position, rotation=start.rotation)
        return (Waypoint(pose=pose, near=0.0, aligned=0.0),)

    return GripperMotion(
        phase=Phase.PUSH,
        path=path,
        grip=CLOSED,
        steps=_STEPS,
        interrupted=lambda: bool(np.linalg.norm(missing()) < _CLOSE_ENOUGH) or slipped_off(),
    )


SKILLS: Mapping[str, Callable[[ExpertScene, Goal], Skill]] = {
    "in": put,
    "on": put,
    "open": pull,
    "close": push,
    "turnon": pull,
    "turnoff": pull,
}
"""The skill that achieves each of BDDL's predicates."""


def skill_for(goal: Goal) -> Callable[[ExpertScene, Goal], Skill]:
    """The skill for a goal.

    Raises:
        UsageError: No skill achieves such a goal.
    """
    if goal.predicate not in SKILLS:
        raise UsageError(
            f"no scripted skill achieves {goal}; skills: {', '.join(SKILLS)}. Use another policy"
        )
    return SKILLS[goal.predicate]


def require_skills(scene: ExpertScene) -> None:
    """Check that there are skills for all goals of a LIBERO environment.

    Raises:
        UsageError: It has a goal that no skill achieves.
    """
    for goal in scene.goals:
        if skill_for(goal) not in (pull, push):
            continue
        joint = scene.joint(goal.arguments[0])
        if joint is None or scene.wanted(goal.predicate, joint) is None:
            raise UsageError(f"{goal}: {goal.arguments[0]} has no joint for it; use another policy")
