"""Skills by goal predicate, the order of a task's goals, and the loop over them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from configs.errors import UsageError
from sim_envs.libero.experts.articulated import pull, push
from sim_envs.libero.experts.insert import insert, insertion
from sim_envs.libero.experts.joints import read_joint, wanted_range
from sim_envs.libero.experts.pick_and_place import pick, place, release
from sim_envs.libero.experts.push import is_pushed, slide
from sim_envs.libero.experts.scene import ExpertScene, Goal
from sim_envs.scripted.grasps import Grasp
from sim_envs.scripted.motion import Skill
from sim_envs.truth.ground_truth import Phase

_PUTTING = ("in", "on")


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


def ordered_goals(goals: Sequence[Goal], scene: ExpertScene) -> list[Goal]:
    """The goals in the given order, except that each follows those that have to come first.

    An object goes in before its container is closed, and an object that carries another is moved before the
    other is put on it. A cycle is broken at its first goal.
    """
    waiting, ordered = list(goals), []
    while waiting:
        free = [goal for goal in waiting if not any(_comes_first(other, goal, scene) for other in waiting)]
        ordered.append(free[0] if free else waiting[0])
        waiting.remove(ordered[-1])
    return ordered


def _comes_first(one: Goal, other: Goal, scene: ExpertScene) -> bool:
    """Whether achieving `other` before `one` would undo or prevent `one`."""
    if one.predicate not in _PUTTING:
        return False
    obj, target = one.arguments
    if other.predicate == "close":
        container, closed = scene.container(target), scene.joint(other.arguments[0])
        return container is not None and closed is not None and container.name == closed.name
    return other.predicate in _PUTTING and other.arguments[1] == obj


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


def require_skills(env: Any) -> None:
    """Check that there are skills for all goals of a LIBERO environment.

    Raises:
        UsageError: It has a goal that no skill achieves.
    """
    for goal in Goal.all_of(env):
        if skill_for(goal) not in (pull, push):
            continue
        joint = read_joint(env, goal.arguments[0])
        if joint is None or wanted_range(env, goal.predicate, joint) is None:
            raise UsageError(f"{goal}: {goal.arguments[0]} has no joint for it; use another policy")
