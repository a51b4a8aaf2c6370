"""Scenes vary mildly between episodes, the same way every time, and never in what the task is about."""

import math

import mujoco
import numpy as np
import pytest

from eval.records.protocol import describe_suite, suite_hash
from sim_envs.droid.placement import draw
from sim_envs.droid.shapes import footprint
from sim_envs.droid.task_file import load_task, task_names
from sim_envs.droid.variation import BRIGHTNESS, CAMERA_SHIFT, CAMERA_TURN, distractors, draw_variation
from sim_envs.suite import open_suite

STATES = range(20)


def varied(name="cube_in_bowl", *, init_id=0, seed=7, strength=1.0):
    return draw_variation(load_task(name), init_id=init_id, seed=seed, strength=strength, lights=2)


def begun(sim, init_id, settle_steps=5):
    sim.reset(init_id=init_id, seed=7, settle_steps=settle_steps)
    return sim


def all_bytes(sim):
    sim.advance(np.tile([0.3] * 7 + [1.0], (10, 1)))
    data = sim.station.data
    images = [image.tobytes() for image in sim.observe().images.values()]
    return [data.qpos.tobytes(), data.qvel.tobytes(), *images]


def with_distractors(sim, count):
    return next(state for state in STATES if len(varied(sim.task.name, init_id=state).places) == count)


def test_an_episode_leaves_nothing_behind(open_droid):
    sim = open_droid(variation=1.0)
    none, two = (with_distractors(sim, count) for count in (0, 2))
    first = all_bytes(begun(sim, two))
    assert all_bytes(begun(sim, none)) != first
    assert all_bytes(begun(sim, two)) == first


def test_without_variation_nothing_is_added_and_the_objects_stand_where_they_stand_with_it(open_droid):
    plain, other = begun(open_droid(), 3, 0), begun(open_droid(variation=1.0), 3, 0)
    names = [plain.station.model.body(number).name for number in range(plain.station.model.nbody)]
    assert not [name for name in names if name.startswith("distractor")]
    assert other.station.model.nbody == len(names) + len(distractors(other.task))
    for name in plain.task.objects:
        places = [sim.station.data.joint(name).qpos.tolist() for sim in (plain, other)]
        assert places[0] == places[1]


def geoms_of_distractors(sim):
    model = sim.station.model
    first = min(model.body(name).id for name in distractors(sim.task))
    return np.flatnonzero(model.geom_bodyid >= first)


def test_absent_distractors_are_neither_seen_nor_touched(open_droid):
    sim = open_droid(variation=1.0)
    begun(sim, with_distractors(sim, 0))
    before = sim.station.data.qpos.copy()
    images = sim.observe().images
    for name in distractors(sim.task):  # as if they were on the table, on top of each other
        sim.station.data.joint(name).qpos[:3] = [0.5, -0.05, 0]
    mujoco.mj_forward(sim.station.model, sim.station.data)
    assert not set(sim.station.data.contact.geom.ravel()) & set(geoms_of_distractors(sim))
    assert all((image == images[name]).all() for name, image in sim.observe().images.items())
    begun(sim, with_distractors(sim, 0))
    np.testing.assert_array_equal(sim.station.data.qpos, before)


@pytest.mark.parametrize("name", task_names())
def test_distractors_are_of_other_kinds_and_out_of_the_way(name):
    task = load_task(name)
    kinds = {obj.shape.kind for obj in task.objects.values()}
    counts = set()
    for init_id in STATES:
        places = varied(name, init_id=init_id).places
        counts.add(len(places))
        for distractor, place in places.items():
            shape = distractors(task)[distractor].shape
            assert shape.kind not in kinds
            for other, at in draw(task, init_id=init_id, seed=0).items():
                room = math.dist((place.x, place.y), (at.x, at.y)) - task.objects[other].footprint
                assert room > footprint(shape) + 0.05
    assert counts == ({0, 1, 2} if task.distractors else {0})


def test_variation_is_mild_and_grows_with_its_strength():
    for state in STATES:
        half, full = (varied(init_id=state, strength=strength) for strength in (0.5, 1.0))
        assert np.linalg.norm(full.camera_shift) <= CAMERA_SHIFT
        assert np.linalg.norm(full.camera_turn) <= CAMERA_TURN
        assert np.abs(full.brightness - 1).max() <= BRIGHTNESS
        np.testing.assert_allclose(2 * half.camera_shift, full.camera_shift)
        np.testing.assert_allclose(2 * (half.brightness - 1), full.brightness - 1)
        assert len(half.places) <= len(full.places)
    assert not any(varied(init_id=state, strength=1 / 3).places for state in STATES)


def test_variation_is_part_of_the_protocol_of_suites_that_have_it_alone():
    hashes = {
        suite_hash(describe_suite(open_suite("droid_tabletop", variation=strength)))
        for strength in (0, 0.5, 1)
    }
    assert len(hashes) == 3
    assert suite_hash(describe_suite(open_suite("droid_tabletop"))) in hashes
    assert "variation" not in describe_suite(open_suite("gym_reacher"))["suite"]
