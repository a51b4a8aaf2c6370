"""Arrivals, the texts that run at once, and the shapes that a configuration is served with."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.errors import UsageError
from eval.bench.serving import Bench, sizes_of
from eval.bench.workloads import BenchConfiguration, max_queries_per_text, parse_arrivals, running_texts
from oxygen.serving.language import Burst, EveryN, Poisson, RandomLength
from oxygen.serving.runner import ProgramSizes
from oxygen.serving.scheduler import Mode
from tests.eval.bench.conftest import MODEL, workload


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
        *((text, "every:QUERIES") for text in ("evry:1", "every", "burst:4", "poisson:often", "every:1@8")),
        ("every:0", "at least 1"),
        ("poisson:0", "above 0"),
        ("poisson:1e19", "at most 32768"),
        ("every:1@30-8", "max_tokens"),
    ],
)
def test_invalid_arrivals_are_refused_with_their_syntax(text, said):
    with pytest.raises(UsageError, match=said) as refused:
        parse_arrivals(text)
    assert repr(text) in str(refused.value)


@given(
    arrivals=st.sampled_from(["every:1", "every:3", "burst:4:8", "poisson:0.7", "poisson:1.2@2-17"]),
    robots=st.integers(1, 3),
    k=st.integers(1, 17),
)
def test_the_texts_at_once_are_those_of_a_count_query_by_query(arrivals, robots, k):
    asked, queries = workload(arrivals, text_tokens=17, robots=robots), 40
    left, most = [], 0
    for query in range(queries):
        left += [tokens for robot in range(robots) for tokens in asked.lengths(robot, query)]
        most = max(most, len(left))
        left = [tokens - k for tokens in left if tokens > k]
    assert running_texts(asked, k, queries) == most


def test_with_few_rows_a_text_may_wait_for_those_in_all_other_slots():
    """A text has a row for six frames; the five others, two at a time, take at most fifteen before it."""
    unified = BenchConfiguration(mode=Mode.UNIFIED, tokens_per_frame=1)
    assert max_queries_per_text(workload(text_tokens=6, slots=6, rows=2), unified) == 6 + 15
    assert max_queries_per_text(workload(text_tokens=6), unified) == 6


def sizes(asked, mode, k=None) -> ProgramSizes:
    return sizes_of(asked, BenchConfiguration(mode=Mode(mode), tokens_per_frame=k))


@pytest.mark.parametrize(
    ("asked", "mode", "k", "slots", "rows", "forks"),
    [
        *(({}, "unified", k, texts, (texts,), 1) for k, texts in ((1, 30), (2, 15), (5, 6), (30, 1))),
        *(({}, mode, None, 1, (1,), 1) for mode in ("actions", "isolated", "shared", "parallel")),
        ({}, "interleaved", 12, 3, (1,), 1),
        ({"slots": 8}, "unified", 1, 8, (8,), 1),
        ({"slots": 8, "rows": 4}, "unified", 1, 8, (4,), 1),
        ({"slots": 4, "rows": 8}, "unified", 1, 4, (4,), 1),
        ({"rows": 99}, "unified", 1, 30, (30,), 1),
        ({"rows": 4}, "unified", 1, 30, (4,), 1),
        # Texts requested together have a slot each, even if they are decoded one by one.
        ({"arrivals": "burst:4:8", "robots": 2}, "isolated", None, 8, (2,), 2),
        ({"arrivals": "burst:4:8", "robots": 2}, "shared", None, 8, (2, 8), 8),
        ({"arrivals": "burst:4:8", "robots": 2}, "actions", None, 2, (2,), 2),
        ({"arrivals": "burst:4:8", "robots": 2, "slots": 3, "rows": 1}, "shared", None, 3, (1,), 3),
    ],
)
def test_a_configuration_has_the_slots_rows_and_forks_that_it_can_fill(asked, mode, k, slots, rows, forks):
    size = sizes(workload(**asked), mode, k)
    assert (size.slots, size.rows, size.forks) == (slots, rows, (forks,))


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_soon")
def test_pools_of_several_sizes_share_prefill_and_denoise():
    bench = Bench(MODEL)
    small = sizes(workload(text_tokens=4), "unified", 4)
    large = dataclasses.replace(small, slots=3, rows=(3,))
    runners = bench.runners(1, [small, large])
    one, other = (runners[size].programs for size in (small, large))
    assert one.prefill is other.prefill
    assert one.denoise is other.denoise
    assert one.fork is not other.fork
    assert bench.runners(1, [large])[large] is runners[large], "kept for the next workload"


BURST = {
    ("actions", None): [],
    ("isolated", None): [(1, 6, 1)] * 2,
    ("interleaved", 2): [(1, 2, 1)] * 2,
    ("shared", None): [(0, 6, 2)],
    ("unified", 2): [(0, 2, 4)],
}
"""Prefills, decode steps and batch of each job, where two texts of six tokens are requested at once."""


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_soon")
def test_a_query_reports_the_programs_that_it_runs_and_drops_no_text():
    """Predictions are sums of their times."""
    burst = workload("burst:2:2", text_tokens=6, queries=4, repetitions=1, warm_up_queries=0)
    asked = [BenchConfiguration(mode=Mode(mode), tokens_per_frame=k) for mode, k in BURST]
    with Bench(MODEL).prepare(burst, asked) as runners:
        for runner, jobs in zip(runners, BURST.values(), strict=True):
            first, *_ = run = runner.run(4)
            assert [(job.prefills, job.steps, job.batch) for job in first.work] == jobs
            assert sum(query.dropped for query in run) == 0
            if runner.configuration.mode is Mode.ISOLATED:
                assert [len(query.request_ms) for query in run] == [2, 0, 2, 0]
