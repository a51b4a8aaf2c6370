"""The programs that a workload should run in each mode."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.bench import workloads as schedule
from eval.bench.workloads import BenchConfiguration, QueryPrograms, Workload, programs_by_query
from oxygen.serving.scheduler import Mode
from tests.eval.bench.conftest import workload


def configuration(mode, k=None):
    return BenchConfiguration(mode=Mode(mode), tokens_per_frame=k)


class Ending(Workload):
    """Texts are requested in the first sixty queries."""

    def lengths(self, robot, query):
        return super().lengths(robot, query) if query < 60 else []


def test_actions_run_no_language_shared_no_second_prefill_and_isolated_one_for_every_text():
    (alone,) = programs_by_query(workload(), configuration("actions"), 1)
    assert alone == QueryPrograms(prefills=1, decode_steps=0, texts=0)
    (shared,) = programs_by_query(workload("burst:3:1"), configuration("shared"), 1)
    assert shared == QueryPrograms(prefills=1, decode_steps=30, texts=3)
    (isolated,) = programs_by_query(workload("burst:3:1", robots=2), configuration("isolated"), 1)
    assert isolated == QueryPrograms(prefills=4, decode_steps=90, texts=2), "robots are side by side"


def test_interleaved_prefills_for_new_texts_and_decodes_k_tokens_of_each_running_one():
    queries = programs_by_query(workload(), configuration("interleaved", 12), 4)
    assert queries == [
        QueryPrograms(prefills=2, decode_steps=12, texts=1),
        QueryPrograms(prefills=2, decode_steps=24, texts=2),
        QueryPrograms(prefills=2, decode_steps=12 + 12 + 6, texts=3),
        QueryPrograms(prefills=2, decode_steps=12 + 12 + 6, texts=3),
    ]
    of_two = programs_by_query(workload(robots=2), configuration("interleaved", 12), 3)[-1]
    assert of_two == QueryPrograms(prefills=2, decode_steps=12 + 12 + 6, texts=6)


@settings(max_examples=40)
@given(
    arrivals=st.sampled_from(["every:1", "every:3", "burst:4:8", "poisson:0.7", "poisson:1.2@2-17"]),
    robots=st.integers(1, 3),
    k=st.integers(1, 17),
)
def test_every_mode_decodes_every_requested_token(arrivals, robots, k):
    """Requests stop after some queries, so that `unified` finishes all texts, in ceil(length / k) frames.

    `isolated` is checked with one robot, since robots share its steps.
    """
    queries = 60
    asked = Ending(denoise_steps=10, text_tokens=17, robots=robots, arrivals=arrivals)
    lengths = [asked.lengths(robot, query) for robot in range(robots) for query in range(queries)]
    texts = [length for by_query in lengths for length in by_query]
    unified = programs_by_query(asked, configuration("unified", k), queries + 17)
    longest = max(texts, default=0)
    assert all(query.decode_steps <= k for query in unified)
    assert sum(query.texts for query in unified) == sum(-(-length // k) for length in texts)
    assert unified[-1] == QueryPrograms(prefills=1, decode_steps=0, texts=0)
    if robots == 1:
        interleaved = programs_by_query(asked, configuration("interleaved", k), queries + 17)
        assert sum(query.decode_steps for query in interleaved) == sum(texts)
        assert sum(query.prefills for query in interleaved) == queries + 17 + len(texts)
        isolated = programs_by_query(asked, configuration("isolated"), queries)
        assert sum(query.decode_steps for query in isolated) == sum(texts)
        assert sum(query.prefills for query in isolated) == queries + len(texts)
    assert schedule.max_queries_per_text(asked, configuration("unified", k)) >= -(-longest // k)
    assert schedule.max_new_requests(asked, queries) <= len(texts)


@pytest.mark.parametrize(
    ("arrivals", "room", "mode", "k", "predictable"),
    [
        ("every:1", {"slots": 30, "rows": 30}, "unified", 1, True),
        ("every:1", {"slots": 29}, "unified", 1, False),
        ("every:1", {"slots": 30, "rows": 29}, "unified", 1, False),
        ("every:1", {"slots": 1, "rows": 1}, "isolated", None, True),
        ("every:1", {"slots": 3, "rows": 1}, "interleaved", 10, True),
        ("every:1", {"slots": 2}, "interleaved", 10, False),
        ("every:1", {"slots": 1, "rows": 1}, "actions", None, True),
        ("burst:4:8", {"slots": 3}, "isolated", None, False),
        ("burst:4:8", {"slots": 4, "rows": 1}, "isolated", None, True),
        ("burst:4:8", {"slots": 4, "rows": 3}, "shared", None, False),
    ],
)
def test_programs_are_predictable_if_every_text_finds_a_slot_and_a_row(arrivals, room, mode, k, predictable):
    assert schedule.is_predictable(workload(arrivals, **room), configuration(mode, k), 100) == predictable
    by_deadline = BenchConfiguration(mode=Mode.UNIFIED, deadline_ms=1e6)
    assert not schedule.is_predictable(workload(arrivals, **room), by_deadline, 100)


def test_with_few_rows_a_text_may_wait_for_those_in_all_other_slots():
    """A text has a row for six frames; the five others, two at a time, take at most fifteen before it."""
    few = workload(text_tokens=6, slots=6, rows=2)
    assert schedule.max_queries_per_text(few, configuration("unified", 1)) == 6 + 15
    assert schedule.max_queries_per_text(workload(text_tokens=6), configuration("unified", 1)) == 6
    assert schedule.max_queries_per_text(few, configuration("shared")) == 1
