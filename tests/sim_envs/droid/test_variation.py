"""Scenes vary mildly between episodes, the same way every time, and never in what the task is about."""

import functools
import math

import mujoco
import numpy as np
import pytest

from sim_envs.droid.shapes import footprint
from sim_envs.droid.task_file import draw, load_task, task_names
from sim_envs.droid.variation import (
    BRIGHTNESS,
    CAMERA_SHIFT,
    CAMERA_TURN,
    WARMTH,
    distractors,
    place_distractors,
)

STATES = range(20)


def all_bytes(sim):
    sim.advance(np.tile([0.3] * 7 + [1.0], (10, 1)))
    data = sim.station.data
    images = [image.tobytes() for image in sim.observe().images.values()]
    return [data.qpos.tobytes(), data.qvel.tobytes(), *images]


def shown(sim):
    """The names of the distractors that are present."""
    model = sim.station.model
    names = distractors(sim.task) if sim.station._varied else ()
    return [name for name in names if not model.body_gravcomp[model.body(name).id]]


@pytest.fixture(scope="module")
def begin(begin_droid):
    """Begins an episode with the strongest variation."""
    return functools.partial(begin_droid, variation=1.0)


def with_distractors(begin, count):
    return next(state for state in STATES if len(shown(begin(init_id=state, settle_steps=0))) == count)


def test_an_episode_leaves_nothing_behind(begin):
    none, two = (with_distractors(begin, count) for count in (0, 2))
    first = all_bytes(begin(init_id=two))
    assert all_bytes(begin(init_id=none)) != first
    assert all_bytes(begin(init_id=two)) == first


def test_without_variation_nothing_is_added_and_the_objects_stand_where_they_stand_with_it(begin_droid):
    plain, other = (begin_droid(variation=each, init_id=3, settle_steps=0) for each in (0.0, 1.0))
    names = [plain.station.model.body(number).name for number in range(plain.station.model.nbody)]
    assert not [name for name in names if name.startswith("distractor")]
    assert other.station.model.nbody == len(names) + len(distractors(other.task))
    for name in plain.task.objects:
        places = [sim.station.data.joint(name).qpos.tolist() for sim in (plain, other)]
        assert places[0] == places[1]


def test_absent_distractors_are_neither_seen_nor_touched(begin):
    state = with_distractors(begin, 0)
    sim = begin(init_id=state)
    model, before = sim.station.model, sim.station.data.qpos.copy()
    images = sim.observe().images
    for name in distractors(sim.task):  # as if they were on the table, on top of each other
        sim.station.data.joint(name).qpos[:3] = [0.5, -0.05, 0]
    mujoco.mj_forward(model, sim.station.data)
    first = min(model.body(name).id for name in distractors(sim.task))
    assert not (model.geom_bodyid[sim.station.data.contact.geom] >= first).any()
    assert all((image == images[name]).all() for name, image in sim.observe().images.items())
    begin(init_id=state)
    np.testing.assert_array_equal(sim.station.data.qpos, before)


@pytest.mark.parametrize("name", task_names())
def test_distractors_are_of_other_kinds_and_out_of_the_way(name):
    task, counts = load_task(name), set()
    kinds = {obj.shape.kind for obj in task.objects.values()}
    for init_id in STATES:
        objects = draw(task, init_id=init_id, seed=0)
        places = place_distractors(task, objects, 2, np.random.default_rng(init_id))
        counts.add(len(places))
        for distractor, place in places.items():
            shape = distractors(task)[distractor].shape
            assert shape.kind not in kinds
            for other, at in objects.items():
                room = math.dist((place.x, place.y), (at.x, at.y)) - task.objects[other].footprint
                assert room > footprint(shape) + 0.05
    assert counts == ({2} if task.distractors else {0})


def test_variation_is_mild_and_grows_with_its_strength(begin_droid):
    def scene(strength, init_id):
        sim = begin_droid(variation=strength, init_id=init_id, settle_steps=0)
        model, camera = sim.station.model, sim.station.model.camera("exterior").id
        light = np.append(model.light_diffuse.max(axis=1), max(model.vis.headlight.diffuse))
        return model.cam_pos[camera].copy(), model.cam_quat[camera].copy(), light, len(shown(sim))

    plain = scene(0.0, 0)
    for state in STATES:
        half, full = (scene(strength, state) for strength in (0.5, 1.0))
        assert 0 < np.linalg.norm(full[0] - plain[0]) <= CAMERA_SHIFT
        assert 2 * math.acos(min(1.0, abs(full[1] @ plain[1]))) <= CAMERA_TURN
        assert np.abs(full[2] / plain[2] - 1).max() <= BRIGHTNESS + WARMTH[0] + 0.01
        np.testing.assert_allclose(2 * (half[0] - plain[0]), full[0] - plain[0], atol=1e-12)
        assert half[3] <= full[3]
    assert not any(scene(1 / 3, state)[3] for state in STATES)
