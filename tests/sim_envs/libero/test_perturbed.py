"""Perturbed episodes of LIBERO: the arm stays where it starts, the expert solves them, controls are equal."""

import numpy as np
import pytest

from contracts.errors import UsageError
from contracts.perturbation import parse_perturbations
from sim_envs.libero.experts.expert import Expert
from sim_envs.libero.sim import SETTLE_ACTION, LiberoSim
from sim_envs.suite import open_suite
from sim_envs.world import perturbed_world
from tests.sim_envs.conftest import attempt

HOLD = np.tile(SETTLE_ACTION, (10, 1))


@pytest.fixture(scope="module")
def sim(open_standin) -> LiberoSim:
    return open_standin("libero_object", 3)


@pytest.fixture(autouse=True)
def _leave_no_perturbation(sim):
    yield
    perturbed_world(sim, ())


def begun(sim, text):
    perturbed_world(sim, parse_perturbations(text))
    sim.reset(init_id=0, seed=7, settle_steps=10)
    return sim


@pytest.mark.parametrize(
    ("suite", "text", "can"),
    [
        ("libero_spatial", "swap", "give another suite"),  # the black bowl next to the ramekin
        ("libero_10", "swap", "--task-ids 0-1 3 5 7-9"),  # a frying pan; the left plate; right of the plate
        ("libero_memory", "swap", "--task-ids 0-6 8-9"),  # one plate to the left
        ("libero_memory_short", "layout", "--task-ids 1-2"),  # a marker and covers stay where they are
    ],
)
def test_tasks_whose_objects_are_told_apart_by_place_are_refused_before_the_run(suite, text, can):
    opened = open_suite(suite, perturb=text)
    with pytest.raises(UsageError, match=can):
        opened.check(opened.tasks())


@pytest.mark.parametrize("text", ["wording:3", "light:5@4s", "noise:5@4s"])
def test_the_first_picture_is_the_controls_if_nothing_in_it_has_changed(sim, text):
    control = begun(sim, "none").observe().images
    for camera, picture in begun(sim, text).observe().images.items():
        np.testing.assert_array_equal(picture, control[camera])


@pytest.mark.slow
def test_a_task_that_begins_as_it_ends_has_another_layout(open_standin):
    sim = begun(open_standin("libero_memory", 0), "layout:3")  # lift the bowl and put it back
    assert sim.perturber.redraws == 0


@pytest.mark.slow
def test_the_arm_stays_where_it_starts(sim):
    arm = sim.env.robots[0]._ref_joint_pos_indexes
    control = begun(sim, "none").env.sim.data.qpos[arm].copy()
    start = begun(sim, "robot:4").env.sim.data.qpos[arm].copy()
    assert np.linalg.norm(start - control) == pytest.approx(0.4, abs=1e-6)
    sim.advance(HOLD)
    np.testing.assert_allclose(sim.env.sim.data.qpos[arm], start, atol=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["light:5", "camera:5", "background:5", "appearance:5", "noise:5"])
def test_looks_change_pictures_and_no_physics(sim, text):
    picture, state = begun(sim, "none").observe().images["image"], sim.flat_state()
    perturbed = begun(sim, text)
    np.testing.assert_array_equal(perturbed.flat_state(), state)
    assert (perturbed.observe().images["image"] != picture).any()
    np.testing.assert_array_equal(begun(sim, "none").observe().images["image"], picture)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["robot:3", "layout:3", "swap:3", "layout:3@1s"])
def test_the_expert_solves_it(sim, text):
    perturbed_world(sim, parse_perturbations(text))
    assert attempt(sim, Expert(sim)).success


@pytest.mark.slow
@pytest.mark.parametrize("name", ["camera", "light", "background", "layout"])
def test_a_change_at_a_time_is_in_the_picture_of_that_time(sim, name):
    begun(sim, f"{name}:5@0.1s").advance(HOLD[:2])
    first = sim.observe().images["image"].astype(float)
    sim.advance(HOLD[:1])
    assert np.abs(first - sim.observe().images["image"]).mean() < 0.5
