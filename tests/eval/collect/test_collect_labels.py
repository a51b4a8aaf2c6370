"""A frame's action chunk has the actions intended in the states then reached."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.collect.episode import action_labels, learnable


def chunk(query: int) -> np.ndarray:
    """Row `j` holds 100 · query + j in every dimension."""
    return np.full((10, 7), 100.0 * query) + np.arange(10)[:, None]


def intended(query: int, *rows: int) -> list[float]:
    return [100.0 * query + row for row in rows]


def test_replanned_actions_replace_the_planned_ones():
    actions, padded = action_labels([chunk(0), chunk(1), chunk(2)], [5, 5, 5], horizon=10)
    assert actions[0, :, 0].tolist() == intended(0, *range(5)) + intended(1, *range(5))
    assert actions[1, :, 0].tolist() == intended(1, *range(5)) + intended(2, *range(5))
    assert not padded[:2].any()


def test_beyond_the_end_actions_hold_still_and_are_masked():
    actions, padded = action_labels([chunk(0), chunk(1)], [5, 3], horizon=10)
    assert padded.sum(axis=1).tolist() == [2, 7]
    assert actions[1, :3, 0].tolist() == intended(1, 0, 1, 2)
    assert (actions[padded][:, :6] == 0).all()
    assert (actions[padded][:, 6] == 102).all()  # the gripper stays as it was told last


@pytest.mark.parametrize("replan", [1, 2, 10])
def test_the_first_actions_are_those_intended_at_the_frame_itself(replan):
    actions, _ = action_labels([chunk(query) for query in range(6)], [replan] * 6, horizon=10)
    for query in range(6):
        assert actions[query, :replan].tolist() == chunk(query)[:replan].tolist()


@given(
    steps=st.lists(st.integers(1, 10), min_size=1, max_size=8),
    horizon=st.integers(1, 25),
    seed=st.integers(0, 99),
)
def test_a_step_has_the_same_action_in_every_chunk(steps, horizon, seed):
    chunks = np.random.default_rng(seed).normal(size=(len(steps), 10, 7))
    actions, padded = action_labels(list(chunks), steps, horizon=horizon)
    played = np.concatenate([each[:count] for each, count in zip(chunks, steps, strict=True)])
    starts = np.cumsum([0, *steps[:-1]])
    for start, labels, mask in zip(starts, actions, padded, strict=True):
        left = played[start : start + horizon]
        assert np.array_equal(labels[: len(left)], left)
        assert mask.tolist() == [False] * len(left) + [True] * (horizon - len(left))


def test_only_the_current_turn_of_the_expert_is_learnable():
    mask = learnable([False, True, True, False, True], [2, 2, 2, 2, 2], horizon=5)
    assert mask.sum(axis=1).tolist() == [0, 4, 2, 0, 2]
    assert mask[1].tolist() == [True] * 4 + [False]


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
