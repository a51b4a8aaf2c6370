"""Skills by goal predicate, and the loop over a task's goals."""

from collections.abc import Callable, Mapping
from typing import Any

from configs.errors import UsageError
from sim_envs.libero.experts.articulated import pull, push
from sim_envs.libero.experts.insert import insert, insertion
from sim_envs.libero.experts.joints import read_joint, wanted_range
from sim_envs.libero.experts.order import in_working_order, opening_for
from sim_envs.libero.experts.pick_and_place import let_go, pick, place
from sim_envs.libero.experts.push import is_pushed, slide
from sim_envs.libero.experts.scene import ExpertScene, Goal
from sim_envs.scripted.grasps import Grasp
from sim_envs.scripted.motion import Skill
from sim_envs.truth.ground_truth import Phase


def achieve(scene: ExpertScene) -> Skill:
    """Achieve the unsatisfied goals in a feasible order, then hold still.

    Goals are checked again after each skill, since a skill may undo another goal.
    """
    while True:
        missing = [goal for goal in in_working_order(scene.goals, scene) if not scene.satisfied(goal)]
        if missing:
            goal = opening_for(missing[0], scene) or missing[0]
            yield from skill_for(goal)(scene, goal)
        else:
            yield let_go(scene, Phase.DONE)


def put(scene: ExpertScene, goal: Goal) -> Skill:
    """Move the first argument on or into the second, retrying until the goal holds."""
    if is_pushed(scene, goal):
        yield from slide(scene, goal)
        return
    thing, target = goal.arguments
    tried: list[Grasp] = []
    while not scene.satisfied(goal):
        from_the_side = insertion(scene, thing, target, tried)
        if from_the_side is not None:
            tried.append(from_the_side.grasp)
            yield from insert(scene, thing, from_the_side)
        else:
            yield from pick(scene, thing, tried)
            yield from place(scene, thing, target)


SKILLS: Mapping[str, Callable[[ExpertScene, Goal], Skill]] = {
    "in": put,
    "on": put,
    "open": pull,
    "close": push,
    "turnon": pull,
    "turnoff": pull,
}
"""The skill that achieves each of BDDL's predicates."""


class NoSkillError(UsageError):
    """A task has a goal that no skill achieves."""


def skill_for(goal: Goal) -> Callable[[ExpertScene, Goal], Skill]:
    """The skill for a goal.

    Raises:
        NoSkillError: No skill achieves such a goal.
    """
    if goal.predicate not in SKILLS:
        raise NoSkillError(
            f"no scripted skill achieves {goal}; there are skills for {', '.join(SKILLS)}: use another policy"
        )
    return SKILLS[goal.predicate]


def require_skills(env: Any) -> None:
    """Check that there are skills for all goals of a LIBERO environment.

    Raises:
        NoSkillError: It has a goal that no skill achieves.
    """
    for goal in Goal.all_of(env):
        if skill_for(goal) not in (pull, push):
            continue
        joint = read_joint(env, goal.arguments[0])
        if joint is None or wanted_range(env, goal.predicate, joint) is None:
            raise NoSkillError(f"{goal} is about nothing that moves on one joint: use another policy")
