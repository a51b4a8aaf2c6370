"""Truth in words: what is written is read back, what is not ours is not read, and no phase flickers."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.language_task import LanguageTaskConfig
from configs.load import load
from sim_envs.truth.ground_truth import Memory, Narration, Phase
from sim_envs.truth.nouns import PARTS
from sim_envs.truth.scene import GoalTarget, Item, RawState, TruthScene
from sim_envs.truth.tracker import HOLD_S, Debouncer, PhaseTracker
from sim_envs.truth.wording import WORDINGS, narrate, parse_memory, parse_narration, remember
from tests.sim_envs.vocabulary import ALL_TASKS, carried, fullest_memories, memories, narrations, tokens

WORDING = st.integers(0, WORDINGS - 1)


@given(narrations(), WORDING)
def test_a_narration_is_read_as_it_was_meant(narration, wording):
    assert parse_narration(narrate(narration, wording)) == narration


@given(memories(), WORDING)
def test_a_memory_is_read_as_it_was_meant(content, wording):
    memory = Memory(**content)
    assert parse_memory(remember(memory, wording)) == memory


@given(st.text() | st.text(alphabet="abcdefghijklmnopqrstuvwxyz ;.", max_size=60))
def test_any_text_can_be_given_and_nonsense_is_not_read(text):
    said = parse_narration(text)
    assert said is None or said.phase is Phase.DONE
    assert parse_memory(text) is None


@pytest.mark.parametrize("text", ["carrying the milk to the basket", " Carrying  the MILK to the basket. "])
def test_case_blanks_and_the_full_stop_do_not_matter(text):
    assert parse_narration(text) == Narration(phase=Phase.CARRY, object="milk", target="basket")


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
    ],
)
def test_what_is_cut_off_makes_no_sense_or_is_outside_the_vocabulary_is_not_read(parse, text):
    assert parse(text) is None


def test_every_text_of_every_task_fits_its_language_task():
    limits = {name: load(LanguageTaskConfig, name).max_tokens for name in ("narration", "memory")}
    said_of = [said for task in ALL_TASKS for said in carried(task)]
    told = [memory for task in ALL_TASKS for memory in fullest_memories(task)]
    said_of += [
        Narration(phase=phase, object=part)
        for part in PARTS
        for phase in (Phase.APPROACH, Phase.OPEN, Phase.TURN_OFF, Phase.RETREAT)
    ]
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


@given(st.lists(st.sampled_from([REACH, GRASP, Narration(phase=Phase.RETREAT, object="milk")]), max_size=80))
def test_no_phase_is_told_for_less_than_its_time(values):
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
