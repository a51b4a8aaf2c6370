"""No phase flickers, whatever the moments say."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim_envs.truth.ground_truth import Narration, Phase
from sim_envs.truth.scene import GoalTarget, Item, RawState, TruthScene
from sim_envs.truth.tracker import HOLD_S, Debouncer, PhaseTracker
from tests.sim_envs.vocabulary import narrations

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
