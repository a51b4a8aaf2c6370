"""Things set down beside each other and brought in from the side, in LIBERO's scenes with the stand-ins."""

from collections.abc import Callable

import numpy as np
import pytest

from sim_envs.libero.experts.expert import Expert
from sim_envs.libero.experts.insertion import is_covered
from sim_envs.libero.experts.scene import ExpertScene, Goal
from sim_envs.libero.sim import LiberoSim
from sim_envs.truth.ground_truth import Phase
from sim_envs.world import EpisodeKey

MUG, MICROWAVE = "white_yellow_mug_1", "microwave_1_heating_region"
STOVE = "flat_stove_1_cook_region"

OpenSim = Callable[[str, int], LiberoSim]


def _bring(sim: LiberoSim, *goals: Goal, monkeypatch: pytest.MonkeyPatch, steps: int) -> ExpertScene:
    """Let the expert work on some of a task's goals until it has come to rest."""
    wanted = [[goal.predicate, *goal.arguments] for goal in goals]
    monkeypatch.setitem(sim.env.parsed_problem, "goal_state", wanted)
    expert = Expert(sim)
    expert.reset(EpisodeKey(suite="libero_10", task_id=sim.task.task_id, init_id=0, seed=7))
    taken = 0
    while expert.phase is not Phase.DONE and taken < steps:
        taken += sim.advance(expert.query(np.empty(8))[:5]).steps
    return ExpertScene(sim.env)


@pytest.mark.slow
def test_a_mug_is_put_into_a_microwave_and_let_go(
    open_standin: OpenSim, monkeypatch: pytest.MonkeyPatch
) -> None:
    goal = Goal(predicate="in", arguments=(MUG, MICROWAVE))
    scene = _bring(open_standin("libero_10", 9), goal, monkeypatch=monkeypatch, steps=250)
    assert scene.satisfied(goal)
    assert scene.fingers_touching(MUG) == 0
    assert scene.pose(MUG).rotation[2, 2] > 0.95


@pytest.mark.slow
def test_two_pots_stand_beside_each_other_on_one_stove(
    open_standin: OpenSim, monkeypatch: pytest.MonkeyPatch
) -> None:
    goals = [Goal(predicate="on", arguments=(f"moka_pot_{number}", STOVE)) for number in (1, 2)]
    scene = _bring(open_standin("libero_10", 8), *goals, monkeypatch=monkeypatch, steps=400)
    assert all(scene.satisfied(goal) for goal in goals)
    assert all(scene.pose(goal.arguments[0]).rotation[2, 2] > 0.95 for goal in goals)


@pytest.mark.parametrize(
    ("task_id", "target", "roofed"),
    [
        (9, MICROWAVE, True),
        (8, STOVE, False),
        (5, "desk_caddy_1_back_contain_region", False),
        (0, "basket_1_contain_region", False),
        (3, "white_cabinet_1_bottom_region", False),
        (3, "white_cabinet_1_top_region", True),
    ],
)
def test_what_has_a_ceiling_is_told_from_what_is_open_above(
    open_standin: OpenSim, task_id: int, target: str, roofed: bool
) -> None:
    assert is_covered(ExpertScene(open_standin("libero_10", task_id).env), target) is roofed


def test_the_arm_reaches_what_is_near_and_free(open_standin: OpenSim) -> None:
    scene = ExpertScene(open_standin("libero_10", 9).env)
    reach, here = scene.reach(), scene.gripper
    steps = ((0.05, 0.05, -0.05), (1.0, 0.0, 0.0), (0.0, 0.0, -0.3))
    near, far, in_the_table = (here.moved(np.array([*step, 0.0, 0.0, 0.0])) for step in steps)
    there = reach.along([here, near])
    assert there is not None
    assert reach.along([here], start=there[-1]) is not None
    assert reach.along([far]) is None
    assert reach.along([in_the_table]) is None
