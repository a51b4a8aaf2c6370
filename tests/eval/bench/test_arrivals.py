"""Arrivals on the command line: read into objects, never evaluated; what makes no sense is one line."""

import pytest

from configs.errors import UsageError
from eval.bench.workloads import parse_arrivals
from oxygen.serving.arrivals import Burst, EveryN, Poisson, RandomLength


@pytest.mark.parametrize(
    ("text", "arrivals"),
    [
        ("every:1", EveryN(1)),
        ("every:4", EveryN(4)),
        ("burst:4:8", Burst(n=4, every=8)),
        ("poisson:0.5", Poisson(rate=0.5, seed=7)),
        ("every:2@8-30", RandomLength(arrivals=EveryN(2), min_tokens=8, max_tokens=30, seed=7)),
        (
            "poisson:2@3-3",
            RandomLength(arrivals=Poisson(rate=2.0, seed=7), min_tokens=3, max_tokens=3, seed=7),
        ),
    ],
)
def test_arrivals_are_parsed(text, arrivals):
    assert parse_arrivals(text) == arrivals


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("evry:1", "every:QUERIES"),
        ("", "every:QUERIES"),
        ("every", "every:QUERIES"),
        ("every:1:2", "every:QUERIES"),
        ("every:0", "at least 1"),
        ("every:1.5", "number"),
        ("burst:4", "burst:TEXTS:QUERIES"),
        ("burst:-1:8", "at least 1"),
        ("poisson:0", "above 0"),
        ("poisson:nan", "above 0"),
        ("poisson:1e19", "at most 32768"),
        ("burst:65537:1", "at most 65536"),
        ("poisson:often", "number"),
        ("every:1@", "@8-30"),
        ("every:1@30-8", "max_tokens"),
        ("every:1@8", "@8-30"),
        ("every:__import__('os').getpid()", "number"),
    ],
)
def test_invalid_arrivals_are_refused_with_their_syntax(text, said):
    with pytest.raises(UsageError) as refused:
        parse_arrivals(text)
    assert repr(text) in str(refused.value)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
