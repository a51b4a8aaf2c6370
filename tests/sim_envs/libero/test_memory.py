"""Tasks that need memory: what counts in sequences and overshoots, and what only the first second shows."""

import dataclasses
import itertools
from collections.abc import Callable

import mujoco
import numpy as np
import pytest

from configs.load import load
from configs.schema import SuiteConfig
from contracts.truth import Fact, Phase
from sim_envs.libero import tasks
from sim_envs.libero.cue import CUE_STEPS, MARKER, Covers
from sim_envs.libero.experts import motions
from sim_envs.libero.experts.expert import Expert
from sim_envs.libero.experts.scene import ExpertScene
from sim_envs.libero.sequences import FALSE_STEPS, OVERSHOT_STEPS, STILL_STEPS, TRUE_STEPS, GoalSequence
from sim_envs.libero.sim import SETTLE_ACTION, LiberoSim
from sim_envs.libero.tasks import MEMORY_SUITE, SHORT_SUITE, definition, get_task, list_tasks
from sim_envs.scripted.policy import Noop, Random
from sim_envs.suite import open_suite
from sim_envs.truth.wording import parse_memory, remember
from tests.sim_envs.conftest import attempt, expert_of, put_thing

Open = Callable[[str, int], LiberoSim]

UP, DOWN = False, True


def play(sequence: GoalSequence, now: dict, steps: int, **holds: bool) -> bool:
    """Whether the sequence was solved in these steps."""
    now.update({(name,): held for name, held in holds.items()})
    return any(sequence.step() for _ in range(steps))


def begin(*alternatives: tuple[str, ...]) -> tuple[GoalSequence, dict]:
    now = {(name,): DOWN for subgoals in alternatives for name in subgoals}
    return GoalSequence([[(name,) for name in each] for each in alternatives], now.__getitem__), now


def test_a_lift_counts_after_it_was_long_enough_and_the_object_is_back_for_long_enough():
    sequence, now = begin(("a", "a"))
    play(sequence, now, 100)
    play(sequence, now, FALSE_STEPS - 1, a=UP)
    play(sequence, now, TRUE_STEPS, a=DOWN)
    assert not sequence.reached().counted
    assert not sequence.reached().next_is_reset
    play(sequence, now, FALSE_STEPS, a=UP)
    assert sequence.reached().next_is_reset
    play(sequence, now, TRUE_STEPS - 1, a=DOWN)
    assert not sequence.reached().counted
    play(sequence, now, 1)
    assert (len(sequence.reached().counted), sequence.progress, sequence.reached().next) == (1, 0.5, ("a",))
    assert [len(sequence.reached(ago).counted) for ago in (0, 1, 10_000)] == [1, 0, 0]
    assert [sequence.reached(ago).next_is_reset for ago in (0, 1, TRUE_STEPS + 1)] == [False, True, False]
    play(sequence, now, FALSE_STEPS, a=UP)
    assert sequence.next_is_undone


def test_subgoals_count_in_their_order_and_one_that_holds_from_before_has_to_be_undone():
    sequence, now = begin(("a", "b"))
    play(sequence, now, FALSE_STEPS, a=UP, b=UP)
    assert (sequence.reached().next_is_reset, sequence.next_is_undone) == (True, False)  # it had never held
    play(sequence, now, TRUE_STEPS, b=DOWN)
    assert not sequence.reached().counted
    play(sequence, now, 3 * TRUE_STEPS, a=DOWN)
    assert len(sequence.reached().counted) == 1
    play(sequence, now, FALSE_STEPS, b=UP)
    assert sequence.next_is_undone


def test_one_of_the_alternatives_is_enough():
    sequence, now = begin(("a", "b"), ("b", "a"))
    play(sequence, now, FALSE_STEPS, a=UP, b=UP)
    play(sequence, now, TRUE_STEPS, b=DOWN)
    assert (len(sequence.reached().counted), sequence.reached().next) == (1, ("a",))
    play(sequence, now, FALSE_STEPS)
    assert play(sequence, now, TRUE_STEPS + STILL_STEPS, a=DOWN)


def test_it_is_solved_once_it_has_been_still_and_overshoot_fails_for_good():
    sequence, now = begin(("a",))
    play(sequence, now, FALSE_STEPS, a=UP)
    assert not play(sequence, now, TRUE_STEPS + STILL_STEPS - 1, a=DOWN)
    assert (sequence.reached().next, sequence.progress) == (None, 1.0)
    play(sequence, now, OVERSHOT_STEPS - 1, a=UP)  # a shaky object
    assert not play(sequence, now, TRUE_STEPS + STILL_STEPS - 1, a=DOWN)
    assert play(sequence, now, 1)
    assert not sequence.overshot
    play(sequence, now, OVERSHOT_STEPS, a=UP)
    assert sequence.overshot
    assert not play(sequence, now, 10 * STILL_STEPS, a=DOWN)


def test_the_bowl_stands_on_its_plate_and_holding_still_counts_nothing(open_standin):
    lift = open_standin(MEMORY_SUITE, 0)
    for init_id in (0, 49, 1000):
        lift.reset(init_id=init_id, seed=7, settle_steps=10)
        assert lift.env._eval_predicate(["on", "akita_black_bowl_1", "plate_1"])
    steps = STILL_STEPS + TRUE_STEPS
    result = lift.advance(np.tile(SETTLE_ACTION, (steps, 1)))
    assert (result.steps, result.success, lift.progress()) == (steps, False, 0.0)
    assert lift.truth().narration.object == "black bowl"


def test_the_expert_lifts_stops_and_an_episode_leaves_nothing_behind(open_standin):
    lift, actions = open_standin(MEMORY_SUITE, 0), np.random.default_rng(0).uniform(-1, 1, (20, 7))

    def begun():
        lift.reset(init_id=1000, seed=7, settle_steps=10)
        lift.advance(actions)
        return lift.progress(), lift.flat_state().tobytes()

    before = begun()
    assert attempt(lift, Expert(lift), 1000).success
    assert lift.progress() == 1.0
    assert begun() == before


def test_the_hand_rises_as_soon_as_both_fingers_hold_the_bowl_and_a_lift_ends_when_the_last_subgoal_counts(
    open_standin, monkeypatch
):
    """However thin the bowl's wall, since no observation shows for how long they have held it; and also if it
    fell back by itself."""
    sim = open_standin(MEMORY_SUITE, 0)
    expert, scene = expert_of(sim), ExpertScene(sim.env)
    while scene.fingers_touching("akita_black_bowl_1") < 2 or scene.finger_speed > 0.02:
        sim.advance(expert.query(np.empty(8))[:1])
    assert expert.phase is Phase.GRASP
    monkeypatch.setattr(motions, "CLOSED_ON_NOTHING", scene.opening + 0.01)
    assert expert.query(np.empty(8))[0, 2] > 0.5
    assert expert.phase is Phase.CARRY
    done = dataclasses.replace(sim.sequence.reached(), counted=sim.sequence.subgoals[-1:], next=None)
    monkeypatch.setattr(sim.sequence, "reached", lambda steps_ago=0: done)
    expert.query(np.empty(8))
    assert expert.phase is Phase.DONE


def test_what_is_in_a_basket_is_no_obstacle_for_it(open_standin):
    sim = open_standin(MEMORY_SUITE, 8)
    scene = ExpertScene(sim.env)
    put_thing(sim, "cream_cheese_1", scene.position("basket_2") + np.array([0.0, 0.0, 0.05]), 20)
    assert [scene.contents(f"basket_{number}") for number in (1, 2)] == [set(), {"cream_cheese_1"}]


def test_what_is_under_a_cover_is_not_carried_with_it(hidden):
    wait(hidden)
    scene = ExpertScene(hidden.env)
    assert not any(map(scene.contents, scene.movable))


@pytest.fixture(scope="module")
def lifted(open_standin) -> list[tuple[bool, Phase]]:
    """Whether the bowl is to be put back, and the phase, until a late expert's lift counts."""
    sim = open_standin(SHORT_SUITE, 1)
    expert, told = expert_of(sim, memory_age_s=1.5), []
    while not sim.sequence.reached().counted:
        sim.advance(expert.query(np.empty(8))[:1])
        told.append((sim.sequence.reached().next_is_reset, sim.truth().narration.phase))
    return told


def test_a_bowl_on_its_way_up_is_carried_and_only_then_placed(lifted):
    assert Phase.PLACE in {phase for is_reset, phase in lifted if is_reset}
    up = {phase for is_reset, phase in lifted if not is_reset}
    assert {Phase.CARRY} <= up <= set(Phase) - {Phase.PLACE}


def test_an_expert_with_late_memory_keeps_the_bowl_up_until_it_knows_that_it_was_lifted(lifted):
    assert sum(is_reset for is_reset, _ in lifted) >= 30 + TRUE_STEPS


def test_what_defines_our_tasks_is_in_the_hash(monkeypatch):
    hashes = {definition(MEMORY_SUITE), definition(SHORT_SUITE), definition("libero_goal")}
    assert len(hashes) == 3
    assert None in hashes
    monkeypatch.setattr(tasks, "STILL_STEPS", 61)
    assert not hashes & {definition(MEMORY_SUITE), definition(SHORT_SUITE)}
    assert "tasks" in open_suite(SHORT_SUITE, assets="standins").describe("benchmark")


@pytest.mark.slow
def test_an_expert_with_late_memory_solves_a_sequence(open_standin):
    sim = open_standin(SHORT_SUITE, 1)
    assert attempt(sim, Expert(sim, memory_age_s=1.5), 1000).success


@pytest.mark.parametrize(("task_id", "moved"), [(8, "basket_{}"), (9, "basket_{other}")])
def test_the_nearest_basket_is_named_first_and_the_chosen_one_decides_what_goes_to_the_center(
    open_standin, task_id, moved
):
    sim = open_standin(MEMORY_SUITE, task_id)
    nearest = []
    for init_id in range(8):
        sim.reset(init_id=init_id, seed=7, settle_steps=10)
        data = sim.env.sim.data
        names = ("cream_cheese_1_main", "basket_1_main", "basket_2_main")
        here, *baskets = map(data.get_body_xpos, names)
        nearest.append(int(np.argmin([np.linalg.norm(basket - here) for basket in baskets])) + 1)
        assert sim.sequence.reached().next == ("in", "cream_cheese_1", f"basket_{nearest[-1]}_contain_region")
    assert set(nearest) == {1, 2}
    other = 3 - nearest[-1]
    sim.advance(np.tile(SETTLE_ACTION, (FALSE_STEPS, 1)))
    above = data.get_body_xpos(f"basket_{other}_main") + np.array([0, 0, 0.06])
    put_thing(sim, "cream_cheese_1", above, steps=40)
    basket = moved.format(other, other=3 - other)
    assert sim.sequence.reached().next == ("on", basket, "kitchen_table_center_region")
    side = {1: "left", 2: "right"}[other]
    assert remember(sim.truth().memory).startswith(f"put the cream cheese in the {side} basket; ")


@pytest.mark.slow
@pytest.mark.parametrize("task_id", range(1, 10))
def test_the_expert_solves_every_sequence(standins, task_id):
    with LiberoSim(get_task(MEMORY_SUITE, task_id), assets=standins, camera_size=64) as sim:
        assert attempt(sim, Expert(sim), 1000).success


@pytest.fixture
def marked(open_standin: Open) -> LiberoSim:
    return open_standin(SHORT_SUITE, 0)


@pytest.fixture
def hidden(open_standin: Open) -> LiberoSim:
    return open_standin(SHORT_SUITE, 3)


def seen(sim: LiberoSim, *, erased: bool = False) -> np.ndarray:
    """A picture of this moment, also as it would be had there been no marker."""
    model = sim.env.sim.model._model
    alpha = model.site_rgba[model.site(MARKER).id, 3:]
    before = alpha.copy()
    if erased:
        alpha[:] = 0.0
    sim._cameras.capture(sim._data)
    image = sim.render("image")
    alpha[:] = before
    return image


def test_the_marker_is_seen_for_a_second_and_comes_back_with_a_reset(marked):
    marked.reset(init_id=1, seed=7, settle_steps=10)
    first = seen(marked)
    for steps in (CUE_STEPS - 1, 1):
        assert marked.shows_cue
        assert (np.ptp(marked.render("image").astype(int), axis=2) > 130).any(), "no red"
        assert (seen(marked) != seen(marked, erased=True)).any()
        marked.advance(np.tile(SETTLE_ACTION, (steps, 1)))
    assert not marked.shows_cue
    assert (np.ptp(marked.render("image").astype(int), axis=2) <= 130).all(), "red in what a policy gets"
    np.testing.assert_array_equal(seen(marked), seen(marked, erased=True))
    marked.reset(init_id=1, seed=7, settle_steps=10)
    np.testing.assert_array_equal(seen(marked), first)


@pytest.mark.parametrize("first", [0, 1000])
def test_states_in_turn_mark_another_object_and_truth_names_it(marked, first):
    named = []
    for init_id in range(first, first + 4):
        marked.reset(init_id=init_id, seed=7, settle_steps=0)
        truth = marked.truth()
        assert truth.narration.phase is Phase.APPROACH
        assert {fact.subject for fact in truth.memory.facts} == {truth.narration.object}
        named.append(truth.narration.object)
    assert named == ["alphabet soup", "cream cheese", "tomato sauce", "butter"]


def test_the_marker_is_in_place_before_anything_settles_and_changes_no_physics(marked):
    """Neither where it lies nor when it goes: the goal alone depends on which object is marked."""
    states, model = tasks.init_states(marked.task), marked.env.sim.model._model
    assert states.shape == (50, 1 + model.nq + model.nv)
    ends = []
    for shift in (0.0, 0.1):
        marked.reset(init_id=2, seed=7, settle_steps=0)
        placed = marked._data.site(MARKER).xpos.copy()
        mujoco.mj_kinematics(model, marked._data)
        np.testing.assert_array_equal(marked._data.site(MARKER).xpos, placed)
        model.site_pos[model.site(MARKER).id] += shift
        marked.advance(np.tile(SETTLE_ACTION, (CUE_STEPS + 5, 1)))
        ends.append(marked.flat_state())
    np.testing.assert_array_equal(*ends)


def test_holding_still_solves_nothing_and_another_object_does_not_count(marked):
    basket = marked.env.sim.data.get_body_xpos("basket_1_main")
    assert not put_thing(marked, "butter_1", basket + np.array([0, 0, 0.06]), steps=40)


def wait(sim: LiberoSim) -> None:
    """Hold still until what has to be remembered is out of sight."""
    while sim.shows_cue:
        sim.advance(SETTLE_ACTION[None])


def move(sim: LiberoSim, cover: str, to: np.ndarray) -> None:
    sim.env.sim.data.set_joint_qpos(f"{cover}_joint0", np.array([*to, 1, 0, 0, 0]))


def test_under_the_covers_all_arrangements_look_the_same(hidden):
    before, after = [], []
    for turn in range(3):
        hidden.reset(init_id=0, seed=7, settle_steps=10)
        hidden._cue = Covers(hidden.env, turn)  # where things are in another state's turn
        hidden._cameras.capture(hidden._data)
        before.append(hidden.render("image"))
        wait(hidden)
        after.append([hidden.render(camera) for camera in ("image", "wrist_image")])
    for one, other in itertools.pairwise(range(3)):
        assert (before[one] != before[other]).any()
        np.testing.assert_array_equal(after[one], after[other])


@pytest.mark.parametrize("first", [0, 1000])
def test_states_in_turn_hide_the_thing_elsewhere_and_memory_tells_where(hidden, first):
    places = []
    for init_id in range(first, first + 3):
        hidden.reset(init_id=init_id, seed=7, settle_steps=10)
        assert Fact(subject="cream cheese", state="on the table") in hidden.truth().memory.facts
        wait(hidden)
        truth = hidden.truth()
        places += [fact.state for fact in truth.memory.facts if fact.subject == "cream cheese"]
        assert f"under the {truth.narration.object}" == places[-1]
        assert len(truth.memory.facts) == 2
        assert parse_memory(remember(truth.memory)) == truth.memory
    turn = ["under the left cover", "under the middle cover", "under the right cover"]
    assert places == turn[first % 3 :] + turn[: first % 3]


@pytest.mark.parametrize("searched", [False, True])
def test_putting_the_right_cover_on_the_plate_solves_it_unless_another_was_moved(hidden, searched):
    wait(hidden)
    if searched:
        there = hidden.env.sim.data.get_body_xpos("cover_2_main").copy()
        move(hidden, "cover_2", there + np.array([0, 0, 0.02]))
        assert hidden.advance(np.tile(SETTLE_ACTION, (2, 1))).failed
        move(hidden, "cover_2", there)
    plate = hidden.env.sim.data.get_body_xpos("plate_1_main")
    assert put_thing(hidden, "cover_1", plate + np.array([0, 0, 0.05]), steps=40) is not searched


@pytest.mark.parametrize(
    ("task_id", "states", "shown"),
    [
        (0, [1], CUE_STEPS),
        (3, [2], Covers.steps_left),
        pytest.param(0, range(4), CUE_STEPS, marks=pytest.mark.slow),
        pytest.param(3, range(3), Covers.steps_left, marks=pytest.mark.slow),
    ],
)
def test_the_expert_waits_until_it_has_to_remember_and_solves_every_arrangement(
    open_standin, task_id, states, shown
):
    opened = open_standin(SHORT_SUITE, task_id)
    expert = Expert(opened)
    for init_id in states:
        result = attempt(opened, expert, init_id)
        assert result.success
        assert shown < result.steps < load(SuiteConfig, SHORT_SUITE).max_steps


@pytest.mark.slow
@pytest.mark.parametrize(
    "task",
    [*list_tasks(MEMORY_SUITE), *list_tasks(SHORT_SUITE)],
    ids=lambda task: f"{task.suite}.{task.task_id}",
)
def test_holding_still_and_random_actions_solve_nothing(standins, task):
    with LiberoSim(task, assets=standins, camera_size=32) as world:
        for policy in (Noop(tasks.LIBERO_INTERFACE), Random(tasks.LIBERO_INTERFACE)):
            assert not attempt(world, policy).success
