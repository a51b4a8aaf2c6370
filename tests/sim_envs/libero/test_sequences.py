"""Tasks that are sequences: what counts, what overshoots, and the suite `libero_memory`."""

import numpy as np
import pytest

from sim_envs.libero.experts.expert import Expert
from sim_envs.libero.sequences import FALSE_STEPS, OVERSHOT_STEPS, STILL_STEPS, TRUE_STEPS, GoalSequence
from sim_envs.libero.sim import SETTLE_ACTION, LiberoSim
from sim_envs.libero.tasks import MEMORY_SUITE, get_task
from sim_envs.truth.wording import remember
from tests.sim_envs.playing import attempt

BASKETS = ("basket_1", "basket_2")

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
    assert not sequence.counted
    assert not sequence.next_is_reset
    play(sequence, now, FALSE_STEPS, a=UP)
    assert sequence.next_is_reset
    play(sequence, now, TRUE_STEPS - 1, a=DOWN)
    assert not sequence.counted
    play(sequence, now, 1)
    assert (len(sequence.counted), sequence.progress, sequence.next) == (1, 0.5, ("a",))


def test_subgoals_count_in_their_order_and_one_that_holds_from_before_has_to_be_undone():
    sequence, now = begin(("a", "b"))
    play(sequence, now, FALSE_STEPS, a=UP, b=UP)
    assert (sequence.next_is_reset, sequence.next_is_undone) == (True, False)  # it had never held
    play(sequence, now, TRUE_STEPS, b=DOWN)
    assert not sequence.counted
    play(sequence, now, 3 * TRUE_STEPS, a=DOWN)
    assert len(sequence.counted) == 1
    play(sequence, now, FALSE_STEPS, b=UP)
    assert sequence.next_is_undone


def test_one_of_the_alternatives_is_enough():
    sequence, now = begin(("a", "b"), ("b", "a"))
    play(sequence, now, FALSE_STEPS, a=UP, b=UP)
    play(sequence, now, TRUE_STEPS, b=DOWN)
    assert (len(sequence.counted), sequence.next) == (1, ("a",))
    play(sequence, now, FALSE_STEPS)
    assert play(sequence, now, TRUE_STEPS + STILL_STEPS, a=DOWN)


def test_it_is_solved_once_it_has_been_still_and_overshoot_fails_for_good():
    sequence, now = begin(("a",))
    play(sequence, now, FALSE_STEPS, a=UP)
    assert not play(sequence, now, TRUE_STEPS + STILL_STEPS - 1, a=DOWN)
    assert (sequence.next, sequence.progress) == (None, 1.0)
    play(sequence, now, OVERSHOT_STEPS - 1, a=UP)  # a shaky object
    assert not play(sequence, now, TRUE_STEPS + STILL_STEPS - 1, a=DOWN)
    assert play(sequence, now, 1)
    assert not sequence.overshot
    play(sequence, now, OVERSHOT_STEPS, a=UP)
    assert sequence.overshot
    assert not play(sequence, now, 10 * STILL_STEPS, a=DOWN)


@pytest.mark.parametrize("init_id", [0, 49, 1000])
def test_the_bowl_stands_on_its_plate_and_holding_still_counts_nothing(open_standin, init_id):
    lift = open_standin(MEMORY_SUITE, 0)
    lift.reset(init_id=init_id, seed=7, settle_steps=10)
    assert lift.env._eval_predicate(["on", "akita_black_bowl_1", "plate_1"])
    result = lift.advance(np.tile(SETTLE_ACTION, (100, 1)))
    assert (result.steps, result.success, lift.progress()) == (100, False, 0.0)
    assert lift.truth().narration.object == "black bowl"


def test_the_expert_lifts_stops_and_an_episode_leaves_nothing_behind(open_standin):
    lift, ends = open_standin(MEMORY_SUITE, 0), []
    for _ in range(2):
        done = attempt(lift, Expert(lift), 1000)
        assert (done.success, lift.progress()) == (True, 1.0)
        ends.append((done.steps, lift.flat_state().tobytes()))
    assert ends[0] == ends[1]


@pytest.mark.parametrize(("task_id", "moved"), [(8, "basket_{}"), (9, "basket_{other}")])
def test_the_nearest_basket_is_named_first_and_the_chosen_one_decides_what_goes_to_the_center(
    open_standin, task_id, moved
):
    sim = open_standin(MEMORY_SUITE, task_id)
    nearest = []
    for init_id in range(8):
        sim.reset(init_id=init_id, seed=7, settle_steps=10)
        data = sim.env.sim.data
        here, *baskets = (data.get_body_xpos(f"{name}_main") for name in ("cream_cheese_1", *BASKETS))
        nearest.append(int(np.argmin([np.linalg.norm(basket - here) for basket in baskets])) + 1)
        assert sim.sequence.next == ("in", "cream_cheese_1", f"basket_{nearest[-1]}_contain_region")
    assert set(nearest) == {1, 2}
    other = 3 - nearest[-1]
    sim.advance(np.tile(SETTLE_ACTION, (FALSE_STEPS, 1)))
    above = data.get_body_xpos(f"basket_{other}_main") + np.array([0, 0, 0.06])
    data.set_joint_qpos("cream_cheese_1_joint0", np.array([*above, 1, 0, 0, 0]))
    sim.advance(np.tile(SETTLE_ACTION, (40, 1)))
    assert sim.sequence.next == ("on", moved.format(other, other=3 - other), "kitchen_table_center_region")
    side = {1: "left", 2: "right"}[other]
    assert remember(sim.truth().memory).startswith(f"put the cream cheese in the {side} basket; ")


@pytest.mark.slow
@pytest.mark.parametrize("task_id", range(1, 10))
def test_the_expert_solves_every_sequence(task_id):
    with LiberoSim(get_task(MEMORY_SUITE, task_id), assets="standins", camera_size=64) as sim:
        assert attempt(sim, Expert(sim), 1000).success
