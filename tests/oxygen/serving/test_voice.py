"""Texts that run to their end, on a device that is told: what is read back of them, and when."""

import pytest

from oxygen.serving.arrivals import EVERY_QUERY, Burst, RandomLength
from oxygen.serving.sampling import GREEDY
from oxygen.serving.scheduler import Limits, Mode, Scheduler, Wanted
from oxygen.serving.voice import LocalVoice, Suffix, Turn
from tests.oxygen.serving.fake_runner import FakeRunner

NEVER, NOT_THERE, FOURTH = -1, 99, 5  # the texts are 2, 3, 4, 5, …


def spoken(mode, *, arrivals=EVERY_QUERY, stop_token):
    """A turn of texts that may have 11 tokens."""
    runner = FakeRunner()
    voice = LocalVoice(runner, [Suffix(tokens=(5, 6), sampling=GREEDY)])
    wanted = Wanted(arrivals=arrivals, max_tokens=11, priority=0, stop_token=stop_token)
    scheduler = Scheduler(mode=mode, wanted=[wanted], limits=Limits(slots=6, rows=6))
    seen = runner.blank(24)
    turn = Turn(seen=seen, seeds=[7], plan=scheduler.plan({0: 0}))
    prefix = runner.prefill(seen)
    voice.begin(turn, prefix, 0)
    voice.finish(turn, prefix)
    read = list(runner.read)
    return runner, read, voice.heard()


@pytest.mark.parametrize("mode", [Mode.ISOLATED, Mode.SHARED])
def test_a_text_that_nothing_ends_early_is_read_back_at_its_first_token_and_at_its_end(mode):
    """As (tokens written, steps queued by then): the first is read behind the second."""
    _, read, heard = spoken(mode, stop_token=NEVER)
    assert read == [(1, 2), (11, 11)]
    _, watched, same = spoken(mode, stop_token=NOT_THERE)
    assert watched == [(step, step + 1) for step in range(1, 11)] + [(11, 11)]
    assert heard.written == same.written
    assert heard.first_at.keys() == same.first_at.keys()
    assert heard.ended_at.keys() == same.ended_at.keys()


def test_texts_of_unequal_lengths_are_read_back_where_one_of_them_ends():
    arrivals = RandomLength(arrivals=Burst(n=3, every=1), least=2, most=9, seed=1)
    limits = sorted(set(arrivals.due(0, 0)))
    assert len(limits) > 1
    _, read, heard = spoken(Mode.SHARED, arrivals=arrivals, stop_token=NEVER)
    assert [step for step, _ in read] == [1, *limits]
    assert len(set(heard.ended_at.values())) == len(limits)


def test_a_text_that_has_ended_is_decoded_no_further_than_it_was_queued():
    runner, _, heard = spoken(Mode.SHARED, stop_token=FOURTH)
    assert runner.queued.count("decode") == 5
    assert heard.written == {0: [2, 3, 4, 5, 6]}
