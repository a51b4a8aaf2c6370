"""Budgets of tokens: fixed, or from a deadline by measured costs. The clock here is a fake one."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.errors import UsageError
from oxygen.serving.budget import Deadline, FixedTokens, RunningMean


@dataclasses.dataclass
class Machine:
    """A device whose time is told, not taken: actions, then forks and decode steps.

    Attributes:
        action_ms: Until the actions are there.
        fork_ms: Of a step's new requests.
        step_ms: Of a decode step.
        now_ms: The clock.
    """

    action_ms: float
    fork_ms: float
    step_ms: float
    now_ms: float = 0.0

    def frame(self, budget, step_ms):
        """Run a frame; returns its decode steps and how long it took."""
        came = self.now_ms
        self.now_ms += self.action_ms
        acted = self.now_ms
        steps = budget.steps(spent_ms=acted - came, step_ms=step_ms.value)
        self.now_ms += self.fork_ms + steps * self.step_ms
        step_ms.add((self.now_ms - acted) / steps)
        return steps, self.now_ms - came


machines = st.builds(
    Machine, action_ms=st.floats(1, 60), fork_ms=st.floats(0, 10), step_ms=st.floats(0.5, 20)
)


def test_before_anything_is_measured_a_deadline_affords_one_step():
    assert Deadline(1e6).steps(spent_ms=0.0, step_ms=None) == 1


@given(machines, st.floats(20, 300))
def test_a_deadline_is_kept_from_the_second_frame_on_unless_one_step_is_too_much(machine, deadline_ms):
    step_ms = RunningMean()
    least = machine.action_ms + machine.fork_ms + machine.step_ms
    for number in range(60):
        _, took = machine.frame(Deadline(deadline_ms), step_ms)
        assert took <= max(deadline_ms, least) * (1 + 1e-9) or number == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedTokens(0), "tokens per frame is 0"),
        (lambda: Deadline(0.0), "the deadline is 0.0 ms"),
        (lambda: Deadline(10.0, reserve=1.0), "reserve is 1.0"),
    ],
)
def test_budgets_that_make_no_sense_are_refused(make, message):
    with pytest.raises(UsageError, match=message):
        make()
