"""A query on a device that is told, not timed; how the second process of mode `parallel` fails and ends."""

import dataclasses
import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from contracts.errors import UsageError
from contracts.mode import Mode
from oxygen.model.params import random_params
from oxygen.policy.vector_policy import VectorPolicy, create_vector_policy
from oxygen.robots import tokenizer
from oxygen.robots.transforms import LIBERO, untrained
from oxygen.serving.engine import Engine
from oxygen.serving.engine_config import EngineConfig
from oxygen.serving.language import EVERY_QUERY, Burst, LanguageTask, RandomLength
from oxygen.serving.runner import ProgramSizes
from oxygen.serving.scheduler import Deadline, FixedTokens, Scheduler
from oxygen.serving.text_decoder import LocalTextDecoder, RemoteTextDecoder, SecondProcessError
from oxygen.weights.loading import load
from tests.oxygen.conftest import SMALL, TASKS, answered
from tests.oxygen.serving.fake_runner import DeviceArray, FakeRunner, RunsWhenAsked

NARRATION = LanguageTask(name="narration", prompt="Narrate: ", max_tokens=11)


def policy_of(runner, mode=Mode.UNIFIED, tokens_per_frame=3, tasks=(NARRATION,)):
    return VectorPolicy(
        runner,
        EngineConfig(mode=mode, budget=FixedTokens(tokens_per_frame), slots=6, rows=6),
        tokenizer=tokenizer.tiny(),
        tasks=tasks,
        transform=untrained(LIBERO),
    )


def test_the_caller_has_actions_while_nothing_of_the_language_is_decoded(observe):
    """A wait for any of it would fail: the device never gets there."""
    runner = FakeRunner(decoded=False)
    actions = policy_of(runner).act({0: observe(0)})[0]
    assert actions.shape == (10, 7)
    assert runner.queued == ["prefill", "denoise", "fork", "decode", "decode", "decode"]
    assert runner.read == []


@pytest.mark.parametrize("mode", [Mode.ACTIONS, Mode.UNIFIED])
def test_the_latency_of_actions_is_what_their_caller_waits(observe, mode):
    """All that the host does before they are given is in it: here it takes 20 ms to queue a decode step."""
    policy = policy_of(FakeRunner(queueing=lambda: time.sleep(0.02)), mode)
    for number in range(3):
        asked = time.perf_counter()
        policy.act({0: observe(number)})
        waited_ms = 1e3 * (time.perf_counter() - asked)
        reply = policy.complete()[0]
        assert (60 if mode is Mode.UNIFIED else 0) <= reply.timings_ms["action"] <= waited_ms


def test_interleaved_prefills_follow_the_actions(observe):
    runner = FakeRunner()
    policy = policy_of(runner, Mode.INTERLEAVED)
    policy.act({0: observe(0)})
    assert runner.queued == ["prefill", "denoise"]
    policy.complete()
    assert runner.queued == ["prefill", "denoise", "prefill", "fork", "decode", "decode", "decode"]
    runner.queued.clear()
    answered(policy, observe(1))
    new = ["prefill", "fork", "decode", "decode", "decode"]
    assert runner.queued == ["prefill", "denoise", "decode", "decode", "decode", *new]


@pytest.mark.parametrize("mode", [Mode.ISOLATED, Mode.SHARED])
def test_texts_that_run_to_their_end_are_decoded_in_complete(observe, mode):
    """And are no part of their latency."""
    runner = FakeRunner(queueing=lambda: time.sleep(0.02))
    policy = policy_of(runner, mode)
    policy.act({0: observe(0)})
    assert runner.queued == ["prefill", "denoise"]
    reply = policy.complete()[0]
    assert runner.queued.count("decode") == 11
    assert reply.timings_ms["decode"] >= 11 * 20
    assert [text.tokens for text in reply.finished] == [11]


def test_texts_are_those_of_the_queries_they_were_decoded_in(observe):
    policy = policy_of(FakeRunner(), tokens_per_frame=6)
    replies = [answered(policy, observe(number))[1] for number in range(3)]
    assert [[text.request_id for text in reply.finished] for reply in replies] == [[], [0], [1]]
    np.testing.assert_array_equal([reply.tokens for reply in replies], [6, 11, 11])


class SlowRunner(FakeRunner):
    """Its device takes 20 ms for each decode step, from when the first one is queued."""

    _done_at = 0.0

    def decode(self, slots, pool, texts, *, batch):
        self._done_at = max(self._done_at, time.perf_counter()) + 0.02
        return super().decode(slots, pool, texts, batch=batch)

    def _written(self, count):
        return SlowArray(super()._written(count)._value, until=self._done_at)


class SlowArray(DeviceArray):
    def __init__(self, value, *, until):
        super().__init__(value)
        self._until = until

    def block_until_ready(self):
        time.sleep(max(0.0, self._until - time.perf_counter()))
        return super().block_until_ready()


OTHERS = [mode for mode in Mode if mode not in (Mode.UNIFIED, Mode.PARALLEL)]


@pytest.mark.parametrize(
    "mode", [Mode.UNIFIED, *(pytest.param(mode, marks=pytest.mark.slow) for mode in OTHERS)]
)
def test_no_time_contains_what_the_caller_did_between_act_and_complete(observe, mode):
    """In `unified` the device is done long before the caller comes back, and a thread has seen when."""
    policy, latencies_ms = policy_of(SlowRunner(), mode), []
    for number in range(4):
        policy.act({0: observe(number)})
        time.sleep(1)
        reply = policy.complete()[0]
        running = min(number + 1, 4)  # of 11 tokens each, so a text takes four queries
        steps = {Mode.ACTIONS: 0, Mode.UNIFIED: 3, Mode.INTERLEAVED: 3 * running}.get(mode, 11)
        assert reply.timings_ms["decode"] < 20 * steps + 700
        assert reply.timings_ms["frame"] >= 15 * steps
        assert reply.timings_ms["frame"] == reply.timings_ms["action"] + reply.timings_ms["decode"]
        latencies_ms += [text.latency_ms for text in reply.finished]
    assert mode is Mode.ACTIONS or latencies_ms
    assert all(latency_ms < 11 * 20 + 700 for latency_ms in latencies_ms)


@pytest.mark.parametrize("mode", [Mode.UNIFIED, Mode.SHARED, Mode.ISOLATED])
def test_every_task_has_a_stop_token_of_its_own(observe, mode):
    """In one batch, of texts that all are 2, 3, 4, 5, …"""
    stop = tokenizer.tiny().decode([4])
    tasks = (NARRATION, dataclasses.replace(NARRATION, name="line", stop=stop))
    _, reply = answered(policy_of(FakeRunner(), mode, tokens_per_frame=12, tasks=tasks), observe(0))
    told = {text.task: (text.tokens, text.reason) for text in reply.finished}
    assert told == {"narration": (11, "length"), "line": (3, "stop")}


class WithoutMemory(FakeRunner):
    """A device that has no room for a pool."""

    def empty(self):
        raise MemoryError


def test_a_policy_without_texts_allocates_no_pool(observe):
    for mode, tasks in ((Mode.ACTIONS, (NARRATION,)), (Mode.UNIFIED, ())):
        policy = policy_of(WithoutMemory(), mode, tasks=tasks)
        assert all(answered(policy, observe(number))[1].tokens == 0 for number in range(2))
    with pytest.raises(MemoryError):
        policy_of(WithoutMemory(), Mode.SHARED)


NEVER, NOT_THERE, FOURTH = -1, 99, 5  # the texts are 2, 3, 4, 5, …


def decoded(mode, *, arrivals=EVERY_QUERY, stop_token):
    """An engine step with texts of up to 11 tokens."""
    runner = FakeRunner()
    decoder = LocalTextDecoder(runner)
    task = dataclasses.replace(NARRATION, arrivals=arrivals, suffix=(5, 6), stop_token=stop_token)
    jobs = Scheduler(mode=mode, tasks=[task], slots=6, rows=6).plan(0).jobs
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


ACTION_MS, DEADLINE_MS = 30.0, 100.0


class TimedArray(DeviceArray):
    """What a device writes until a moment; the host's clock runs while it waits for that."""

    def __init__(self, value, device, until_ms):
        super().__init__(value)
        self._device, self._until_ms = device, until_ms

    def block_until_ready(self):
        self._device.now_ms = max(self._device.now_ms, self._until_ms)
        return self


class TimedRunner(FakeRunner):
    """Answers with actions after `ACTION_MS`; then every decode step takes the device `step_ms`."""

    def __init__(self, step_ms):
        self.now_ms = self._busy_until_ms = 0.0
        self.step_ms = step_ms
        super().__init__()

    def clock(self):
        return 1e-3 * self.now_ms

    def denoise(self, prefix, seeds, queries):
        self.now_ms = max(self.now_ms, self._busy_until_ms) + ACTION_MS
        return super().denoise(prefix, seeds, queries)

    def decode(self, slots, pool, texts, *, batch):
        self._busy_until_ms = max(self.now_ms, self._busy_until_ms) + self.step_ms
        return super().decode(slots, pool, texts, batch=batch)

    def _written(self, count):
        tokens = super()._written(count)._value
        return TimedArray(tokens, self, self._busy_until_ms)


def frames(device):
    """Decode steps and time of queries without end, a text of 30 tokens in each; the next follows at once."""
    decoder = LocalTextDecoder(device, clock=device.clock, waiting=RunsWhenAsked())
    task = LanguageTask(name="text", prompt="Say", suffix=(5, 6), max_tokens=30)
    scheduler = Scheduler(mode=Mode.UNIFIED, tasks=[task], slots=6, rows=6)
    engine = Engine(device, [scheduler], decoder, Deadline(DEADLINE_MS), clock=device.clock)
    query = 0
    while True:
        came = device.now_ms
        step = engine.act(device.blank(24), {0: query}, arrived_s=1e-3 * came)
        engine.complete(delivered_s=step.actions_ready_s)
        yield step.decode_steps, device.now_ms - came
        query += 1


def test_a_device_that_becomes_slower_is_given_less_to_do_and_a_quicker_one_more_again():
    device = TimedRunner(step_ms=3.9)
    running = frames(device)
    first, *_, quick = [next(running) for _ in range(30)]
    assert first[0] == 1, "before anything is measured"
    device.step_ms = 11.0
    slow = [next(running) for _ in range(30)][-1]
    device.step_ms = 3.9
    again = [next(running) for _ in range(60)][-1]
    room_ms = 0.9 * DEADLINE_MS - ACTION_MS
    steps, took_ms = zip(quick, slow, again, strict=True)
    assert steps == (room_ms // 3.9, room_ms // 11, room_ms // 3.9)
    assert max(took_ms) <= DEADLINE_MS
    device.step_ms = 2 * DEADLINE_MS
    assert [next(running) for _ in range(30)][-1][0] == 1, "every text ends"


def start(weights):
    return RemoteTextDecoder(SMALL, weights, ProgramSizes(slots=2, rows=(1,), forks=(1,), suffix=1, limit=1))


@pytest.mark.slow
def test_a_checkpoint_that_is_not_there_is_refused_as_in_one_process():
    absent = functools.partial(load, "/no/such/checkpoint", SMALL)
    with pytest.raises(UsageError, match="/no/such/checkpoint"):
        start(absent)


def test_a_process_that_is_gone_is_one_clear_error(tmp_path, monkeypatch):
    script = tmp_path / "script.py"  # of the user, without a guard
    script.write_text("import os; os._exit(9)")
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(script), raising=False)
    with pytest.raises(SecondProcessError, match="the second process exited with code 3; on"):
        start(functools.partial(os._exit, 3))


@pytest.mark.slow
def test_a_process_that_dies_between_two_queries_is_an_error_of_the_next(policy, observe):
    engine = EngineConfig(mode=Mode.PARALLEL, slots=10, rows=8)
    other = policy.with_engine(engine)
    other.reset(7)
    other.act(observe(0))
    assert other.complete().tokens > 0
    process = other._policy._engine._decoder._process
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    for number in (1, 2):
        with pytest.raises(SecondProcessError, match="the second process was killed by SIGKILL"):
            other.act(observe(number))


def test_weights_that_are_arrays_cannot_be_sent():
    engine, weights = EngineConfig(mode=Mode.PARALLEL, slots=2, rows=1), random_params(SMALL, 0)
    with pytest.raises(UsageError, match="give a seed or a function that loads them"):
        create_vector_policy(SMALL, weights=weights, tokenizer=tokenizer.tiny(), tasks=TASKS, engine=engine)


_PARENT = """
import functools, multiprocessing, signal, sys, threading, time
from tests.oxygen.serving.test_engine import start

def main():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    busy = functools.partial(time.sleep, 600)
    threading.Thread(target=start, args=(busy,), daemon=True).start()
    while not multiprocessing.active_children():
        time.sleep(0.01)
    print(multiprocessing.active_children()[0].pid, flush=True)
    time.sleep(600)

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGINT])
def test_no_orphan_is_left_whatever_the_first_process_dies_of(death, tmp_path):
    """Even in the middle of loading weights, where it listens to nobody."""
    program = tmp_path / "parent.py"
    program.write_text(_PARENT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    parent = subprocess.Popen(
        [sys.executable, str(program)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    with parent:
        pid = int(parent.stdout.readline())
        parent.send_signal(death)
    deadline = time.monotonic() + 120
    while runs(pid):
        assert time.monotonic() < deadline, "the second process is still there"
        time.sleep(0.05)


def runs(pid):
    """Whether a process runs; one that is dead and not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
