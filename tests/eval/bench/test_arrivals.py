"""Arrivals on the command line are parsed; invalid ones are refused in one line."""

import pytest

from configs.errors import UsageError
from eval.bench.workloads import parse_arrivals
from oxygen.serving.arrivals import Burst, EveryN, Poisson, RandomLength


@pytest.mark.parametrize(
    ("text", "arrivals"),
    [
        ("every:1", EveryN(1)),
        ("burst:4:8", Burst(n=4, every=8)),
        ("poisson:0.5", Poisson(rate=0.5, seed=7)),
        ("every:2@8-30", RandomLength(arrivals=EveryN(2), min_tokens=8, max_tokens=30, seed=7)),
    ],
)
def test_arrivals_are_parsed(text, arrivals):
    assert parse_arrivals(text) == arrivals


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("evry:1", "every:QUERIES"),
        ("every", "every:QUERIES"),
        ("every:0", "at least 1"),
        ("burst:4", "burst:TEXTS:QUERIES"),
        ("poisson:0", "above 0"),
        ("poisson:1e19", "at most 32768"),
        ("poisson:often", "number"),
        ("every:1@30-8", "max_tokens"),
        ("every:1@8", "@8-30"),
    ],
)
def test_invalid_arrivals_are_refused_with_their_syntax(text, said):
    with pytest.raises(UsageError) as refused:
        parse_arrivals(text)
    assert repr(text) in str(refused.value)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
