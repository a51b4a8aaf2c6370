"""The marker of `cue` shows what is wanted for one second, then is gone without a trace."""

from collections.abc import Iterator

import numpy as np
import pytest

from configs.load import load
from configs.schema import SuiteConfig
from sim_envs.libero.assets import AssetSet
from sim_envs.libero.cue import CUE_STEPS, MARKER
from sim_envs.libero.experts.expert import Expert
from sim_envs.libero.sim import SETTLE_ACTION, LiberoSim
from sim_envs.libero.tasks import SHORT_SUITE, get_task, init_states
from sim_envs.suite import open_suite
from sim_envs.testing import check_suite
from sim_envs.truth.ground_truth import Phase
from tests.sim_envs.libero.playing import attempt


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


@pytest.mark.slow
def test_the_suite_conforms(standins: AssetSet) -> None:
    check_suite(
        open_suite(SHORT_SUITE, camera_size=64, assets=str(standins.path)),
        hold_tolerances={"eef_position": 0.01},
    )
