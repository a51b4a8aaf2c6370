"""Ground truth of DROID's station: phases, completed actions and facts, named after the task's objects."""

import dataclasses
import itertools

import numpy as np
import pytest

from configs.droid import CONTROL_HZ
from configs.language_task import LanguageTaskConfig
from configs.load import load
from sim_envs.droid.expert import DroidExpert
from sim_envs.droid.task_file import load_task, task_names
from sim_envs.droid.truth import DroidScene, noun_of, nouns_of
from sim_envs.truth.ground_truth import CompletedAction, Fact, Memory, Narration, Phase, Verb
from sim_envs.truth.tracker import PhaseTracker
from sim_envs.truth.wording import WORDINGS, narrate, parse_memory, parse_narration, remember
from sim_envs.world import EpisodeKey
from tests.sim_envs.vocabulary import tokens

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


def played(sim, *, until=lambda: False):
    """The expert's actions and the truth after each of them, up to success or a condition."""
    expert, actions, told = DroidExpert(sim), [], [sim.truth()]
    expert.reset(KEY)
    while len(actions) < 300:
        for action in expert.query(sim.policy_state()):
            solved = sim.advance(action[None]).success
            actions.append(action)
            told.append(sim.truth())
            if solved or until():
                return np.array(actions), told
    raise AssertionError("the expert does not get there")


def set_drawer(sim, way):
    sim.station.data.joint("cabinet_drawer").qpos[0] = way
    sim.advance(STILL)


@pytest.fixture(scope="module")
def episode(begin_droid):
    return played(begin_droid("cube_in_bowl", init_id=KEY.init_id))


def test_an_episode_is_told_as_it_is(episode):
    told = episode[1]
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
    _, told = played(sim, until=lambda: sim.station.pose("cube").low[2] > 0.13)
    assert told[-1].narration.phase is Phase.CARRY
    assert told[-1].memory.facts == {Fact(subject="cube", state="in the gripper")}
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
    narrations = [
        Narration(phase=phase, object=obj, target=place)
        for phase in (Phase.CARRY, Phase.PLACE, Phase.PUSH)
        for obj in nouns.movable
        for place in nouns.prepositions
    ]
    narrations += [Narration(phase=Phase.RETREAT, object=obj) for obj in nouns.subjects]
    done = tuple(
        CompletedAction(verb=Verb.PUT, subject=noun_of(each.object), place=noun_of(each.target))
        for each in task.rubric
        if each.kind in ("inside", "on_top")
    )
    memory = Memory(done=done, facts=frozenset(action.resulting_fact(nouns) for action in done))
    for wording in range(WORDINGS):
        assert max(tokens(narrate(each, wording, nouns)) for each in narrations) <= said
        assert tokens(remember(memory, wording, nouns)) <= remembered
