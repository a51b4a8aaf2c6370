"""Smoothness has its known value, free of size and duration; jumps and toggles are those executed."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.episode import MotionQuality
from contracts.query import ActionSpan, QueryRecord
from eval.metrics.motion_quality import (
    EpisodeMotion,
    chunk_jump_ratio,
    gripper_toggles,
    log_dimensionless_jerk,
    motion_differences,
    path_length,
    summarize_motion,
)
from sim_envs.fake import FakeSuite
from tests.eval.factory import episode, key

ACTION = FakeSuite().interface.action
SIZES = st.floats(0.01, 100)


def minimum_jerk(steps: int, metres: float = 1.0) -> np.ndarray:
    at = np.linspace(0, 1, steps + 1)
    return metres * np.outer(10 * at**3 - 15 * at**4 + 6 * at**5, np.array([2, -1, 2]) / 3)


@given(SIZES)
def test_a_minimum_jerk_movement_has_the_published_value_at_every_size(metres):
    path = minimum_jerk(400, metres)
    assert log_dimensionless_jerk(path) == pytest.approx(math.log(720), abs=0.05)
    assert path_length(path) == pytest.approx(metres)


def test_chunk_jumps_exclude_the_gripper_and_holding_still():
    actions = np.arange(8.0)[:, None] * np.full(7, 0.01)
    actions[4:, 0] += 0.1
    actions[2:, 6] = 1
    inside = 0.01 * math.sqrt(6)
    expected = math.hypot(0.11, 0.01 * math.sqrt(5)) / inside
    assert chunk_jump_ratio(actions, np.arange(8) // 4, ACTION) == pytest.approx(expected)
    assert gripper_toggles(actions, ACTION) == 1
    held = np.zeros((6, 7))
    held[3:, 0] = [0.2, 0.3, 0.4]
    assert chunk_jump_ratio(held, np.array([-1, -1, -1, 0, 0, 0]), ACTION) == pytest.approx(2)
    motion = EpisodeMotion(ACTION)
    motion.add(QueryRecord(executed=[*held], spans=[ActionSpan(None, 0, 3), ActionSpan(0, 0, 3)]))
    assert motion.quality().chunk_jump_ratio == pytest.approx(2)


def test_chunk_jumps_are_of_what_is_executed_within_the_limits():
    actions = np.zeros((6, 7))
    actions[:, 0] = [0, 0.5, 1, 5, 5, 5]
    chunks = np.arange(6) // 3
    assert chunk_jump_ratio(actions, chunks, ACTION) == 0
    unlimited = dataclasses.replace(ACTION, limits=None)
    assert chunk_jump_ratio(actions, chunks, unlimited) == pytest.approx(4 / 0.25)


def test_jerk_counts_the_steps_of_a_short_path():
    path = np.array([0.0, 0, 0, 1])[:, None] * [0, 1, 0]  # whose only third difference is 1
    assert log_dimensionless_jerk(path) == pytest.approx(5 * math.log(3))


def test_steps_whose_arm_is_beyond_the_limits_count_as_clipped():
    actions = np.zeros((4, 7))
    actions[0, 5], actions[1, 0], actions[2, 6] = 1.01, -3, 7  # the last of the gripper
    actions[3, 1:3] = 1, -1
    motion, joints = EpisodeMotion(ACTION), EpisodeMotion(dataclasses.replace(ACTION, limits=None))
    for each in (motion, joints):
        each.add(QueryRecord(executed=[*actions], spans=[ActionSpan(0, 0, 4)]))
    assert (motion.clipped_steps(), joints.clipped_steps()) == (2, 0)
    assert EpisodeMotion(ACTION).clipped_steps() == 0


def moving(chunk, steps, path):
    spans = [ActionSpan(chunk, 0, steps)]
    return QueryRecord(executed=[*np.zeros((steps, 7))], spans=spans, end_effector=list(path))


def test_paths_of_queries_are_joined_and_unknown_motion_is_absent():
    motion, path = EpisodeMotion(ACTION), minimum_jerk(20)
    for first in (0, 10):
        motion.add(moving(first, 10, path[first : first + 11]))
    found = motion.quality()
    assert found.log_dimensionless_jerk == log_dimensionless_jerk(path)
    assert found.path_length_m == pytest.approx(1)
    assert (found.chunk_jump_ratio, found.gripper_toggles) == (None, 0)
    unknown = EpisodeMotion(ACTION)
    assert unknown.quality() == MotionQuality()
    unknown.add(moving(0, 3, []))
    assert unknown.quality() == MotionQuality(gripper_toggles=0)


def moved(jerk: float | None, outcome: str = "success"):
    motion = MotionQuality(log_dimensionless_jerk=jerk, gripper_toggles=2)
    return episode(key(0), outcome, motion=motion)


def test_motion_is_compared_in_pairs_that_both_solved_and_that_both_measured():
    pairs = [
        (moved(10.0), moved(11.0)),
        (moved(12.0), moved(14.0)),
        (moved(10.0), moved(30.0, "timeout")),
        (moved(None), moved(9.0)),
    ]
    found = motion_differences(pairs)
    assert set(found) == {"log_dimensionless_jerk", "gripper_toggles"}
    jerk = found["log_dimensionless_jerk"]
    assert (jerk.a, jerk.b, jerk.difference, jerk.n_pairs) == pytest.approx((11, 12.5, 1.5, 2))
    assert found["gripper_toggles"].n_pairs == 3
    summary = summarize_motion([b for _, b in pairs])
    assert summary["log_dimensionless_jerk"].mean == pytest.approx(34 / 3)
    assert summary["log_dimensionless_jerk"].n == 3
    assert summarize_motion([episode(key(0))]) == {}
