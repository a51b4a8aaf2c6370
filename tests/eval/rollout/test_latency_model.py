"""Prices are sums that a person can check: actions first, then the decode jobs in order."""

import math
import statistics

import pytest

from configs.errors import UsageError
from configs.load import check
from configs.profile import ProfileConfig
from eval.rollout.latency_model import LatencyModel, jitter
from oxygen.serving.requests import DecodeWork
from sim_envs.world import EpisodeKey

_PARALLEL = {"action": 2.0, "decode": 3.0, "kind": "measured", "source": "a test"}
_DECODE = {2: 6.0, 4: 7.0, 10: 16.0}


def _time(ms):
    return {"ms": ms, "kind": "measured", "source": "a test"}


def _profile(*, decode=_DECODE, **changes):
    """Actions after 100 + 20 + 3 ms."""
    content = {
        "name": "abacus",
        "device": "an abacus",
        "dtype": "float32",
        "model": "tiny",
        "source": "a test",
        "host": _time(3.0),
        "prefill": _time(100.0),
        "denoise": _time(20.0),
        "fork": _time(5.0),
        "decode": {size: _time(ms) for size, ms in decode.items()},
    }
    return check(ProfileConfig, content | changes, source="a test")


def _work(*, prefills=0, forks=1, steps, batch=1):
    return DecodeWork(prefills=prefills, forks=forks, steps=steps, batch=batch)


_TWO_TEXTS = (_work(prefills=1, steps=10), _work(prefills=1, steps=4))


def test_actions_alone_are_host_prefill_and_denoising():
    model = LatencyModel(_profile(), "actions")
    assert model.action_ms == model.busy_ms(()) == 123


def test_guided_actions_take_another_denoising_and_nothing_else_does():
    guided = LatencyModel(_profile(guided_denoise=_time(50.0)), "isolated", guided=True)
    plain = LatencyModel(_profile(guided_denoise=_time(50.0)), "isolated")
    assert guided.action_ms == plain.action_ms + 30
    assert guided.busy_ms(_TWO_TEXTS) == plain.busy_ms(_TWO_TEXTS) + 30
    with pytest.raises(UsageError, match=r"'abacus' cannot price overlap rtc: .*--save-profile"):
        LatencyModel(_profile(), "isolated", guided=True)


def test_isolated_reads_the_prefix_once_more_for_each_text():
    model = LatencyModel(_profile(), "isolated")
    assert model.action_ms == 123
    assert model.busy_ms(_TWO_TEXTS) == 123 + (100 + 5 + 10 * 6) + (100 + 5 + 4 * 6)


def test_a_prefill_of_the_languages_own_may_take_another_time():
    model = LatencyModel(_profile(text_prefill=_time(70.0)), "isolated")
    assert model.busy_ms(_TWO_TEXTS) == 123 + (70 + 5 + 10 * 6) + (70 + 5 + 4 * 6)


def test_shared_forks_and_decodes_all_texts_in_one_batch():
    assert (
        LatencyModel(_profile(), "shared").busy_ms([_work(forks=2, steps=10, batch=4)])
        == 123 + 2 * 5 + 10 * 7
    )


def test_unified_pays_for_the_steps_of_the_query():
    model = LatencyModel(_profile(), "unified")
    assert model.busy_ms([_work(steps=5, batch=10)]) == 123 + 5 + 5 * 16
    assert model.busy_ms([_work(forks=0, steps=5, batch=10)]) == 123 + 5 * 16
    assert model.text_ms([_work(steps=5, batch=10)], job=0, steps=3) == 123 + 5 + 3 * 16


def test_stacking_is_paid_once_per_job_however_many_tokens_it_decodes():
    stack = {1: _time(0.0), 4: _time(12.0), 10: _time(30.0)}
    model = LatencyModel(_profile(stack=stack), "unified")
    assert model.busy_ms([_work(steps=1, batch=4)]) == 123 + 5 + 12 + 7
    assert model.busy_ms([_work(steps=3, batch=4)]) == 123 + 5 + 12 + 3 * 7
    assert model.busy_ms([_work(steps=1, batch=2)]) == 123 + 5 + 4 + 6
    isolated = [LatencyModel(each, "isolated") for each in (_profile(stack=stack), _profile())]
    assert isolated[0].busy_ms(_TWO_TEXTS) == isolated[1].busy_ms(_TWO_TEXTS)


def test_interleaved_pays_for_one_prefill_per_new_text_and_k_steps_of_each_running_one():
    model = LatencyModel(_profile(text_prefill=_time(70.0)), "interleaved")
    work = [_work(prefills=1, steps=2), _work(forks=0, steps=2), _work(forks=0, steps=1)]
    assert model.action_ms == 123
    assert model.busy_ms(work) == 123 + 70 + 5 + 2 * 6 + 2 * 6 + 6
    assert model.text_ms(work, job=1, steps=1) == 123 + 70 + 5 + 2 * 6 + 6


def test_a_text_waits_for_the_jobs_before_its_own_and_not_for_the_rest_of_its_own():
    model = LatencyModel(_profile(), "isolated")
    assert model.text_ms(_TWO_TEXTS, job=1, steps=3) == 123 + (100 + 5 + 10 * 6) + (100 + 5 + 3 * 6)
    assert model.text_ms(_TWO_TEXTS, job=1, steps=4) == model.busy_ms(_TWO_TEXTS)
    assert model.text_ms(_TWO_TEXTS, job=0, steps=10) < model.text_ms(_TWO_TEXTS, job=1, steps=1)


def test_in_parallel_the_jobs_run_beside_the_actions_and_both_take_longer():
    model = LatencyModel(_profile(parallel=_PARALLEL), "parallel")
    assert model.action_ms == 2 * 123
    first, second = 3 * (100 + 5 + 10 * 6), 3 * (100 + 5 + 4 * 6)
    assert model.busy_ms(_TWO_TEXTS) == first + second
    assert model.text_ms(_TWO_TEXTS, job=1, steps=2) == first + 3 * (100 + 5 + 2 * 6)
    assert model.busy_ms([_work(steps=1)]) == 2 * 123, "the actions take longer than the language"
    assert model.busy_ms(()) == 2 * 123


def test_other_modes_do_not_pay_for_parallel():
    assert LatencyModel(_profile(parallel=_PARALLEL), "isolated").busy_ms(()) == 123


def test_a_mode_that_a_profile_cannot_price_is_refused():
    with pytest.raises(UsageError) as caught:
        LatencyModel(_profile(), "parallel")
    for word in ("'abacus'", "mode parallel", "actions, isolated, interleaved, shared, unified"):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("batch", "ms"), [(1, 6.0), (2, 6.0), (3, 6.5), (4, 7.0), (5, 8.5), (10, 16.0), (12, 19.0)]
)
def test_decode_steps_are_linear_between_the_sizes_and_beyond_the_largest(batch, ms):
    assert LatencyModel(_profile(), "unified").decode_ms(batch) == pytest.approx(ms)


def test_one_size_is_the_time_of_every_batch():
    model = LatencyModel(_profile(decode={4: 7.0}), "unified")
    assert {model.decode_ms(batch) for batch in (1, 4, 30)} == {7.0}


def test_sizes_beyond_the_largest_are_never_faster_however_noisy_the_largest_were():
    model = LatencyModel(_profile(decode={1: 6.0, 2: 5.0}), "unified")
    assert model.decode_ms(30) == 5.0


def _key(init_id=0):
    return EpisodeKey(suite="libero_object", task_id=0, init_id=init_id, seed=7)


def test_without_jitter_the_factor_is_one():
    assert jitter(_profile(), _key(), 0) == 1.0


def test_jitter_is_a_function_of_the_episode_and_the_query():
    profile = _profile(jitter=0.2)
    assert jitter(profile, _key(), 3) == jitter(_profile(jitter=0.2, prefill=_time(1.0)), _key(), 3)
    factors = {jitter(profile, _key(init_id), query) for init_id in range(20) for query in range(20)}
    assert len(factors) == 400


def test_jitter_is_log_normal_of_median_one():
    logs = [
        math.log(jitter(_profile(jitter=0.2), _key(init_id), query))
        for init_id in range(40)
        for query in range(50)
    ]
    assert statistics.median(logs) == pytest.approx(0, abs=0.02)
    assert statistics.stdev(logs) == pytest.approx(0.2, rel=0.08)
    assert sum(abs(value) < 0.2 for value in logs) / len(logs) == pytest.approx(0.683, abs=0.04)
