"""Prices are sums that a person can check: actions first, then the decode jobs in order."""

import math
import statistics

import pytest

from configs.errors import UsageError
from configs.load import check
from configs.profile import ProfileConfig
from eval.rollout.clock import LatencyModel, jitter
from oxygen.serving.requests import DecodeWork
from sim_envs.world import EpisodeKey

_PARALLEL = {"action": 2.0, "decode": 3.0, "kind": "measured", "source": "a test"}
_DECODE = {2: 6.0, 4: 7.0, 10: 16.0}


def _time(ms):
    return {"ms": ms, "kind": "measured", "source": "a test"}


def _profile(**changes):
    """Actions after 100 + 20 + 3 ms."""
    words = {"name": "abacus", "device": "an abacus", "dtype": "float32", "model": "tiny", "source": "a test"}
    stages = {"host": 3.0, "prefill": 100.0, "denoise": 20.0, "fork": 5.0}
    content = words | {stage: _time(ms) for stage, ms in stages.items()}
    content["decode"] = {size: _time(ms) for size, ms in _DECODE.items()}
    return check(ProfileConfig, content | changes, source="a test")


def _work(*, prefills=0, forks=1, steps, batch=1):
    return DecodeWork(prefills=prefills, forks=forks, steps=steps, batch=batch)


_TWO_TEXTS = (_work(prefills=1, steps=10), _work(prefills=1, steps=4))
_STACK = {1: _time(0.0), 4: _time(12.0), 10: _time(30.0)}
_THREE_TEXTS = (_work(prefills=1, steps=2), _work(forks=0, steps=2), _work(forks=0, steps=1))
_BESIDE = 3 * (100 + 5 + 10 * 6)
"""The first of two texts in mode `parallel`, beside the actions."""


@pytest.mark.parametrize(
    ("mode", "changes", "work", "actions_ms", "busy_ms"),
    [
        ("actions", {}, (), 123, 123),
        ("isolated", {}, _TWO_TEXTS, 123, 123 + (100 + 5 + 10 * 6) + (100 + 5 + 4 * 6)),
        ("isolated", {"text_prefill": _time(70.0)}, _TWO_TEXTS, 123, 123 + (70 + 5 + 60) + (70 + 5 + 24)),
        ("isolated", {"stack": _STACK}, _TWO_TEXTS, 123, 123 + (100 + 5 + 10 * 6) + (100 + 5 + 4 * 6)),
        ("isolated", {"parallel": _PARALLEL}, (), 123, 123),
        ("shared", {}, [_work(forks=2, steps=10, batch=4)], 123, 123 + 2 * 5 + 10 * 7),
        ("unified", {}, [_work(steps=5, batch=10)], 123, 123 + 5 + 5 * 16),
        ("unified", {}, [_work(forks=0, steps=5, batch=10)], 123, 123 + 5 * 16),
        ("unified", {"stack": _STACK}, [_work(steps=3, batch=4)], 123, 123 + 5 + 12 + 3 * 7),
        ("unified", {"stack": _STACK}, [_work(steps=1, batch=2)], 123, 123 + 5 + 4 + 6),
        ("interleaved", {"text_prefill": _time(70.0)}, _THREE_TEXTS, 123, 123 + 70 + 5 + 5 * 6),
        ("parallel", {"parallel": _PARALLEL}, _TWO_TEXTS, 246, _BESIDE + 3 * (100 + 5 + 4 * 6)),
        ("parallel", {"parallel": _PARALLEL}, [_work(steps=1)], 246, 246),
    ],
)
def test_a_query_costs_host_prefill_and_denoising_then_its_jobs_in_order(
    mode, changes, work, actions_ms, busy_ms
):
    model = LatencyModel(_profile(**changes), mode)
    assert (model.action_ms, model.busy_ms(work)) == (actions_ms, busy_ms)


@pytest.mark.parametrize(
    ("mode", "work", "job", "steps", "expected_ms"),
    [
        ("isolated", _TWO_TEXTS, 1, 3, 123 + (100 + 5 + 10 * 6) + (100 + 5 + 3 * 6)),
        ("unified", [_work(steps=5, batch=10)], 0, 3, 123 + 5 + 3 * 16),
        ("interleaved", _THREE_TEXTS, 1, 1, 123 + 100 + 5 + 2 * 6 + 6),
        ("parallel", _TWO_TEXTS, 1, 2, _BESIDE + 3 * (100 + 5 + 2 * 6)),
    ],
)
def test_a_text_waits_for_the_jobs_before_its_own(mode, work, job, steps, expected_ms):
    model = LatencyModel(_profile(parallel=_PARALLEL), mode)
    assert model.text_ms(work, job=job, steps=steps) == expected_ms


def test_guided_denoising_changes_only_the_action_latency():
    guided = LatencyModel(_profile(guided_denoise=_time(50.0)), "isolated", guided=True)
    plain = LatencyModel(_profile(guided_denoise=_time(50.0)), "isolated")
    assert guided.action_ms == plain.action_ms + 30
    assert guided.busy_ms(_TWO_TEXTS) == plain.busy_ms(_TWO_TEXTS) + 30
    with pytest.raises(UsageError, match=r"'abacus' cannot price overlap rtc: .*--save-profile"):
        LatencyModel(_profile(), "isolated", guided=True)


@pytest.mark.parametrize(
    ("batch", "ms"), [(1, 6.0), (2, 6.0), (3, 6.5), (4, 7.0), (5, 8.5), (10, 16.0), (12, 19.0)]
)
def test_decode_latency_is_piecewise_linear_in_the_batch_size(batch, ms):
    assert LatencyModel(_profile(), "unified").decode_ms(batch) == pytest.approx(ms)


def _key(init_id=0):
    return EpisodeKey(suite="libero_object", task_id=0, init_id=init_id, seed=7)


def test_jitter_is_log_normal_with_median_one_by_episode_and_query():
    profile = _profile(jitter=0.2)
    assert jitter(profile, _key(), 3) == jitter(_profile(jitter=0.2, prefill=_time(1.0)), _key(), 3)
    logs = [math.log(jitter(profile, _key(init_id), query)) for init_id in range(40) for query in range(50)]
    assert len(set(logs)) == 2000
    assert statistics.median(logs) == pytest.approx(0, abs=0.02)
    assert statistics.stdev(logs) == pytest.approx(0.2, rel=0.08)
    assert sum(abs(value) < 0.2 for value in logs) / len(logs) == pytest.approx(0.683, abs=0.04)
