"""LIBERO's scripted expert: its skills, the order of goals, its noise; and what random actions do not do."""

import numpy as np
import pytest

from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from contracts.truth import Phase
from sim_envs.libero.experts.expert import SKILLS, Expert, opening_for, ordered_goals
from sim_envs.libero.experts.motions import ArmModel
from sim_envs.libero.experts.pick_and_place import is_covered
from sim_envs.libero.experts.scene import ExpertScene, FixtureJoint, Goal
from sim_envs.libero.tasks import LIBERO_INTERFACE
from sim_envs.scripted.policy import Random
from tests.sim_envs.conftest import attempt, expert_of, key_of

MUG, MICROWAVE, STOVE = "white_yellow_mug_1", "microwave_1_heating_region", "flat_stove_1_cook_region"


def goal_of(text: str) -> Goal:
    predicate, *arguments = text.split()
    return Goal(predicate=predicate, arguments=tuple(arguments))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite", "task_id", "phase"),
    [
        ("libero_goal", 0, Phase.OPEN),
        ("libero_goal", 5, Phase.PUSH),
        ("libero_goal", 7, Phase.TURN_ON),
        ("libero_10", 3, Phase.CLOSE),
    ],
)
def test_the_expert_solves_a_task(suite, task_id, phase, open_standin):
    sim = open_standin(suite, task_id)
    expert = Expert(sim)
    assert attempt(sim, expert).success
    assert expert.phase == phase


@pytest.mark.assets
@pytest.mark.slow
def test_the_expert_goes_on_from_any_state_of_its_task(open_sim):
    sim = open_sim("libero_object", 9)
    sim.reset(init_id=0, seed=7, settle_steps=10)
    dropping = np.array([[0.0, 0.3, 1.0, 0.0, 0.0, 0.0, -1.0]])
    expert = expert_of(sim)
    dropped, solved = False, False
    for _ in range(70):
        actions, height = expert.query(np.empty(8))[:5], ExpertScene(sim.env).position("orange_juice_1")[2]
        if expert.phase is Phase.CARRY and not dropped and height > 0.1:
            actions, dropped = np.repeat(dropping, 15, axis=0), True
        if solved := sim.advance(actions).success:
            break
    assert dropped
    assert solved


@pytest.mark.parametrize(("away", "rises"), [((0.0, 0.0, 0.0), False), ((0.0, 0.07, 0.0), True)])
def test_an_expert_that_takes_over_at_a_grasp_does_not_rise_first(open_standin, away, rises):
    """Beside the object it has to."""
    sim = open_standin("libero_object", 0)
    expert, scene = expert_of(sim), ExpertScene(sim.env)
    while expert.phase is Phase.APPROACH:
        grasp = scene.gripper
        sim.advance(expert.query(np.empty(8))[:1])
    there, heights = grasp.position + away, []
    for way in (np.array([0.0, 0.0, 0.15]), np.array([*away[:2], 0.15]), np.array(away)):  # around the object
        for _ in range(20):
            error = (grasp.position + way - scene.gripper.position) / 0.05
            sim.advance(np.array([[*error.clip(-1, 1), 0.0, 0.0, 0.0, -1.0]]))
    assert np.linalg.norm(scene.gripper.position - there) < 0.03
    expert.reset(key_of(sim))
    while expert.phase is Phase.APPROACH:
        heights.append(scene.gripper.position[2])
        sim.advance(expert.query(np.empty(8))[:2])
    assert (max(heights) > heights[0] + 0.02) == rises


def test_a_drawer_is_pulled_as_soon_as_both_fingers_hold_it_also_by_an_expert_that_takes_over_there(
    open_standin,
):
    sim = open_standin("libero_goal", 0)
    expert, scene = expert_of(sim), ExpertScene(sim.env)
    while expert.phase is not Phase.GRASP:
        sim.advance(expert.query(np.empty(8))[:1])
    handle, steps = scene.gripper, 0
    expert.reset(key_of(sim))
    while expert.phase is not Phase.OPEN:
        assert scene.gripper.is_within(handle, 0.02, 0.2)
        sim.advance(expert.query(np.empty(8))[:1])
        steps += 1
    assert steps < 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite", "task_id", "stages", "steps"),
    [
        ("libero_10", 9, [["close microwave_1"]], 120),
        ("libero_goal", 7, [["turnon flat_stove_1"], ["turnoff flat_stove_1"]], 250),
        ("libero_10", 9, [[f"in {MUG} {MICROWAVE}"]], 250),
        ("libero_10", 8, [[f"on moka_pot_{number} {STOVE}" for number in (1, 2)]], 400),
    ],
    ids=["close a door", "turn on and off", "insert from the side", "two pots beside each other"],
)
def test_the_expert_works_on_goals_in_turn(open_standin, suite, task_id, stages, steps, monkeypatch):
    """Instead of the task's, until it has come to rest."""
    sim = open_standin(suite, task_id)
    for goals in ([goal_of(goal) for goal in stage] for stage in stages):
        stated = [[goal.predicate, *goal.arguments] for goal in goals]
        with monkeypatch.context() as patch:
            patch.setattr(sim.env, "parsed_problem", {**sim.env.parsed_problem, "goal_state": stated})
            expert, taken = expert_of(sim), 0
            while expert.phase is not Phase.DONE and taken < steps:
                taken += sim.advance(expert.query(np.empty(8))[:5]).steps
        scene = ExpertScene(sim.env)
        assert all(scene.satisfied(goal) for goal in goals)
        for goal in goals if goals[0].predicate in ("in", "on") else ():
            assert scene.fingers_touching(goal.arguments[0]) == 0
            assert scene.pose(goal.arguments[0]).rotation[2, 2] > 0.95


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
def test_what_has_a_ceiling_is_told_from_what_is_open_above(open_standin, task_id, target, roofed):
    assert is_covered(ExpertScene(open_standin("libero_10", task_id).env), target) is roofed


def test_the_arm_reaches_what_is_near_and_free(open_standin):
    scene = ExpertScene(open_standin("libero_10", 9).env)
    reach, here = scene.reach(), scene.gripper
    steps = ((0.05, 0.05, -0.05), (1.0, 0.0, 0.0), (0.0, 0.0, -0.3))
    near, far, in_the_table = (here.moved(np.array([*step, 0.0, 0.0, 0.0])) for step in steps)
    there = reach.along([here, near])
    assert there is not None
    assert reach.along([here], start=there[-1]) is not None
    assert reach.along([far]) is None
    assert reach.along([in_the_table]) is None


def test_a_container_is_opened_first_though_no_goal_says_so(open_standin):
    scene = ExpertScene(open_standin("libero_goal", 3).env)
    assert opening_for(scene.goals[0], scene) == goal_of("open wooden_cabinet_1_top_region")
    assert opening_for(goal_of("on akita_black_bowl_1 plate_1"), scene) is None


class _Containers(ExpertScene):
    """A scene of which only is known that `drawer` and `oven_inside` are behind joints."""

    def __init__(self) -> None:
        pass

    def joint(self, name: str) -> FixtureJoint | None:
        if name not in ("drawer", "oven"):
            return None
        zeros = np.zeros(3)
        return FixtureJoint(name=name, fixture="f", body=1, slides=True, axis=zeros, anchor=zeros, value=0.0)

    def container(self, region: str) -> FixtureJoint | None:
        return self.joint(region.removesuffix("_inside"))


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
        (["close drawer", "on cup box", "in box drawer"], ["in box drawer", "close drawer", "on cup box"]),
    ],
)
def test_goals_are_worked_through_in_an_order_that_can_succeed(given, expected):
    assert ordered_goals([*map(goal_of, given)], _Containers()) == [*map(goal_of, expected)]


@pytest.mark.slow
def test_noise_is_a_function_of_level_and_episode_and_never_in_what_is_meant(open_standin):
    sim = open_standin("libero_goal", 7)

    def rolled(noise: float) -> np.ndarray:
        sim.reset(init_id=0, seed=7, settle_steps=10)
        expert, calm = expert_of(sim, noise=noise), expert_of(sim)
        chunks = [expert.query(np.empty(8))]
        np.testing.assert_array_equal(expert.intended, calm.query(np.empty(8)))
        for _ in range(5):
            sim.advance(chunks[-1][:5])
            chunks.append(expert.query(np.empty(8)))
        return np.array(chunks)

    first, again, other = map(rolled, (0.5, 0.5, 0.4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.abs(first).max() <= 1.0


def test_a_task_without_a_skill_is_refused(open_standin, monkeypatch):
    monkeypatch.delitem(SKILLS, "turnon")
    with pytest.raises(UsageError, match=r"no scripted skill achieves turnon\(flat_stove_1\)"):
        Expert(open_standin("libero_goal", 7))


@pytest.mark.parametrize("least", [0.0, 1e-9, 1e-6])
@pytest.mark.parametrize("seed", range(6))
def test_a_stretched_arm_that_cannot_move_one_way_is_steered_all_the_same(least, seed):
    directions = np.linalg.qr(np.random.default_rng(seed).normal(size=(6, 6)))[0]
    mobility = directions @ np.diag([1.3, 1.0, 0.7, 0.08, 0.06, least]) @ directions.T
    assert np.abs(ArmModel(mobility).gain).max() < 10


def test_random_actions_belong_to_the_episode():
    policy, sampled = Random(LIBERO_INTERFACE), []
    for init_id in (0, 1, 0):
        policy.reset(EpisodeKey(suite="libero_object", task_id=0, init_id=init_id, seed=7))
        sampled.append(policy.query(np.empty(8)))
    np.testing.assert_array_equal(sampled[0], sampled[2])
    assert not np.array_equal(sampled[0], sampled[1])
