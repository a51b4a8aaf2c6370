"""The published code and ours are timed in turns, and what is measured so far can be kept."""

import copy

from benchmarks.oxygen_reference.__main__ import in_turns
from eval.bench.workloads import BenchConfiguration, Workload
from oxygen.serving.scheduler import Mode

ISOLATED = BenchConfiguration(mode=Mode.ISOLATED)


def timer(name, ms, log):
    """Frames of a fixed length, after a first one that is longer."""

    def frames_ms(count):
        log.append((name, count))
        return [1000.0, *[ms] * (count - 1)]

    return frames_ms


def test_turns_alternate_and_every_repetition_can_be_kept():
    log = []
    published, ours = ("published", ISOLATED), ("ours", ISOLATED)
    timers = {which: timer(which[0], ms, log) for which, ms in ((published, 8.0), (ours, 4.0))}
    workload = Workload(denoise_steps=1, text_tokens=6, repetitions=2, queries=3)
    kept = [copy.deepcopy(each) for each in in_turns(timers, {ISOLATED: 5}, workload)]
    assert kept == [{published: [8.0], ours: [4.0]}, {published: [8.0] * 2, ours: [4.0] * 2}]
    filling, first, second = log[:2], log[2:4], log[4:]
    assert filling == [("published", 5), ("ours", 5)]
    assert first == second[::-1]
    assert {count for _, count in first} == {4}
