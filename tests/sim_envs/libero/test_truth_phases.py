"""No phase flickers, whatever the moments say."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from sim_envs.truth.account import Narration, Phase
from sim_envs.truth.phases import HOLD_S, Steady
from tests.sim_envs.vocabulary import narrations

HZ = 20.0
HELD_STEPS = round(HOLD_S * HZ)
REACH = Narration(phase=Phase.APPROACH, object="milk")
GRASP = Narration(phase=Phase.GRASP, object="milk")
DONE = Narration(phase=Phase.DONE)


def told(values, first=REACH):
    steady = Steady(first, control_hz=HZ)
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


def test_a_flicker_is_not_told_at_all():
    values = [REACH] * 10 + [GRASP] * 2 + [REACH] * 10
    assert set(told(values)) == {REACH}
    assert runs(told([REACH] * 10 + [GRASP] * 10)) == [(REACH, 12), (GRASP, 8)]
