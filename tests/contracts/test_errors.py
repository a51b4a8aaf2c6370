"""Errors name the nearest allowed values first."""

import pytest

from contracts.errors import unknown

OPTIONS = ("--control", "--initial-states", "--task-ids", "--num-trials-per-task", "--num-envs", "--policy")


@pytest.mark.parametrize(
    ("given", "meant"),
    [("--trials", "--num-trials-per-task"), ("--polcy", "--policy"), ("--n-envs", "--num-envs"), ("", None)],
)
def test_the_nearest_name_has_the_given_words_or_else_their_spelling(given, meant):
    error = str(unknown("option", given, OPTIONS))
    assert all(name in error for name in OPTIONS)
    assert meant is None or f"did you mean {meant!r}?" in error
