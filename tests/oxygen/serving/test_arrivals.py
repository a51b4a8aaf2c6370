"""Arrivals: what each kind brings, that it is the same every time, and how much room it asks for; budgets."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.errors import UsageError
from oxygen.serving.language import Burst, EveryN, Poisson, RandomLength
from oxygen.serving.scheduler import Deadline, FixedTokens

QUERIES = range(2000)


def counts(arrivals, stream=0, queries=QUERIES):
    return [len(arrivals.due(stream, query)) for query in queries]


def test_every_n_brings_one_at_every_nth_query_and_a_burst_several():
    assert counts(EveryN(3))[:7] == [1, 0, 0, 1, 0, 0, 1]
    assert counts(Burst(n=4, every=3))[:7] == [4, 0, 0, 4, 0, 0, 4]


def test_poisson_has_the_mean_and_the_variance_of_its_rate():
    brought = counts(Poisson(rate=1.5, seed=3))
    mean = sum(brought) / len(brought)
    variance = sum((count - mean) ** 2 for count in brought) / len(brought)
    error = math.sqrt(1.5 / len(brought))
    assert abs(mean - 1.5) < 4 * error
    assert abs(variance - 1.5) < 0.3


def test_chance_is_the_same_every_time_and_another_for_every_robot_and_seed():
    first = counts(Poisson(rate=1.5, seed=3))
    assert counts(Poisson(rate=1.5, seed=3)) == first
    assert counts(Poisson(rate=1.5, seed=4)) != first
    assert counts(Poisson(rate=1.5, seed=3), stream=1) != first


def test_random_lengths_fill_their_range_and_change_nothing_about_when():
    inner = Burst(n=2, every=5)
    arrivals = RandomLength(arrivals=inner, min_tokens=3, max_tokens=6, seed=1)
    limits = [limit for query in QUERIES for limit in arrivals.due(0, query)]
    assert set(limits) == {3, 4, 5, 6}
    assert counts(arrivals) == counts(inner)
    assert arrivals.longest == 6
    assert inner.longest is None


@given(st.builds(EveryN, st.integers(1, 5)) | st.builds(Burst, n=st.integers(1, 4), every=st.integers(1, 5)))
def test_room_is_made_for_exactly_the_most_that_regular_arrivals_bring(arrivals):
    brought = counts(arrivals, queries=range(60))
    for length in (1, 3, 7, 10):
        windows = [sum(brought[start : start + length]) for start in range(40)]
        assert arrivals.within(length) == max(windows)


def test_room_for_poisson_is_rarely_too_little():
    arrivals = Poisson(rate=0.8, seed=5)
    brought = counts(arrivals)
    windows = [sum(brought[start : start + 5]) for start in range(0, len(brought), 5)]
    assert sum(window > arrivals.within(5) for window in windows) / len(windows) < 0.01


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EveryN(0), "n is 0; it must be at least 1"),
        (lambda: Poisson(rate=0.0, seed=1), "Poisson: rate is 0.0"),
        (lambda: FixedTokens(0), "tokens per frame is 0"),
        (lambda: Deadline(0.0), "the deadline is 0.0 ms"),
        (
            lambda: RandomLength(arrivals=EveryN(1), min_tokens=5, max_tokens=4, seed=0),
            "max_tokens is 4; it must be at",
        ),
    ],
)
def test_numbers_that_make_no_sense_are_refused(make, message):
    with pytest.raises(UsageError, match=message):
        make()
