"""What a frame's action chunk is: what was meant, step by step, at the states that were reached."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.collect.labels import stitched, taught


def chunk(query: int) -> np.ndarray:
    """Row `j` holds 100 · query + j in every dimension."""
    return np.full((10, 7), 100.0 * query) + np.arange(10)[:, None]


def meant(query: int, *rows: int) -> list[float]:
    return [100.0 * query + row for row in rows]


def test_what_was_replanned_replaces_what_had_been_planned():
    actions, padded = stitched([chunk(0), chunk(1), chunk(2)], [5, 5, 5], horizon=10)
    assert actions[0, :, 0].tolist() == meant(0, *range(5)) + meant(1, *range(5))
    assert actions[1, :, 0].tolist() == meant(1, *range(5)) + meant(2, *range(5))
    assert not padded[:2].any()


def test_beyond_the_end_the_robot_holds_still_and_the_mask_says_so():
    actions, padded = stitched([chunk(0), chunk(1)], [5, 3], horizon=10)
    assert padded.sum(axis=1).tolist() == [2, 7]
    assert actions[1, :3, 0].tolist() == meant(1, 0, 1, 2)
    assert (actions[padded][:, :6] == 0).all()
    assert (actions[padded][:, 6] == 102).all()  # the gripper stays as it was told last


@pytest.mark.parametrize("replan", [1, 2, 10])
def test_the_first_steps_are_what_was_meant_at_the_frame_itself(replan):
    actions, _ = stitched([chunk(query) for query in range(6)], [replan] * 6, horizon=10)
    for query in range(6):
        assert actions[query, :replan].tolist() == chunk(query)[:replan].tolist()


@given(
    steps=st.lists(st.integers(1, 10), min_size=1, max_size=8),
    horizon=st.integers(1, 25),
    seed=st.integers(0, 99),
)
def test_every_step_of_the_episode_is_the_same_action_in_every_chunk_it_is_in(steps, horizon, seed):
    chunks = np.random.default_rng(seed).normal(size=(len(steps), 10, 7))
    actions, padded = stitched(list(chunks), steps, horizon=horizon)
    played = np.concatenate([each[:count] for each, count in zip(chunks, steps, strict=True)])
    starts = np.cumsum([0, *steps[:-1]])
    for start, labels, mask in zip(starts, actions, padded, strict=True):
        left = played[start : start + horizon]
        assert np.array_equal(labels[: len(left)], left)
        assert mask.tolist() == [False] * len(left) + [True] * (horizon - len(left))


def test_of_two_who_take_turns_only_the_teachers_own_turn_is_taught():
    mask = taught([False, True, True, False, True], [2, 2, 2, 2, 2], horizon=5)
    assert mask.sum(axis=1).tolist() == [0, 4, 2, 0, 2]
    assert mask[1].tolist() == [True] * 4 + [False]


@given(
    turns=st.lists(st.tuples(st.booleans(), st.integers(1, 5)), min_size=1, max_size=12),
    horizon=st.integers(1, 12),
)
def test_what_is_taught_is_what_was_meant_without_a_break(turns, horizon):
    teaching, steps = [list(part) for part in zip(*turns, strict=True)]
    whose = np.repeat(teaching, steps)
    starts = np.cumsum([0, *steps[:-1]])
    for start, mask in zip(starts, taught(teaching, steps, horizon=horizon), strict=True):
        assert mask.tolist() == [
            bool(start + j < len(whose) and whose[start : start + j + 1].all()) for j in range(horizon)
        ]
