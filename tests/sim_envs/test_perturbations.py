"""Perturbed episodes: what changes, how far, and that all else is the control's."""

import contextlib

import numpy as np
import pytest

from contracts.errors import UsageError
from contracts.perturbation import DIMENSIONS, SEVERITIES, parse_perturbations
from eval.records.protocol import describe_suite, suite_hash
from sim_envs.perturbations import dimension as dimensions
from sim_envs.perturbations import noise, words
from sim_envs.perturbations.dimension import Dimension, find_dimension
from sim_envs.perturbations.places import Layout, Swap
from sim_envs.suite import open_suite
from sim_envs.world import perturbed_world

LOOKS = ("camera", "light", "background", "appearance")
PLACES = ("robot", "layout", "swap")


@pytest.fixture(scope="module")
def world():
    suite = open_suite("droid_tabletop")
    with contextlib.closing(suite.open(suite.tasks()[0])) as opened:
        yield opened


def begun(world, text, *, init_id=0, settle_steps=2):
    perturbed_world(world, parse_perturbations(text))
    world.reset(init_id=init_id, seed=7, settle_steps=settle_steps)
    return world


def physics(world):
    data = world.station.data
    return np.concatenate([data.qpos, data.qvel])


def looks(world):
    model, head = world.station.model, world.station.model.vis.headlight
    names = ("cam_pos", "cam_quat", "light_dir", "light_diffuse", "geom_rgba")
    return {name: getattr(model, name).copy() for name in names} | {"headlight": np.array(head.ambient)}


def played(world):
    action = np.append(np.full(7, 0.1), 0.0)
    world.advance(np.tile(action, (3, 1)))
    return physics(world)


@pytest.mark.parametrize("name", LOOKS)
def test_looks_change_the_scene_and_no_physics(world, name):
    control, plain = played(begun(world, "none")), looks(begun(world, "none"))
    perturbed = played(begun(world, f"{name}:3"))
    changed = looks(world)
    np.testing.assert_array_equal(perturbed, control)
    assert any((changed[part] != plain[part]).any() for part in plain)


@pytest.mark.parametrize("name", [*LOOKS, *PLACES])
def test_a_control_after_a_perturbed_episode_is_the_control(world, name):
    control, plain = played(begun(world, "none")), looks(world)
    begun(world, f"{name}:5")
    np.testing.assert_array_equal(played(begun(world, "none")), control)
    for part, values in looks(world).items():
        np.testing.assert_array_equal(values, plain[part])


@pytest.mark.parametrize("name", PLACES)
def test_an_episode_is_a_function_of_its_key(world, name):
    first, again = (physics(begun(world, f"{name}:3")).copy() for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert (physics(begun(world, f"{name}:3", init_id=1)) != first).any()


def test_the_arm_starts_as_far_away_as_the_severity_says_and_stays_there(world):
    control = begun(world, "none").station.joints.copy()
    for severity in SEVERITIES:
        world = begun(world, f"robot:{severity}")
        assert np.linalg.norm(world.station.joints - control) == pytest.approx(0.1 * severity, abs=0.02)


def test_objects_are_shifted_by_what_the_severity_says_and_stay_apart_and_upright(world):
    control = {name: begun(world, "none").station.pose(name) for name in world.task.objects}
    begun(world, "layout:4")
    moved = {
        name: np.linalg.norm(world.station.pose(name).position - pose.position)
        for name, pose in control.items()
    }
    assert max(moved.values()) == pytest.approx(0.04, abs=1e-6)
    assert all(distance == pytest.approx(0.04, abs=1e-6) or distance < 1e-6 for distance in moved.values())
    world.advance(np.tile(np.zeros(8), (5, 1)))
    assert world.station.data.contact.dist.min(initial=0.0) > -0.003


def test_a_swap_exchanges_places(world):
    names = list(world.task.objects)
    before = {name: begun(world, "none").station.pose(name).middle[:2] for name in names}
    begun(world, "swap:1")
    after = {name: world.station.pose(name).middle[:2] for name in names}
    moved = [name for name in names if np.linalg.norm(after[name] - before[name]) > 0.01]
    assert len(moved) == 2
    np.testing.assert_allclose(after[moved[0]], before[moved[1]], atol=0.01)


def test_the_camera_keeps_the_objects_in_view(world):
    scene = begun(world, "none").station._scene()
    seen = scene.seen()
    for severity in SEVERITIES:
        assert (begun(world, f"camera:{severity}").station._scene().seen() >= 0.5 * seen).all()


def test_impossible_draws_are_replaced_by_the_next_and_counted(world, monkeypatch):
    class Third(Dimension):
        medium = "scene"
        meanings = ("", "", "", "", "")
        calls = 0

        def change(self, scene, severity, draws):
            self.calls += 1
            scene.model.cam_pos[0] += 1.0
            return self.calls == 3

    third = Third()
    monkeypatch.setattr("sim_envs.perturbations.perturber.find_dimension", lambda _: third)
    plain = begun(world, "none").station.model.cam_pos[0].copy()
    begun(world, "camera:1")
    assert world.perturber.redraws == 2
    np.testing.assert_array_equal(world.station.model.cam_pos[0], plain + 1.0)
    monkeypatch.undo()
    begun(world, "none")


def test_a_lower_severity_is_taken_where_none_is_possible_and_severities_are_the_most(world, monkeypatch):
    class AtMostTwo(Dimension):
        medium, falls_back = "scene", True
        meanings = ("", "", "", "", "")

        def change(self, scene, severity, draws):
            return severity <= 2

    monkeypatch.setattr("sim_envs.perturbations.perturber.find_dimension", lambda _: AtMostTwo())
    begun(world, "swap:4")
    assert world.perturber.redraws == 2 * 20  # of 4 and 3
    monkeypatch.undo()
    begun(world, "none")


@pytest.mark.parametrize("dimension", [Layout(), Swap()])
def test_no_draw_solves_the_task_unless_the_control_starts_so(world, dimension):
    scene = begun(world, "none").station._scene()
    state = scene.places()
    for before, after in ((False, True), (True, True), (False, False)):
        scene.solved = lambda b=before, a=after: a if (scene.data.qpos != state[0]).any() else b
        assert dimension.change(scene, 1, np.random.default_rng(0)) is (before or not after)
        scene.place(state)


def test_objects_wider_than_most_change_places_if_there_are_no_others():
    suite = open_suite("droid_tabletop")
    with contextlib.closing(suite.open(suite.tasks()[2])) as world:  # a banana and a bin
        before = {name: begun(world, "none").station.pose(name).middle[1] for name in world.task.objects}
        begun(world, "swap:5")
        after = {name: world.station.pose(name).middle[1] for name in world.task.objects}
    assert after == pytest.approx({"banana": before["bin"], "bin": before["banana"]}, abs=0.02)


def test_a_change_at_a_time_comes_then(world):
    plain = looks(begun(world, "none"))
    begun(world, "background:3@0.2s")  # 3 control steps of 1/15 s
    np.testing.assert_array_equal(looks(world)["geom_rgba"], plain["geom_rgba"])
    world.advance(np.zeros((2, 8)))
    np.testing.assert_array_equal(looks(world)["geom_rgba"], plain["geom_rgba"])
    world.advance(np.zeros((1, 8)))
    assert (looks(world)["geom_rgba"] != plain["geom_rgba"]).any()


@pytest.mark.parametrize("name", LOOKS)
@pytest.mark.parametrize("after", [0, 2])
def test_the_first_picture_after_a_change_shows_all_of_it(world, name, after):
    still = np.append(np.zeros(7), 0.0)[None]
    begun(world, f"{name}:5" if after == 0 else f"{name}:5@{after / 15:.3f}s", settle_steps=20)
    for _ in range(after):
        world.advance(still)
    first = next(iter(world.observe().images.values()))
    world.advance(still)
    second = next(iter(world.observe().images.values()))
    assert np.abs(first.astype(float) - second).mean() < 0.1


@pytest.mark.parametrize("setting", [2, 12, 22, 32, 42])
def test_noise_takes_pictures_of_any_size(setting):
    picture = np.random.default_rng(0).integers(0, 256, (90, 300, 3), np.uint8)
    drawn = noise.draw(setting, (90, 300), np.random.RandomState(1))
    noisy = noise.apply(setting, picture, drawn)
    assert noisy.shape == picture.shape
    assert (noisy != picture).any()


def test_every_severity_has_a_meaning_of_its_own():
    for name in DIMENSIONS:
        assert len(set(find_dimension(name).meanings)) == len(SEVERITIES)


def test_the_hash_has_the_perturbations_and_that_of_a_control_does_not_change():
    plain, perturbed = (describe_suite(open_suite("droid_tabletop", perturb=p)) for p in ("none", "light:2"))
    assert "perturb" not in plain
    assert "perturb" not in plain["suite"]
    assert list(perturbed["perturb"]) == ["light:2"]
    assert suite_hash(plain) != suite_hash(perturbed)


@pytest.mark.parametrize(
    ("text", "has_texts"),
    [("none", False), ("light:2", False), ("wording:1", True), ("light:2+wording:3", True)],
)
def test_the_hash_has_the_texts_around_instructions_if_these_are_perturbed(monkeypatch, text, has_texts):
    suite = open_suite("droid_tabletop", perturb=text)
    before = suite_hash(describe_suite(suite))
    monkeypatch.setattr(words, "_frames", lambda: {1: ["hey {}"]})
    assert (suite_hash(describe_suite(suite)) != before) == has_texts


@pytest.mark.parametrize(
    ("suite", "text", "complaint"),
    [
        ("gym_reacher", "camera:3", "gym_reacher cannot change its camera; it can change its noise, wording"),
        ("libero_plus_object", "light:1", "libero_plus_object cannot change its light"),
        ("droid_tabletop", "light:3@40s", "ends after 30 s (450 control steps); give a time before"),
    ],
)
def test_suites_refuse_what_they_cannot(suite, text, complaint):
    with pytest.raises(UsageError) as refused:
        open_suite(suite, perturb=text)
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("text", "task_ids", "complaint"),
    [
        ("layout:1", range(16), "task 9, 15; give --task-ids 0-8 10-14"),
        ("swap:3", range(16), "task 8-10, 13-15; give --task-ids 0-7 11-12"),
        ("swap:3", (2, 9), "task 9; give --task-ids 2"),
        ("swap:3", (9,), "task 9; give --task-ids 0-7 11-12"),
    ],
)
def test_tasks_without_objects_to_change_are_refused_before_the_run(text, task_ids, complaint):
    suite = open_suite("droid_tabletop", perturb=text)
    with pytest.raises(UsageError) as refused:
        suite.check([suite.tasks()[task_id] for task_id in task_ids])
    assert complaint in str(refused.value)


def test_a_dimension_of_ones_own_has_an_entry_point(monkeypatch):
    class Gravity(Dimension):
        medium = "scene"
        meanings = tuple(f"gravity {s} m/s² more" for s in SEVERITIES)

    class Point:
        name = "gravity"

        def load(self):
            return Gravity

    monkeypatch.setattr(dimensions, "entry_points", lambda **_: (Point(),))
    find_dimension.cache_clear()
    assert isinstance(find_dimension("gravity"), Gravity)
    find_dimension.cache_clear()
