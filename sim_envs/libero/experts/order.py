"""In which order a task's goals can be made to hold."""

from collections.abc import Sequence

from sim_envs.libero.experts.scene import ExpertScene, Goal

_PUTTING = ("in", "on")


def in_working_order(goals: Sequence[Goal], scene: ExpertScene) -> list[Goal]:
    """The goals as they were given, but none before one that has to come first.

    A thing goes in before its container is shut; what carries something else is moved before that is put on
    it. A circle of such demands is broken where it was written first.
    """
    waiting, ordered = list(goals), []
    while waiting:
        free = [goal for goal in waiting if not any(comes_first(other, goal, scene) for other in waiting)]
        ordered.append(free[0] if free else waiting[0])
        waiting.remove(ordered[-1])
    return ordered


def comes_first(one: Goal, other: Goal, scene: ExpertScene) -> bool:
    """Whether working on `other` before `one` would spoil it or shut it out."""
    if one.predicate not in _PUTTING:
        return False
    thing, target = one.arguments
    if other.predicate == "close":
        container, shut = scene.container(target), scene.joint(other.arguments[0])
        return container is not None and shut is not None and container.name == shut.name
    return other.predicate in _PUTTING and other.arguments[1] == thing


def opening_for(goal: Goal, scene: ExpertScene) -> Goal | None:
    """What has to be open before a goal can be worked on, though no goal says so; None if nothing is shut."""
    if goal.predicate != "in":
        return None
    region = goal.arguments[1]
    container = scene.container(region)
    if container is None:
        return None
    name = region if scene.joint(region) is not None else container.fixture
    opening = Goal(predicate="open", arguments=(name,))
    return None if scene.satisfied(opening) else opening
