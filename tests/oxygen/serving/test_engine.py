"""A frame on a device that is told, not timed: what is queued, what is waited for, what is reported."""

import dataclasses
import time

import numpy as np
import pytest

from oxygen.policy.vector_policy import Parts, VectorPolicy
from oxygen.robots import tokenizer
from oxygen.robots.transforms import LIBERO, untrained
from oxygen.serving.budget import FixedTokens
from oxygen.serving.engine_config import EngineConfig
from oxygen.serving.language import LanguageTask
from oxygen.serving.sampling import GREEDY
from oxygen.serving.scheduler import Mode
from oxygen.serving.voice import Suffix
from tests.oxygen.serving.fake_runner import FakeRunner

NARRATION = LanguageTask(name="narration", prompt="Narrate: ", max_tokens=11)


def policy_of(runner, mode=Mode.UNIFIED, tokens_per_frame=3, tasks=(NARRATION,)):
    parts = Parts(
        runner=runner,
        tokenizer=tokenizer.tiny(),
        tasks=tasks,
        suffixes=(Suffix(tokens=(5, 6), sampling=GREEDY),) * len(tasks),
        transform=untrained(LIBERO),
        weights=None,
    )
    return VectorPolicy(parts, EngineConfig(mode=mode, budget=FixedTokens(tokens_per_frame), slots=6, rows=6))


def test_the_caller_has_actions_while_nothing_of_the_language_is_decoded(observe):
    """A wait for any of it would fail: the device never gets there."""
    runner = FakeRunner(decoded=False)
    (answer,) = policy_of(runner).act([observe(0)])
    assert answer.actions.shape == (10, 7)
    assert runner.queued == ["prefill", "denoise", "fork", "decode", "decode", "decode"]
    assert runner.read == []


@pytest.mark.parametrize("mode", [Mode.ACTIONS, Mode.UNIFIED])
def test_the_latency_of_actions_is_what_their_caller_waits(observe, mode):
    """All that the host does before they are given is in it: here it takes 20 ms to queue a decode step."""
    policy = policy_of(FakeRunner(queueing=lambda: time.sleep(0.02)), mode)
    for number in range(3):
        asked = time.perf_counter()
        policy.act([observe(number)])
        waited_ms = 1e3 * (time.perf_counter() - asked)
        (reply,) = policy.settle()
        assert (60 if mode is Mode.UNIFIED else 0) <= reply.timings_ms["action"] <= waited_ms


@pytest.mark.parametrize("mode", [Mode.ISOLATED, Mode.SHARED])
def test_texts_that_run_to_their_end_begin_when_the_actions_are_there(observe, mode):
    """And are no part of their latency."""
    runner = FakeRunner(queueing=lambda: time.sleep(0.02))
    (reply,) = policy_of(runner, mode).infer([observe(0)])
    assert runner.queued.count("decode") == 11
    assert reply.timings_ms["decode"] >= 11 * 20
    assert [text.tokens for text in reply.finished] == [11]


def test_texts_are_those_of_the_frames_they_were_decoded_in(observe):
    policy = policy_of(FakeRunner(), tokens_per_frame=6)
    replies = [policy.infer([observe(number)])[0] for number in range(3)]
    assert [[text.request_id for text in reply.finished] for reply in replies] == [[], [0], [1]]
    np.testing.assert_array_equal([reply.tokens for reply in replies], [6, 11, 11])


@pytest.mark.parametrize("mode", [Mode.UNIFIED, Mode.SHARED, Mode.ISOLATED])
def test_every_task_has_a_stop_token_of_its_own(observe, mode):
    """In one batch, of texts that all are 2, 3, 4, 5, …"""
    stop = tokenizer.tiny().decode([4])
    tasks = (NARRATION, dataclasses.replace(NARRATION, name="line", stop=stop))
    (reply,) = policy_of(FakeRunner(), mode, tokens_per_frame=12, tasks=tasks).infer([observe(0)])
    told = {text.task: (text.tokens, text.reason) for text in reply.finished}
    assert told == {"narration": (11, "length"), "line": (3, "stop")}
