"""Truth in words, of states made by hand and of whole episodes; LIBERO's nouns, goals, OxyGen's labels."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.language_task import LanguageTaskConfig
from configs.load import load
from contracts.nouns import MOVABLE, PARTS, PLACES, phrase
from contracts.truth import ELSEWHERE, CompletedAction, Fact, Memory, Narration, Phase, Verb
from sim_envs.libero.experts.expert import Expert
from sim_envs.libero.experts.scene import Goal
from sim_envs.libero.sim import LiberoSim
from sim_envs.libero.tasks import CONTROL_HZ, get_task
from sim_envs.libero.truth import goal_sentences
from sim_envs.truth.scene import GoalTarget, Item, RawState, TruthScene
from sim_envs.truth.textual_memory import GoalTracker, parse_textual_memory, write_textual_memory
from sim_envs.truth.tracker import HOLD_S, Debouncer, PhaseTracker
from sim_envs.truth.wording import WORDINGS, narrate, parse_memory, parse_narration, remember
from tests.sim_envs import vocabulary
from tests.sim_envs.conftest import key_of, put_thing, told_by
from tests.sim_envs.vocabulary import ALL_TASKS, carried, goals, memories, narrations, tokens


@given(narrations(), memories(), st.integers(0, WORDINGS - 1))
def test_a_text_is_read_as_it_was_meant_whatever_its_case_blanks_and_full_stop(narration, content, wording):
    memory = Memory(**content)
    for said, parse, meant in (
        (narrate(narration, wording), parse_narration, narration),
        (remember(memory, wording), parse_memory, memory),
    ):
        shouted = f" {said.upper().removesuffix('.')}".replace(" ", "  ")
        assert parse(said) == parse(shouted) == meant


@given(st.text() | st.text(alphabet="abcdefghijklmnopqrstuvwxyz ;.", max_size=60))
def test_any_text_can_be_given_and_nonsense_is_not_read(text):
    said = parse_narration(text)
    assert said is None or said.phase is Phase.DONE
    assert parse_memory(text) is None


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_narration, ""),
        (parse_narration, "Carrying the spaceship to the basket."),
        (parse_narration, "Carrying the milk to the moon."),
        (parse_narration, "Opening the milk."),
        (parse_narration, "Placing the milk on the basket."),
        (parse_narration, "The milk is carried."),
        (parse_memory, ""),
        (parse_memory, "put the milk in the"),
        (parse_memory, "put the milk in the basket; the mi"),
        (parse_memory, "the milk is open"),
        (parse_memory, "the milk is on the table; the milk is on the floor"),
        (parse_memory, "opened the milk"),
        (parse_memory, "put the milk in the basket; put the milk in the basket twice"),
    ],
)
def test_what_is_cut_off_makes_no_sense_or_is_outside_the_vocabulary_is_not_read(parse, text):
    assert parse(text) is None


def test_every_text_of_every_task_fits_its_language_task():
    limits = {name: load(LanguageTaskConfig, name).max_tokens for name in ("narration", "memory")}
    said_of = [said for task in ALL_TASKS for said in carried(*vocabulary.things_and_places(task))]
    told = [memory for task in ALL_TASKS for memory in vocabulary.fullest_memories(task)]
    phases = (Phase.APPROACH, Phase.OPEN, Phase.TURN_OFF, Phase.RETREAT)
    said_of += [Narration(phase=phase, object=part) for part in PARTS for phase in phases]
    for wording in range(WORDINGS):
        assert max(tokens(narrate(said, wording)) for said in said_of) <= limits["narration"]
        assert max(tokens(remember(memory, wording)) for memory in told) <= limits["memory"]


HZ = 20.0
HELD_STEPS = round(HOLD_S * HZ)
REACH = Narration(phase=Phase.APPROACH, object="milk")
GRASP = Narration(phase=Phase.GRASP, object="milk")
DONE = Narration(phase=Phase.DONE)


def told(values, first=REACH):
    steady = Debouncer(first, control_hz=HZ)
    return [steady.update(value) for value in values]


def runs(values):
    """Value and number of steps of every stretch of one value."""
    return [(value, len(list(group))) for value, group in itertools.groupby(values)]


PHASES = st.sampled_from([REACH, GRASP, Narration(phase=Phase.RETREAT, object="milk")])


@given(st.lists(st.tuples(PHASES, st.integers(1, HELD_STEPS + 3)), max_size=20))
def test_no_phase_is_told_for_less_than_its_time(stretches):
    values = [value for value, steps in stretches for _ in range(steps)]
    for _, steps in runs(told(values))[1:-1]:
        assert steps >= HELD_STEPS


@given(st.lists(narrations(), min_size=1, max_size=20))
def test_what_lasts_is_told_and_done_is_told_at_once(values):
    assert told([*values, *[values[-1]] * (HELD_STEPS + 3)])[-1] == values[-1]
    assert told([*values, DONE])[-1] == DONE


class OneFinger(TruthScene):
    """A carton of milk that is to be put on a plate; a finger touches it when the gripper is down."""

    def __init__(self) -> None:
        milk = Item(index=0, name="milk_1", noun="milk", body=1)
        self.items, self.things, self.parts = [milk], [milk], []
        self.targets = [GoalTarget(number=0, item=milk, place="plate")]

    def touch(self, moment: RawState) -> tuple[frozenset[int], frozenset[int]]:
        return frozenset([0]) if moment.gripper[2] == 0 else frozenset(), frozenset()

    def satisfied(self, target: GoalTarget) -> bool:
        return False

    def nearest(self, items, point):
        return items[0]

    def is_near(self, target, position, margin):
        return False

    def location(self, item):
        return "on the table"


def moment(x: float, *, touched: bool) -> RawState:
    return RawState(
        gripper=np.array([x, 0.0, 0.0 if touched else 0.1]),
        positions=np.array([[x, 0.0, 0.0]]),
        joints=np.zeros(0),
        contacts=np.zeros((0, 2), np.int32),
    )


@pytest.mark.parametrize(("pushes", "phase"), [(False, Phase.GRASP), (True, Phase.PUSH)])
def test_what_moved_by_itself_until_it_was_touched_is_not_pushed(pushes, phase):
    scene = OneFinger()
    phases = PhaseTracker(scene, control_hz=HZ)
    for step in range(10):  # at 6 cm/s
        told = phases.update(moment(0.003 * step, touched=False), scene.targets)
        assert told.phase is Phase.APPROACH
    for step in range(3):
        place = 0.03 + 0.003 * step * pushes
        told = phases.update(moment(place, touched=True), scene.targets)
    assert told.phase is phase


def test_what_has_been_lifted_is_carried_until_it_is_released(monkeypatch):
    scene = OneFinger()
    monkeypatch.setattr(scene, "touch", lambda moment: (frozenset([0]), frozenset([0])))
    phases, here = PhaseTracker(scene, control_hz=HZ), moment(0.0, touched=True)
    heights = (np.array([[0.0, 0.0, height]]) for height in (0.0, 0.02, 0.0))
    moments = (dataclasses.replace(here, positions=height) for height in heights)
    told = [phases.update(each, scene.targets).phase for each in moments]
    assert told == [Phase.GRASP, Phase.CARRY, Phase.CARRY]


STILL = np.array([[0.0, 0, 0, 0, 0, 0, -1]])
DRAWER = "top drawer of the cabinet"


def put_joint(sim: LiberoSim, joint: str, position: float) -> None:
    """Move a drawer, a door or a knob, and let a control step go by."""
    sim.env.sim.data.qpos[sim.env.sim.model.get_joint_qpos_addr(joint)] = position
    sim.env.sim.forward()
    sim.advance(STILL)


def state_of(truth, subject):
    return {fact.subject: fact.state for fact in truth.memory.facts}[subject]


def test_a_drawer_is_open_half_open_or_closed_and_closing_it_is_remembered(open_standin):
    sim, drawer = open_standin("libero_10", 3), "bottom drawer of the cabinet"
    assert (state_of(sim.truth(), drawer), sim.truth().memory.done) == ("open", ())
    closed, opened = (CompletedAction(verb=verb, subject=drawer) for verb in (Verb.CLOSED, Verb.OPENED))
    for position, state, done in (
        (-0.07, "half open", ()),
        (0.005, "closed", (closed,)),
        (-0.15, "open", (closed, opened)),
    ):
        put_joint(sim, "white_cabinet_1_bottom_level", position)
        assert (state_of(sim.truth(), drawer), sim.truth().memory.done) == (state, done)


def test_a_stove_is_on_or_off_reading_changes_nothing_and_success_makes_it_done(open_standin):
    sim = open_standin("libero_10", 2)
    assert state_of(sim.truth(), "stove") == "off"
    put_joint(sim, "flat_stove_1_button", 1.0)
    before = sim.flat_state(), sim.env.sim.model._model.site_rgba.copy()
    assert sim.truth() == sim.truth()
    np.testing.assert_array_equal(sim.flat_state(), before[0])
    np.testing.assert_array_equal(sim.env.sim.model._model.site_rgba, before[1])
    assert state_of(sim.truth(), "stove") == "on"
    burner = sim.env.sim.data.get_site_xpos("flat_stove_1_cook_region")
    assert put_thing(sim, "moka_pot_1", burner + np.array([0, 0, 0.06]), steps=20)
    truth = sim.truth()
    assert truth.narration == Narration(phase=Phase.DONE)
    assert state_of(truth, "moka pot") == "on the stove"
    assert truth.memory.done == (CompletedAction(verb=Verb.TURNED_ON, subject="stove"),)


def test_a_reached_goal_is_told_after_three_control_steps_and_gone_at_once(open_standin):
    sim, stove = open_standin("libero_10", 2), (Fact(subject="stove", state="on"),)
    told = []
    for position in (1.0, 1.0, 1.0, 0.0):
        put_joint(sim, "flat_stove_1_button", position)
        told.append(sim.truth().textual_memory)
    assert told == [(), (), stove, ()]


def test_two_pots_are_numbered_in_the_order_in_which_they_are_lifted(open_standin, monkeypatch):
    sim = open_standin("libero_10", 8)
    assert sim.truth().textual_memory == ()  # the stove has been on from the start
    scene = sim._tracker._tracker._scene
    sim.advance(np.repeat(STILL, 3, axis=0))
    monkeypatch.setattr(scene, "lifted", lambda: ["moka_pot_2"])
    sim.advance(np.repeat(STILL, 4, axis=0))
    monkeypatch.setattr(scene, "lifted", list)
    monkeypatch.setattr(scene, "satisfied", lambda target: target.number < 2)
    sim.advance(np.repeat(STILL, 3, axis=0))
    assert [fact.subject for fact in sim.truth().textual_memory] == ["moka pot", "first moka pot"]


def test_a_microwave_opens_and_what_stands_on_the_floor_is_on_the_floor(open_standin):
    sim = open_standin("libero_10", 9)
    assert state_of(sim.truth(), "microwave") == "open"
    assert "white mug" not in {fact.subject for fact in sim.truth().memory.facts}
    put_joint(sim, "microwave_1_microjoint", 0.0)
    assert state_of(sim.truth(), "microwave") == "closed"
    put_thing(sim, "porcelain_mug_1", np.array([0.6, 1.1, 0.3]), steps=30)
    assert state_of(sim.truth(), "white mug") == "on the floor"
    put_thing(sim, "porcelain_mug_1", np.array([0.6, 1.1, 1.5]), steps=1)
    assert state_of(sim.truth(), "white mug") == ELSEWHERE


LATER = (("libero_spatial", 4), ("libero_goal", 8), ("libero_10", 4))


@pytest.mark.parametrize(
    ("suite", "task_id"),
    [("libero_object", 0), *(pytest.param(*task, marks=pytest.mark.slow) for task in LATER)],
)
def test_an_episode_of_the_expert_is_told_as_it_is(open_standin, suite, task_id):
    """Whatever things are picked up in it, and put where the goals want them."""
    sim = open_standin(suite, task_id)
    told, wanted = [sim.truth(), *told_by(sim, Expert(sim), key_of(sim))], goals(sim.task)
    stretches = runs(truth.narration for truth in told)
    shortest = min(steps for _, steps in stretches[:-2])
    assert shortest >= HOLD_S * CONTROL_HZ
    assert told[-1].narration.phase is Phase.DONE
    assert {said.object for said, _ in stretches[:-1]} <= {subject for _, subject, *_ in wanted}
    for _, subject, place in wanted:
        phases = [said.phase for said, _ in stretches if said.object == subject]
        order = [phase for phase in dict.fromkeys(phases) if phase is not Phase.RETREAT]
        assert order == [Phase.APPROACH, Phase.GRASP, Phase.CARRY, Phase.PLACE]
        targets = {said.target for said, _ in stretches if said.object == subject} - {None}
        assert targets == {place}
        assert Fact(subject=subject, state=phrase(place)) in told[-1].memory.facts
    places = {subject: place for _, subject, place in wanted}
    carried = [said.object for said, _ in stretches if said.phase is Phase.CARRY]
    done = [CompletedAction(verb=Verb.PUT, subject=noun, place=places[noun]) for noun in carried]
    assert list(told[-1].memory.done) == done
    for truth in told[::5]:
        assert parse_narration(narrate(truth.narration)) == truth.narration
        assert parse_memory(remember(truth.memory)) == truth.memory


@pytest.mark.parametrize("task", ALL_TASKS, ids=lambda task: f"{task.suite}-{task.task_id}")
def test_every_task_has_its_nouns_in_the_vocabulary(task):
    things = vocabulary.names(task).things
    assert set(things.values()) <= MOVABLE
    assert len(set(things.values())) == len(things)
    for _, subject, *place in goals(task):
        assert subject in (MOVABLE if place else PARTS)
        assert set(place) <= PLACES


@pytest.mark.parametrize(
    ("suite", "task_id", "expected"),
    [
        ("libero_object", 3, [("in", "bbq sauce", "basket")]),
        ("libero_spatial", 5, [("on", "black bowl", "plate")]),
        ("libero_goal", 0, [("open", "middle drawer of the cabinet")]),
        ("libero_goal", 5, [("on", "plate", "front of the stove")]),
        ("libero_10", 4, [("on", "white mug", "left plate"), ("on", "yellow and white mug", "right plate")]),
        ("libero_10", 9, [("in", "yellow and white mug", "microwave"), ("close", "microwave")]),
        ("libero_90", 3, [("in", "back butter", DRAWER), ("close", DRAWER)]),
        ("libero_90", 16, [("on", "front black bowl", "middle black bowl")]),
        ("libero_90", 38, [("on", "right moka pot", "stove"), ("turnon", "stove")]),
        ("libero_90", 42, [("in", "frying pan", "space under the shelf")]),
    ],
)
def test_goals_read_as_the_instruction_does(suite, task_id, expected):
    assert goals(get_task(suite, task_id)) == expected


@pytest.fixture(scope="module")
def labels(golden):
    return json.loads((golden / "oxygen_textual_memory.json").read_text())


def sentences_of(record):
    goals = [Goal(predicate=goal["name"], arguments=tuple(goal["args"])) for goal in record["goals"]]
    return goal_sentences(goals, record["instruction"])


@pytest.mark.golden
def test_every_subset_of_goals_of_all_tasks_reads_as_in_oxygens_labels_and_is_read_back(labels):
    assert len(labels["tasks"]) == 40
    for task in labels["tasks"]:
        sentences = sentences_of(task)
        for case in task["sentences"]:
            facts, text = sentences.facts(case["satisfied"], case["lifted"]), case["textual_memory"]
            assert write_textual_memory(facts) == text, task["name"]
            assert parse_textual_memory(text) == facts
            assert parse_textual_memory(text.upper().removesuffix(".")) == facts


def values_of(record):
    return [value == "1" for value in record["values"]]


@pytest.mark.golden
def test_time_series_read_as_in_oxygens_labels_except_for_lifts_that_are_still_to_come(labels):
    """OxyGen's labels name objects by the lifts of the whole trajectory; an episode knows the past alone."""
    differing = {}
    for series in labels["series"]:
        sentences, expected = sentences_of(series), series["textual_memory"]
        tracker = GoalTracker(sentences, stable_steps=series["stability_window"])
        goals = [values_of(goal) for goal in series["goals"]]
        picked_up = [each for each in series["auxiliary"] if each["name"] == "picked_up"]
        lifts = {each["args"][0]: values_of(each) for each in picked_up}
        texts = []
        for frame in range(len(expected)):
            lifted = [name for name, values in lifts.items() if values[frame]]
            tracker.step([values[frame] for values in goals], lifted)
            texts.append(write_textual_memory(tracker.facts()))
        offline = [write_textual_memory(sentences.facts(each, tracker.lifted)) for each in series["reported"]]
        assert offline == expected, series["name"]
        frames = {frame for frame, text in enumerate(texts) if text != expected[frame]}
        differing |= {series["name"]: frames} if frames else {}
    assert differing == {"two pots, ordinal from a later lift": {12, 13, 14, 15}}
