"""The expert's skills for drawers, doors, knobs and flat things, the order of goals, and its noise."""

from collections.abc import Callable

import numpy as np
import pytest

from configs.errors import UsageError
from sim_envs.libero.experts.expert import Expert
from sim_envs.libero.experts.scene import ExpertScene, FixtureJoint, Goal
from sim_envs.libero.experts.skills import SKILLS, opening_for, ordered_goals
from sim_envs.libero.sim import LiberoSim
from sim_envs.truth.ground_truth import Phase
from sim_envs.world import EpisodeKey
from tests.sim_envs.libero.playing import Attempt, attempt

OpenSim = Callable[[str, int], LiberoSim]


def _key(suite: str, task_id: int, init_id: int = 0) -> EpisodeKey:
    return EpisodeKey(suite=suite, task_id=task_id, init_id=init_id, seed=7)


def _goal(predicate: str, *arguments: str) -> Goal:
    return Goal(predicate=predicate, arguments=arguments)


def _solve(sim: LiberoSim, noise: float = 0.0) -> Attempt:
    return attempt(sim, Expert(sim, noise))


@pytest.mark.parametrize(
    ("suite", "task_id", "phase"),
    [
        pytest.param("libero_goal", 0, Phase.OPEN, marks=pytest.mark.slow),
        pytest.param("libero_goal", 5, Phase.PUSH, marks=pytest.mark.slow),
        pytest.param("libero_goal", 7, Phase.TURN_ON, marks=pytest.mark.slow),
        pytest.param("libero_10", 3, Phase.CLOSE, marks=pytest.mark.slow),
    ],
    ids=["open a drawer", "push a plate", "turn a knob", "put in and close"],
)
def test_the_expert_solves_a_task(suite: str, task_id: int, phase: Phase, open_standin: OpenSim) -> None:
    done = _solve(open_standin(suite, task_id))
    assert done.success
    assert done.phases[-1] == phase


def _work_on(sim: LiberoSim, goal: Goal, steps: int, monkeypatch: pytest.MonkeyPatch) -> ExpertScene:
    """Let the expert work on a goal of ours instead of the task's, in the task's own scene."""
    sim.reset(init_id=0, seed=7, settle_steps=10)
    asked = dict(sim.env.parsed_problem, goal_state=[[goal.predicate, *goal.arguments]])
    monkeypatch.setattr(sim.env, "parsed_problem", asked)
    expert = Expert(sim)
    expert.reset(_key(sim.task.suite, sim.task.task_id))
    scene = ExpertScene(sim.env)
    for _ in range(steps // 5):
        if sim.advance(expert.query(np.empty(8))[:5]).success:
            break
    return scene


@pytest.mark.slow
def test_the_expert_closes_a_door(open_standin: OpenSim, monkeypatch: pytest.MonkeyPatch) -> None:
    goal = _goal("close", "microwave_1")
    assert _work_on(open_standin("libero_10", 9), goal, 120, monkeypatch).satisfied(goal)


@pytest.mark.slow
def test_the_expert_turns_off_what_it_has_turned_on(
    open_standin: OpenSim, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = open_standin("libero_goal", 7)
    on, off = _goal("turnon", "flat_stove_1"), _goal("turnoff", "flat_stove_1")
    assert _work_on(sim, on, 150, monkeypatch).satisfied(on)
    expert_asked = dict(sim.env.parsed_problem, goal_state=[[off.predicate, *off.arguments]])
    monkeypatch.setattr(sim.env, "parsed_problem", expert_asked)
    expert = Expert(sim)
    expert.reset(_key("libero_goal", 7))
    solved = any(sim.advance(expert.query(np.empty(8))[:5]).success for _ in range(50))
    assert solved


def test_a_container_is_opened_first_though_no_goal_says_so(open_standin: OpenSim) -> None:
    scene = ExpertScene(open_standin("libero_goal", 3).env)
    assert opening_for(scene.goals[0], scene) == _goal("open", "wooden_cabinet_1_top_region")
    assert opening_for(_goal("on", "akita_black_bowl_1", "plate_1"), scene) is None


def _joint(name: str) -> FixtureJoint:
    zeros = np.zeros(3)
    return FixtureJoint(name=name, fixture="f", body=1, slides=True, axis=zeros, anchor=zeros, value=0.0)


class _Containers(ExpertScene):
    """A scene of which only is known that `drawer` and `oven_inside` are behind joints."""

    def __init__(self) -> None:
        self._joints = {"drawer": _joint("slide"), "oven": _joint("hinge")}
        self._containers = {"drawer": self._joints["drawer"], "oven_inside": self._joints["oven"]}

    def joint(self, name: str) -> FixtureJoint | None:
        return self._joints.get(name)

    def container(self, region: str) -> FixtureJoint | None:
        return self._containers.get(region)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["close drawer", "in bowl drawer"], ["in bowl drawer", "close drawer"]),
        (["close oven", "in mug oven_inside"], ["in mug oven_inside", "close oven"]),
        (["close drawer", "on bowl cabinet_top"], ["close drawer", "on bowl cabinet_top"]),
        (["close oven", "in bowl drawer"], ["close oven", "in bowl drawer"]),
        (["on bowl plate", "in plate tray"], ["in plate tray", "on bowl plate"]),
        (["turnon stove", "on pot stove"], ["turnon stove", "on pot stove"]),
        (["on a b", "on b a"], ["on a b", "on b a"]),
        (
            ["close drawer", "on cup bowl", "in bowl drawer"],
            ["in bowl drawer", "close drawer", "on cup bowl"],
        ),
    ],
)
def test_goals_are_worked_through_in_an_order_that_can_succeed(given: list[str], expected: list[str]) -> None:
    goals = [_goal(*text.split()) for text in given]
    assert ordered_goals(goals, _Containers()) == [_goal(*text.split()) for text in expected]


def _roll(sim: LiberoSim, expert: Expert, queries: int) -> np.ndarray:
    key = _key(sim.task.suite, sim.task.task_id)
    sim.reset(init_id=0, seed=7, settle_steps=10)
    expert.reset(key)
    chunks = []
    for _ in range(queries):
        chunks.append(expert.query(np.empty(8)))
        sim.advance(chunks[-1][:5])
    return np.array(chunks)


@pytest.mark.slow
def test_noise_is_a_function_of_level_and_episode(open_standin: OpenSim) -> None:
    sim = open_standin("libero_goal", 7)
    rolled = [_roll(sim, Expert(sim, noise=level), 6) for level in (0.5, 0.5, 0.4)]
    np.testing.assert_array_equal(rolled[0], rolled[1])
    assert not np.array_equal(rolled[0], rolled[2])
    assert np.abs(rolled[0]).max() <= 1.0


@pytest.mark.slow
def test_a_noisy_expert_intends_what_a_calm_one_would_do_from_there(open_standin: OpenSim) -> None:
    sim = open_standin("libero_goal", 7)
    calm, noisy = Expert(sim), Expert(sim, noise=1.0)
    for expert in (calm, noisy):
        expert.reset(_key("libero_goal", 7))
    done = noisy.query(np.empty(8))
    np.testing.assert_array_equal(noisy.intended, calm.query(np.empty(8)))
    assert not np.array_equal(done, noisy.intended)


def test_a_task_without_a_skill_is_refused(open_standin: OpenSim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(SKILLS, "turnon")
    with pytest.raises(UsageError, match=r"no scripted skill achieves turnon\(flat_stove_1\)"):
        Expert(open_standin("libero_goal", 7))
