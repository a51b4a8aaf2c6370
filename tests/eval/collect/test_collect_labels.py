"""A frame's action chunk has the actions intended in the states then reached."""

import functools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eval.collect.episode import action_labels, learnable
from sim_envs.libero.tasks import LIBERO_INTERFACE
from sim_envs.suite import open_suite


@given(
    steps=st.lists(st.integers(1, 10), min_size=1, max_size=8),
    horizon=st.integers(1, 25),
    seed=st.integers(0, 99),
)
def test_a_step_has_the_same_action_in_every_chunk(steps, horizon, seed):
    chunks = np.random.default_rng(seed).normal(size=(len(steps), 10, 7))
    hold = functools.partial(LIBERO_INTERFACE.hold_action, np.zeros(8))
    actions, padded = action_labels(list(chunks), steps, hold, horizon=horizon)
    played = np.concatenate([each[:count] for each, count in zip(chunks, steps, strict=True)])
    starts = np.cumsum([0, *steps[:-1]])
    for start, labels, mask in zip(starts, actions, padded, strict=True):
        left = played[start : start + horizon]
        assert np.array_equal(labels[: len(left)], left)
        assert mask.tolist() == [False] * len(left) + [True] * (horizon - len(left))
        assert (labels[len(left) :, :6] == 0).all()  # holds still, with the gripper's last command
        assert (labels[len(left) :, 6] == played[-1, 6]).all()


def test_after_absolute_positions_the_robot_stays_at_the_last_one():
    aloha, last = open_suite("gym_aloha").interface, np.full((1, 14), 0.5)
    hold = functools.partial(aloha.hold_action, np.zeros(aloha.observation.state_size))
    actions, padded = action_labels([last], [1], hold, horizon=3)
    assert padded.tolist() == [[False, True, True]]
    assert (actions == 0.5).all()


@given(
    turns=st.lists(st.tuples(st.booleans(), st.integers(1, 5)), min_size=1, max_size=12),
    horizon=st.integers(1, 12),
)
def test_learnable_actions_are_those_until_the_end_of_the_turn(turns, horizon):
    by_expert, steps = [list(part) for part in zip(*turns, strict=True)]
    by_step = np.repeat(by_expert, steps)
    starts = np.cumsum([0, *steps[:-1]])
    for start, mask in zip(starts, learnable(by_expert, steps, horizon=horizon), strict=True):
        assert mask.tolist() == [
            bool(start + j < len(by_step) and by_step[start : start + j + 1].all()) for j in range(horizon)
        ]
