"""What only the first second shows: afterwards the marker of `cue` is gone, and `hidden` is covered."""

from collections.abc import Iterator

import mujoco
import numpy as np
import pytest

from configs.errors import UsageError
from configs.load import load
from configs.schema import SuiteConfig
from sim_envs.libero.assets import AssetSet
from sim_envs.libero.cue import CUE_STEPS, MARKER, Covers
from sim_envs.libero.experts.expert import Expert
from sim_envs.libero.sim import SETTLE_ACTION, LiberoSim
from sim_envs.libero.tasks import (
    LIBERO_INTERFACE,
    MEMORY_SUITE,
    SHORT_SUITE,
    LiberoTask,
    get_task,
    init_states,
    list_tasks,
)
from sim_envs.scripted.policy import Noop, Random
from sim_envs.suite import open_suite
from sim_envs.truth.ground_truth import Fact, Phase
from sim_envs.truth.wording import parse_memory, remember
from tests.sim_envs.playing import attempt


@pytest.fixture(scope="module")
def sim(standins: AssetSet) -> Iterator[LiberoSim]:
    with LiberoSim(get_task(SHORT_SUITE, 0), assets=standins, camera_size=64) as made:
        yield made


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


def test_the_marker_is_seen_for_a_second_and_comes_back_with_a_reset(sim: LiberoSim) -> None:
    sim.reset(init_id=1, seed=7, settle_steps=10)
    first = seen(sim)
    for steps in (CUE_STEPS - 1, 1):
        assert sim.shows_cue
        assert (np.ptp(sim.render("image").astype(int), axis=2) > 130).any(), "no red"
        assert (seen(sim) != seen(sim, erased=True)).any()
        sim.advance(np.tile(SETTLE_ACTION, (steps, 1)))
    assert not sim.shows_cue
    assert (np.ptp(sim.render("image").astype(int), axis=2) <= 130).all(), "red in what a policy gets"
    np.testing.assert_array_equal(seen(sim), seen(sim, erased=True))
    sim.reset(init_id=1, seed=7, settle_steps=10)
    np.testing.assert_array_equal(seen(sim), first)


def test_the_marker_is_in_place_even_if_nothing_settles(sim: LiberoSim) -> None:
    sim.reset(init_id=1, seed=7, settle_steps=0)
    placed = sim._data.site(MARKER).xpos.copy()
    mujoco.mj_kinematics(sim._model, sim._data)
    np.testing.assert_array_equal(sim._data.site(MARKER).xpos, placed)


def test_motion_that_would_show_what_is_marked_is_refused() -> None:
    opened = open_suite(SHORT_SUITE, assets="standins", motion="shuttle:3")
    with pytest.raises(UsageError, match=r"task 0, the object .* has to be remembered"):
        opened.check(opened.tasks()[:1])


@pytest.mark.parametrize("first", [0, 1000])
def test_states_in_turn_mark_another_object_and_truth_names_it(sim: LiberoSim, first: int) -> None:
    named = []
    for init_id in range(first, first + 4):
        sim.reset(init_id=init_id, seed=7, settle_steps=0)
        truth = sim.truth()
        assert truth.narration.phase is Phase.APPROACH
        assert {fact.subject for fact in truth.memory.facts} == {truth.narration.object}
        named.append(truth.narration.object)
    assert named == ["alphabet soup", "cream cheese", "tomato sauce", "butter"]


def test_the_marker_changes_no_physics(sim: LiberoSim) -> None:
    """Neither where it lies nor when it goes: the goal alone depends on which object is marked."""
    states = init_states(sim.task)
    assert states.shape == (50, 1 + sim.env.sim.model.nq + sim.env.sim.model.nv)
    sim.reset(init_id=2, seed=7, settle_steps=0)
    sim.advance(np.tile(SETTLE_ACTION, (CUE_STEPS + 5, 1)))
    after = sim.flat_state()
    sim.reset(init_id=2, seed=7, settle_steps=0)
    sim.env.sim.model._model.site_pos[sim.env.sim.model._model.site(MARKER).id] += 0.1
    sim.advance(np.tile(SETTLE_ACTION, (CUE_STEPS + 5, 1)))
    np.testing.assert_array_equal(sim.flat_state(), after)


def test_the_expert_waits_for_the_marker_to_go_and_solves_all_four(sim: LiberoSim) -> None:
    expert = Expert(sim)
    for init_id in range(4):
        result = attempt(sim, expert, init_id)
        assert result.success
        assert result.steps < load(SuiteConfig, SHORT_SUITE).max_steps


def test_holding_still_solves_nothing_and_another_object_does_not_count(sim: LiberoSim) -> None:
    sim.reset(init_id=0, seed=7, settle_steps=10)
    data = sim.env.sim.data
    above = data.get_body_xpos("basket_1_main") + np.array([0, 0, 0.06])
    data.set_joint_qpos("butter_1_joint0", np.array([*above, 1, 0, 0, 0]))
    assert not sim.advance(np.tile(SETTLE_ACTION, (40, 1))).success


@pytest.fixture(scope="module")
def hidden(standins: AssetSet) -> Iterator[LiberoSim]:
    with LiberoSim(get_task(SHORT_SUITE, 3), assets=standins, camera_size=64) as made:
        yield made


def wait(sim: LiberoSim) -> None:
    """Hold still until what has to be remembered is out of sight."""
    while sim.shows_cue:
        sim.advance(SETTLE_ACTION[None])


def arranged(sim: LiberoSim, turn: int) -> None:
    """The first stored state, with the things where they are in another one's turn."""
    sim.reset(init_id=0, seed=7, settle_steps=10)
    sim._cue = Covers(sim.env, turn)
    sim._cameras.capture(sim._data)


def move(sim: LiberoSim, cover: str, to: np.ndarray) -> None:
    sim.env.sim.data.set_joint_qpos(f"{cover}_joint0", np.array([*to, 1, 0, 0, 0]))


def test_under_the_covers_all_arrangements_look_the_same(hidden: LiberoSim) -> None:
    before, after = [], []
    for turn in range(3):
        arranged(hidden, turn)
        before.append(hidden.render("image"))
        wait(hidden)
        after.append([hidden.render(camera) for camera in ("image", "wrist_image")])
    assert (before[0] != before[1]).any()
    assert (before[1] != before[2]).any()
    np.testing.assert_array_equal(after[0], after[1])
    np.testing.assert_array_equal(after[1], after[2])


@pytest.mark.parametrize("first", [0, 1000])
def test_states_in_turn_hide_the_thing_elsewhere_and_memory_tells_where(
    hidden: LiberoSim, first: int
) -> None:
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
def test_putting_the_right_cover_on_the_plate_solves_it_unless_another_was_moved(
    hidden: LiberoSim, searched: bool
) -> None:
    hidden.reset(init_id=0, seed=7, settle_steps=10)
    wait(hidden)
    if searched:
        data = hidden.env.sim.data
        there = data.get_body_xpos("cover_2_main").copy()
        move(hidden, "cover_2", there + np.array([0, 0, 0.02]))
        assert hidden.advance(np.tile(SETTLE_ACTION, (2, 1))).failed
        move(hidden, "cover_2", there)
    plate = hidden.env.sim.data.get_body_xpos("plate_1_main")
    move(hidden, "cover_1", plate + np.array([0, 0, 0.05]))
    assert hidden.advance(np.tile(SETTLE_ACTION, (40, 1))).success is not searched


def test_the_expert_waits_for_the_covers_and_solves_all_three(hidden: LiberoSim) -> None:
    expert = Expert(hidden)
    for init_id in range(3):
        result = attempt(hidden, expert, init_id)
        assert result.success
        assert result.steps > Covers.steps_left


@pytest.mark.slow
@pytest.mark.parametrize(
    "task",
    [*list_tasks(MEMORY_SUITE), *list_tasks(SHORT_SUITE)],
    ids=lambda task: f"{task.suite}.{task.task_id}",
)
def test_holding_still_and_random_actions_solve_nothing(standins: AssetSet, task: LiberoTask) -> None:
    with LiberoSim(task, assets=standins, camera_size=32) as world:
        for policy in (Noop(LIBERO_INTERFACE), Random(LIBERO_INTERFACE)):
            assert not attempt(world, policy).success
