"""Tasks are data: what is wrong with a file is one line; scenes vary mildly; the tasks' ground truth."""

import dataclasses
import functools
import itertools
import math
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import yaml

from configs.droid import CONTROL_HZ
from configs.language_task import LanguageTaskConfig
from configs.load import load
from configs.schema import SuiteConfig
from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from contracts.truth import CompletedAction, Fact, Memory, Narration, Phase, Verb
from sim_envs.droid import variation
from sim_envs.droid.expert import DroidExpert
from sim_envs.droid.shapes import footprint
from sim_envs.droid.task_file import FIRST_SAMPLED, STORED, draw, load_task, task_names
from sim_envs.droid.truth import DroidScene, noun_of, nouns_of
from sim_envs.droid.variation import distractors, place_distractors
from sim_envs.suite import open_suite
from sim_envs.truth.tracker import PhaseTracker
from sim_envs.truth.wording import WORDINGS, narrate, parse_memory, parse_narration, remember
from sim_envs.world import TaskError
from tests.sim_envs.conftest import told_by
from tests.sim_envs.vocabulary import carried, tokens

MOVING = ("take_from_conveyor", "place_on_turntable", "stop_ball")
SUITES = ("droid_tabletop", "droid_tabletop_jointpos")
BOWL = load_task("cube_in_bowl").model_dump(mode="json")["objects"]["bowl"]
BOWL |= {"x": [0.5, 0.5], "y": [0.1, 0.1]}


def changed(tmp_path, path: str, value: Any, name: str = "cube_in_bowl") -> str:
    """A task file with something put at a path."""
    task = load_task(name).model_dump(mode="json")
    *parents, last = path.split(".")
    place: Any = task
    for key in parents:
        place = place[int(key) if isinstance(place, list) else key]
    place[int(last) if isinstance(place, list) else last] = value
    file = tmp_path / "task.yaml"
    file.write_text(yaml.safe_dump(task))
    return str(file)


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("objects.ball.carrier", "line", "'ball' is on 'line', a line: only a conveyor, turntable or ramp"),
        ("objects.ball.shape", {"kind": "box", "size": [0.05] * 3}, "only a sphere rolls, not a box"),
        ("objects.line.shape", {"kind": "mark", "radius": 0.1}, "'line' is a mark: only a line can be"),
        ("rubric.0.object", "cub", "object in criterion `reach`: 'cub'; did you mean 'cube'"),
        ("rubric.2.target", "cube", "nothing can be inside 'cube', a box: take a bowl, mug or bin"),
        ("rubric.0", {"kind": "opened", "object": "cube", "by": 0.1}, "only a drawer is opened"),
        ("objects.cube.x", [0.9, 1.0], "an unreachable pose.*keep within 0.28 to 0.72 m"),
        ("objects.cube.y", [0.2, 0.1], r"`y` is \[0.2, 0.1\]: give a finite minimum"),
        ("objects", {"cube": BOWL, "bowl": BOWL}, "in one place: 'bowl' and 'cube' of task cube_in_bowl"),
    ],
)
def test_what_is_wrong_with_a_task_file_is_one_line(tmp_path, path, value, complaint):
    name = "stop_ball" if path.startswith(("objects.ball", "objects.line")) else "cube_in_bowl"
    with pytest.raises(UsageError, match=complaint):
        draw(load_task(changed(tmp_path, path, value, name)), init_id=0, seed=0)


@pytest.mark.parametrize("beside", [True, False])
def test_a_task_of_ones_own_needs_no_code(tmp_path, beside):
    file = changed(tmp_path, "name", "mine")
    file = Path(file).name if beside else file
    protocol = load(SuiteConfig, "droid_tabletop").model_dump()
    protocol |= {"name": "mine", "environment": {"control": "joint_velocity", "tasks": [file]}}
    suite_file = tmp_path / "suite.yaml"
    suite_file.write_text(yaml.safe_dump(protocol))
    (task,) = open_suite(str(suite_file)).tasks()
    assert (task.suite, task.name, task.language) == ("mine", "mine", "put the cube in the bowl")
    (tmp_path / "task.yaml").unlink()
    with pytest.raises(UsageError, match=r"no task file .*; give its path from the suite's file"):
        open_suite(str(suite_file))


def test_a_goal_that_is_true_at_the_start_is_refused(begin_droid, tmp_path):
    task = changed(tmp_path, "rubric", [{"kind": "upright", "object": "cube"}])
    with pytest.raises(TaskError, match="cube_in_bowl: the goal is true at the start of initial state 3"):
        begin_droid(task, init_id=3)


@pytest.mark.parametrize("suite", SUITES)
def test_every_task_that_ships_is_in_the_suites(suite):
    assert sorted(task.name for task in open_suite(suite).tasks()) == list(task_names())
    assert [task.task_id for task in open_suite(suite).tasks() if task.name in MOVING] == [13, 14, 15]


@pytest.mark.parametrize("name", task_names())
def test_stored_states_are_the_same_for_every_seed_and_sampled_ones_are_not(name):
    task = load_task(name)
    states = [draw(task, init_id=number, seed=0) for number in range(STORED)]
    assert states == [draw(task, init_id=number, seed=1) for number in range(STORED)]
    states += [draw(task, init_id=FIRST_SAMPLED + number, seed=seed) for number in (0, 1) for seed in (0, 1)]
    assert all(one != other for one, other in itertools.combinations(states, 2))


@pytest.mark.parametrize(
    ("name", "every"),
    [
        *[("cube_in_bowl", 5), *((name, 25) for name in MOVING)],
        *(pytest.param(name, 1, marks=pytest.mark.slow) for name in task_names()),
    ],
)
def test_stored_states_are_settled_collision_free_and_reachable(begin_droid, name, every):
    for init_id in range(0, STORED, every):
        sim = begin_droid(name, init_id=init_id, settle_steps=0)
        assert sim.station.data.contact.dist.min(initial=0) > -0.001
        placed = {each: sim.station.pose(each).middle for each in sim.task.objects}
        assert all(0.28 <= np.linalg.norm(middle[:2]) <= 0.75 for middle in placed.values())
        begin_droid(name, init_id=init_id, settle_steps=8)  # what moves by itself only does so after it
        for each, middle in placed.items():
            np.testing.assert_allclose(sim.station.pose(each).middle, middle, atol=0.002)
        assert sim.progress() == 0


def test_wordings_take_turns_and_training_never_shows_those_held_out():
    suite = open_suite("droid_tabletop")
    for task in suite.tasks():
        said = {}
        for wordings in ("training", "held_out"):
            keys = [EpisodeKey(suite=task.suite, task_id=task.task_id, init_id=n, seed=7) for n in range(6)]
            said[wordings] = {suite.instruction(key, wordings) for key in keys}
            assert len(said[wordings]) > 1
        assert not said["training"] & said["held_out"]
        assert task.language in suite.training_wordings()[task.language]


STATES = range(20)


def all_bytes(sim):
    sim.advance(np.tile([0.3] * 7 + [1.0], (10, 1)))
    data = sim.station.data
    images = [image.tobytes() for image in sim.observe().images.values()]
    return [data.qpos.tobytes(), data.qvel.tobytes(), *images]


def shown(sim):
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
        assert 0 < np.linalg.norm(full[0] - plain[0]) <= variation.CAMERA_SHIFT
        assert 2 * math.acos(min(1.0, abs(full[1] @ plain[1]))) <= variation.CAMERA_TURN
        assert np.abs(full[2] / plain[2] - 1).max() <= variation.BRIGHTNESS + variation.WARMTH[0] + 0.01
        np.testing.assert_allclose(2 * (half[0] - plain[0]), full[0] - plain[0], atol=1e-12)
        assert half[3] <= full[3]
    assert not any(scene(1 / 3, state)[3] for state in STATES)


KEY = EpisodeKey(suite="droid_tabletop", task_id=0, init_id=1, seed=7)
PUT = CompletedAction(verb=Verb.PUT, subject="cube", place="bowl")
OPENED = CompletedAction(verb=Verb.OPENED, subject="drawer of the cabinet")
STILL = np.zeros((1, 8))
ALONE = """
name: mine
instruction: put the duck in the basin
wordings: {training: [put the duck in the basin], held_out: [place the duck in the basin]}
objects:
  Rubber_duck: {shape: {kind: sphere, radius: 0.03}, x: [0.45, 0.45], y: [-0.1, -0.1]}
  basin: {shape: {kind: bowl, radius: 0.08, height: 0.05, foot: 0.05}, x: [0.5, 0.5], y: [0.2, 0.2]}
  serving_tray: {shape: {kind: bin, size: [0.1, 0.1, 0.01]}, x: [0.4, 0.4], y: [0.2, 0.2]}
rubric: [{kind: inside, object: Rubber_duck, target: basin}]
"""


def set_drawer(sim, way):
    sim.station.data.joint("cabinet_drawer").qpos[0] = way
    sim.advance(STILL)


def test_an_episode_is_told_as_it_is(begin_droid):
    sim = begin_droid("cube_in_bowl", init_id=KEY.init_id)
    told = [sim.truth(), *told_by(sim, DroidExpert(sim), KEY)]
    narrations = [said for said, _ in itertools.groupby(truth.narration for truth in told)]
    assert narrations == [
        Narration(phase=Phase.APPROACH, object="cube"),
        Narration(phase=Phase.GRASP, object="cube"),
        Narration(phase=Phase.CARRY, object="cube", target="bowl"),
        Narration(phase=Phase.PLACE, object="cube", target="bowl"),
        Narration(phase=Phase.RETREAT, object="cube"),
        Narration(phase=Phase.DONE),
    ]
    memories = [said for said, _ in itertools.groupby(truth.memory for truth in told)]
    states = itertools.groupby(next(iter(memory.facts)).state for memory in memories)
    assert [state for state, _ in states] == ["on the table", "in the gripper", "in the bowl"]
    assert [memory.done for memory in memories[:2]] == [(), ()]
    assert memories[-1] == Memory(done=(PUT,), facts=frozenset([PUT.resulting_fact(told[0].nouns)]))


def test_what_is_dropped_on_the_way_is_to_be_fetched_from_where_it_lies(begin_droid):
    sim = begin_droid("cube_in_bowl", init_id=KEY.init_id)
    told = told_by(sim, DroidExpert(sim), KEY)
    lifted = next(truth for truth in told if sim.station.pose("cube").low[2] > 0.13)
    assert lifted.narration.phase is Phase.CARRY
    assert lifted.memory.facts == {Fact(subject="cube", state="in the gripper")}
    sim.advance(np.tile(STILL, (30, 1)))
    truth = sim.truth()
    assert truth.narration == Narration(phase=Phase.APPROACH, object="cube")
    assert truth.memory.facts == {Fact(subject="cube", state="on the table")}
    assert sim.progress() == pytest.approx(2 / 3), "criteria are kept once they were met"


@pytest.mark.parametrize(
    ("task", "subject", "state"),
    [("take_from_conveyor", "block", "on the conveyor"), ("stop_ball", "ball", "on the ramp")],
)
def test_what_a_machine_carries_is_on_it_until_it_is_on_the_table(begin_droid, task, subject, state):
    sim = begin_droid(task)
    assert sim.truth().memory.facts == {Fact(subject=subject, state=state)}
    sim.station.data.joint(subject).qpos[:3] = [0.3, 0.2, 0.0]
    sim.advance(np.tile(STILL, (3, 1)))
    assert sim.truth().memory.facts == {Fact(subject=subject, state="on the table")}


def test_a_drawer_is_half_open_then_has_been_opened(begin_droid):
    sim = begin_droid("open_drawer", init_id=KEY.init_id)
    assert sim.truth().narration == Narration(phase=Phase.APPROACH, object=OPENED.subject)
    set_drawer(sim, 0.05)
    assert sim.truth().memory == Memory(facts=frozenset([Fact(subject=OPENED.subject, state="half open")]))
    set_drawer(sim, 0.1)
    assert sim.truth().memory.done == (OPENED,)
    assert sim.truth().narration.phase is Phase.DONE


def test_what_is_too_wide_to_be_grasped_is_pushed(begin_droid):
    sim = begin_droid("push_box_to_mark", init_id=KEY.init_id)
    model = sim.station.model
    scene = DroidScene(sim.rubric)
    fingers = [model.geom(f"{side}_fingertip_collision").id for side in ("left", "right")]
    box = int(model.body("box").geomadr[0])
    contacts = np.array([(finger, box) for finger in fingers], np.int32)
    touching = dataclasses.replace(scene.capture(), contacts=contacts)
    said = PhaseTracker(scene, control_hz=CONTROL_HZ).update(touching, scene.missing())
    assert said == Narration(phase=Phase.PUSH, object="box", target="mark")


def test_a_text_that_names_what_the_task_does_not_have_is_not_read(tmp_path):
    nouns = nouns_of(load_task("cube_in_bowl"))
    carrying = Narration(phase=Phase.CARRY, object="cube", target="bowl")
    assert parse_narration("Carrying the cube to the bowl.", nouns) == carrying
    assert parse_narration("Carrying the cube to the bowl.") is None
    for text in ("Carrying the milk to the bowl.", "Carrying the cube to the plate.", "Opening the cube."):
        assert parse_narration(text, nouns) is None
    for text in ("put the cube on the bowl", "put the cube in the bin", "the drawer is open"):
        assert parse_memory(text, nouns) is None
    (tmp_path / "mine.yaml").write_text(ALONE)
    nouns = nouns_of(load_task(str(tmp_path / "mine.yaml")))
    assert nouns.movable == {"rubber duck", "basin", "serving tray"}
    memory = parse_memory("put the rubber duck in the basin; the basin is on the serving tray", nouns)
    assert memory.done == (CompletedAction(verb=Verb.PUT, subject="rubber duck", place="basin"),)


@pytest.mark.parametrize("name", task_names())
def test_the_texts_of_every_task_fit_their_language_tasks(name):
    nouns, task = nouns_of(load_task(name)), load_task(name)
    said, remembered = (load(LanguageTaskConfig, kind).max_tokens for kind in ("narration", "memory"))
    narrations = carried(nouns.movable, nouns.prepositions)
    narrations += [Narration(phase=Phase.RETREAT, object=obj) for obj in nouns.subjects]
    put = [(noun_of(e.object), noun_of(e.target)) for e in task.rubric if e.kind in ("inside", "on_top")]
    done = tuple(CompletedAction(verb=Verb.PUT, subject=subject, place=place) for subject, place in put)
    memory = Memory(done=done, facts=frozenset(action.resulting_fact(nouns) for action in done))
    for wording in range(WORDINGS):
        assert max(tokens(narrate(each, wording, nouns)) for each in narrations) <= said
        assert tokens(remember(memory, wording, nouns)) <= remembered
