"""Texts that run to their end, on a device that is told: what is read back of them, and when."""

import pytest

from oxygen.serving.arrivals import EVERY_QUERY, Burst, RandomLength
from oxygen.serving.language import LanguageTask
from oxygen.serving.scheduler import Mode, Scheduler
from oxygen.serving.text_decoder import LocalTextDecoder
from tests.oxygen.serving.fake_runner import FakeRunner

NEVER, NOT_THERE, FOURTH = -1, 99, 5  # the texts are 2, 3, 4, 5, …


def decoded(mode, *, arrivals=EVERY_QUERY, stop_token):
    """An engine step with texts of up to 11 tokens."""
    runner = FakeRunner()
    decoder = LocalTextDecoder(runner)
    task = LanguageTask(
        name="text", prompt="Say", arrivals=arrivals, suffix=(5, 6), max_tokens=11, stop_token=stop_token
    )
    jobs = Scheduler(mode=mode, tasks=[task], slots=6, rows=6).plan({0: 0}).jobs
    inputs = runner.blank(24)
    decoder.begin(inputs, jobs, runner.prefill(inputs), 0)
    result = decoder.finish()
    return runner, list(dict.fromkeys(runner.read)), result


@pytest.mark.parametrize("mode", [Mode.ISOLATED, Mode.SHARED])
def test_a_text_that_nothing_ends_early_is_read_back_at_its_first_token_and_at_its_end(mode):
    """As (tokens written, steps queued by then): the first is read behind the second."""
    _, read, result = decoded(mode, stop_token=NEVER)
    assert read == [(1, 2), (11, 11)]
    _, watched, same = decoded(mode, stop_token=NOT_THERE)
    assert watched == [(step, step + 1) for step in range(1, 11)] + [(11, 11)]
    assert result.tokens == same.tokens
    assert result.first_token_s.keys() == same.first_token_s.keys()
    assert result.finished_s.keys() == same.finished_s.keys()


def test_texts_of_unequal_lengths_are_read_back_where_one_of_them_ends():
    arrivals = RandomLength(arrivals=Burst(n=3, every=1), min_tokens=2, max_tokens=9, seed=1)
    limits = sorted(set(arrivals.due(0, 0)))
    assert len(limits) > 1
    _, read, result = decoded(Mode.SHARED, arrivals=arrivals, stop_token=NEVER)
    assert [step for step, _ in read] == [1, *limits]
    assert len(set(result.finished_s.values())) == len(limits)


def test_a_text_that_has_ended_is_decoded_no_further_than_it_was_queued():
    runner, _, result = decoded(Mode.SHARED, stop_token=FOURTH)
    assert runner.queued.count("decode") == 5
    assert result.tokens == {0: [2, 3, 4, 5, 6]}
