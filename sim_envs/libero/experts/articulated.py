"""Skills for drawers, doors and knobs: pull and push."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from sim_envs.libero.experts.holds import STAND_OFF, ways_to_hold, ways_to_push
from sim_envs.libero.experts.joints import FixtureJoint
from sim_envs.libero.experts.reaching import leave, reach, stay, time_for
from sim_envs.libero.experts.scene import ExpertScene, Goal
from sim_envs.scripted.motion import CLOSED, OPEN, GripperMotion, Skill, Waypoint
from sim_envs.scripted.poses import Pose
from sim_envs.truth.ground_truth import Phase

_AHEAD = 0.25
"""Lead (rad) of the hand's target along an arc."""

_BEYOND = {True: 0.012, False: 0.12}
"""Overshoot of the hand's target (m for slides, rad for hinges), since the arm is compliant."""

_INSIDE = 0.25
"""Margin within the goal's range, as a fraction of that range."""

_DEEPEST_INSIDE = {True: 0.015, False: 0.3}
"""Maximal margin (m for slides, rad for hinges)."""

_ANOTHER = (0.01, 0.2)
"""Poses at least this far apart (m, rad) are different attempts."""

_WAYS = 8
"""Number of candidate pushes, including those that have failed."""

_CLOSING_STEPS, _OPENING_STEPS = 20, 8


def pull(scene: ExpertScene, goal: Goal) -> Skill:
    """Grasp the goal's part and move it until the goal holds; if it cannot be grasped, push it."""
    tried: list[Pose] = []
    while (travel := _travel(scene, goal)) != 0.0:
        ways = ways_to_hold(scene, _joint(scene, goal), travel)
        hold = next((hold for hold in ways if _differs(hold, tried)), None)
        if hold is None:
            yield from push(scene, goal)
            return
        tried.append(hold)
        yield reach(scene, hold, hold.backed_off(STAND_OFF), OPEN)
        yield stay(scene, Phase.GRASP, CLOSED, _CLOSING_STEPS)
        yield _along(scene, goal, functools.partial(_joint(scene, goal).carried, scene.gripper))
        yield stay(scene, Phase.RETREAT, OPEN, _OPENING_STEPS)
        yield leave(scene, -STAND_OFF * scene.gripper.rotation[:, 2], OPEN)


def push(scene: ExpertScene, goal: Goal) -> Skill:
    """Push the goal's part with closed fingers until the goal holds."""
    tried: list[Pose] = []
    while (travel := _travel(scene, goal)) != 0.0:
        joint = _joint(scene, goal)
        ways = list(itertools.islice(ways_to_push(scene, joint, travel), _WAYS))
        fresh = [way for way in ways if _differs(way.pose, tried)]
        if not fresh:
            tried.clear()
            yield stay(scene, Phase.RETREAT, OPEN, _OPENING_STEPS)
            continue
        tried.append(fresh[0].pose)
        before = fresh[0].before(joint, travel)
        yield reach(scene, before, before, CLOSED)
        yield _along(scene, goal, functools.partial(fresh[0].after, _joint(scene, goal)))
        yield leave(scene, before.position - fresh[0].pose.position, CLOSED)


def _joint(scene: ExpertScene, goal: Goal) -> FixtureJoint:
    joint = scene.joint(goal.arguments[0])
    assert joint is not None
    return joint


def _travel(scene: ExpertScene, goal: Goal) -> float:
    """Remaining travel of the joint until the goal holds with a margin; 0 if it holds."""
    joint = _joint(scene, goal)
    wanted = scene.wanted(goal.predicate, joint)
    assert wanted is not None
    low, high = wanted
    if scene.satisfied(goal):
        return 0.0
    inside = min(_INSIDE * (high - low), _DEEPEST_INSIDE[joint.slides])
    aim = low + inside if joint.value < low + inside else high - inside
    return aim - joint.value


def _differs(pose: Pose, tried: Sequence[Pose]) -> bool:
    """Whether a pose is worth trying after others have failed."""
    twists = [pose.twist_to(other) for other in tried]
    return all(np.linalg.norm(t[:3]) > _ANOTHER[0] or np.linalg.norm(t[3:]) > _ANOTHER[1] for t in twists)


def _along(scene: ExpertScene, goal: Goal, pose_after: Callable[[float], Pose]) -> GripperMotion:
    """Move the hand along a joint until its value satisfies the goal.

    Args:
        scene: The scene.
        goal: The goal of the motion.
        pose_after: Maps a displacement of the joint from its current value to the hand's pose.
    """
    begin = _joint(scene, goal)
    aim = begin.value + _travel(scene, goal)
    beyond = math.copysign(_BEYOND[begin.slides], aim - begin.value)
    farthest = np.inf if begin.slides else _AHEAD
    end = pose_after(aim - begin.value)

    def path() -> Sequence[Waypoint]:
        value = _joint(scene, goal).value
        ahead = float(np.clip(aim + beyond - value, -farthest, farthest))
        return (Waypoint(pose=pose_after(value + ahead - begin.value), near=0.0, aligned=0.0),)

    return GripperMotion(
        phase=goal.phase,
        path=path,
        grip=CLOSED,
        steps=time_for(begin.carried(end, begin.value - aim), (Waypoint(pose=end),)),
        interrupted=lambda: (_joint(scene, goal).value - aim) * beyond >= 0.0,
    )
