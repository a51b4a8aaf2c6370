"""Pricing: what a query is charged, and that runs under a profile are the same, resumed or not."""

import dataclasses
import math
import statistics
from typing import get_args

import numpy as np
import pytest
import yaml

from configs.errors import check
from configs.paths import read_json_object
from configs.profile import ProfileConfig
from configs.schema import OverlapRule, RunConfig
from contracts.clock import Profile, Replay
from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from contracts.latency import Latency
from contracts.mode import Mode
from contracts.text import DecodeWork
from eval.records.run_folders import find_unfinished, new_run
from eval.rollout import episode
from eval.rollout.executors.executor import SERIAL, Processes
from eval.rollout.pricing import (
    UNCHARGED,
    DelayEstimator,
    LatencyModel,
    TimedQuery,
    UnknownLatencyError,
    jitter,
    open_pricing,
)
from sim_envs.fake import FakeSuite
from tests.eval.conftest import CONFIG, changed, evaluate, play, play_until_ctrl_c
from tests.eval.doubles import reply
from tests.eval.doubles import text_finished as text
from tests.eval.rollout.scaled import records, suite_file

KEY = EpisodeKey(suite="libero_object", task_id=0, init_id=0, seed=7)


def clock(name: str, **config):
    return open_pricing(changed(RunConfig(), clock=name, **config), [KEY])


def call(**changes) -> TimedQuery:
    return TimedQuery(**{"key": KEY, "index": 0, "act_ms": 40.0, **changes})


@pytest.mark.parametrize(
    ("name", "expected"), [("paused", (0, 0)), ("fixed:130", (130, 130)), ("fixed:80,500.5", (80, 500.5))]
)
def test_fixed_delivers_texts_when_the_policy_is_free_and_paused_at_once(name, expected):
    latency = clock(name).latency(call(reply=reply(finished=(text(0), text(1))), complete_ms=9.0))
    assert (latency.actions_ms, latency.busy_ms) == expected
    assert list(latency.texts_ms) == [expected[1]] * 2
    assert (clock(name) == UNCHARGED) == (name == "paused")


def test_measured_charges_policy_time_alone():
    known = clock("measured").latency(call())
    assert known.actions_ms == known.busy_ms == 40
    said = reply(timings_ms={"decode": 25.0, "advance": 9e9}, finished=(text(0, after_ms=55.0),))
    latency = clock("measured").latency(call(reply=said, complete_ms=1.0))
    assert (latency.actions_ms, latency.busy_ms, list(latency.texts_ms)) == (40, 65, [55])
    assert clock("measured").latency(call(reply=reply(), complete_ms=7.0)).busy_ms == 47


def test_a_profile_charges_the_work_that_the_engine_reports():
    profiled = clock("profile:jetson-thor-oxygen-2603", mode="isolated")
    work = tuple(DecodeWork(prefills=1, forks=1, steps=steps, batch=1) for steps in (9, 4))
    said = reply(work=work, finished=(text(0, job=1, job_steps=3),))
    latency_model = LatencyModel(profiled.profile, "isolated")
    latency = profiled.latency(call(reply=said))
    assert latency.actions_ms == profiled.latency(call()).actions_ms == latency_model.action_ms
    assert latency.busy_ms == latency_model.busy_ms(work) > latency.texts_ms[0]
    assert latency.texts_ms[0] == latency_model.text_ms(work, job=1, steps=3)


def test_a_profile_cannot_price_a_policy_that_reports_nothing(policy, tmp_path):
    with pytest.raises(UnknownLatencyError, match="does not say what it computed"):
        clock("profile:jetson-thor-oxygen-2603").latency(call(reply=reply(work=None)))
    run = new_run(tmp_path, CONFIG.model_copy(update={"clock": Profile("jetson-thor-oxygen-2603")}))
    with pytest.raises(UsageError, match="does not run on it; choose another clock"):
        evaluate(run)
    assert not run.folder.path.exists()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("pasued", "clock 'pasued'"),
        ("fixed:0,inf", "write fixed:A,B"),
        ("fixed:300,100", "write fixed:100,300"),
        ("profile:jetson", "jetson-thor-oxygen-2603"),
    ],
)
def test_an_invalid_clock_is_refused_in_one_line(name, problem):
    with pytest.raises(UsageError, match=problem):
        clock(name)


def test_zero_latency_is_paused_bit_for_bit(policy, tmp_path):
    timed = ("latency", "actions_step", "free_step", "continued", "idle", "skipped", "spans")
    paused, zero = (records(play(tmp_path, clock=name)) for name in ("paused", "fixed:0"))
    for record in (*paused, *zero):
        for scores in (record.get("texts") or {}).values():
            scores.pop("current_s", None)  # defined only while time passes
    assert [{key: value for key, value in record.items() if key not in timed} for record in zero] == paused


def test_a_replay_repeats_a_measured_run_bit_for_bit_or_says_why_it_cannot(policy, tmp_path):
    measured = play(tmp_path, clock="measured", overlap="rtc")
    again = play(tmp_path, clock=f"replay:{measured.path}", overlap="rtc")
    assert any("action_prefix" in record for record in records(measured))
    assert records(again) == records(measured)
    hashes = [folder.read_manifest()["protocol_hash"] for folder in (measured, again)]
    assert hashes[0] == hashes[1], "a replay is the same protocol"
    paused = play(tmp_path, clock="paused")
    for clock_of, changes, problem in (
        (paused, {}, "nothing to replay"),
        (measured, {"mode": "isolated"}, "mode unified"),
        (measured, {"init_ids": (5,)}, "has no episode"),
        (measured, {"overlap": "blend"}, "give --overlap rtc"),
    ):
        with pytest.raises(UsageError, match=problem):
            play(tmp_path, clock=f"replay:{clock_of.path}", **changes)
    changes = {"clock": Replay(str(measured.path)), "overlap": "rtc"}
    replayed = open_pricing(CONFIG.model_copy(update=changes), [])
    key = next(iter(measured.episodes()))
    with pytest.raises(UnknownLatencyError, match="this is one more"):
        replayed.latency(call(key=key, index=99))
    with pytest.raises(UnknownLatencyError, match="texts were finished"):
        replayed.latency(call(key=key, reply=reply(finished=(text(0), text(1)))))


def test_an_episode_that_was_an_error_cannot_be_replayed(policy, tmp_path):
    policy.fails_at = 1
    failed = play(tmp_path, how={"max_errors": 9}, clock="measured")
    with pytest.raises(UsageError, match=r"no episode libero_object\.0\.0\.7 that was"):
        play(tmp_path, clock=f"replay:{failed.path}")


@pytest.mark.usefixtures("policy")
def test_a_replay_of_a_sweeps_cell_in_another_mode_is_of_one_on_the_same_clock(tmp_path):
    clocks = {"fixed:0": "unified", "fixed:300": "isolated", "fixed:0,0": "isolated", "fixed:40": "shared"}
    runs = [play(tmp_path, clock=name, mode=mode) for name, mode in clocks.items()]

    def replayed(mode, clocks):
        for run, name in zip(runs, clocks, strict=True):
            manifest = run.read_manifest() | {"variants": [each.run_id for each in runs]}
            manifest["config"]["clock"] = name
            run.write_manifest(manifest)
        return open_pricing(
            CONFIG.model_copy(update={"clock": Replay(str(runs[0].path)), "mode": Mode(mode)}), []
        )

    key = next(iter(runs[0].episodes()))
    asked = call(key=key)
    found = replayed("isolated", ["fixed:0", "fixed:300", "fixed:0", "fixed:0"])
    assert found.latency(asked).actions_ms == 0
    with pytest.raises(
        UsageError, match=f"2 variants of .* name one of them, {runs[1].run_id} or {runs[2].run_id}"
    ):
        replayed("isolated", ["fixed:0"] * 4)
    with pytest.raises(UsageError, match="was run in mode unified; give --mode unified"):
        replayed("isolated", ["fixed:0", *["fixed:300"] * 3])


@pytest.mark.parametrize("name", ["fixed:120,400", "replay"])
def test_a_resumed_run_equals_an_uninterrupted_one(policy, tmp_path, name):
    if name == "replay":
        name = f"replay:{play(tmp_path / 'measured', clock='measured').path}"
    whole = play(tmp_path / "whole", clock=name)
    policy.interrupted_at = policy.queries + 3
    play_until_ctrl_c(tmp_path / "parts", clock=name)
    (again,) = find_unfinished(tmp_path / "parts", {})
    evaluate(again)
    assert records(again.folder) == records(whole)


def test_clock_and_waiting_rule_are_part_of_the_protocol(policy, tmp_path):
    clocks = ["paused", "fixed:100", "fixed:100,200", "measured"]
    runs = [play(tmp_path, clock=name) for name in clocks]
    runs.append(play(tmp_path, clock="fixed:100", while_waiting="hold"))
    assert len({run.read_manifest()["protocol_hash"] for run in runs}) == len(runs)


def test_on_a_measured_clock_the_expected_delay_is_the_longest_of_ten():
    estimator = DelayEstimator(open_pricing(RunConfig(clock="measured"), []), KEY, control_hz=20)
    delays = [estimator.steps(0)]
    for milliseconds in (120, *[60] * 10, 4000):
        estimator.note(Latency(actions_ms=milliseconds, busy_ms=milliseconds))
        delays.append(estimator.steps(1))
    assert delays == [0, *[3] * 10, 2, 80]


def test_without_delay_all_overlap_rules_are_equal_bit_for_bit(policy, tmp_path):
    policy.actions = np.random.default_rng(0).normal(size=(10, 7))
    runs = [play(tmp_path, clock="fixed:0", overlap=rule) for rule in get_args(OverlapRule)]
    assert all(records(run) == records(runs[0]) for run in runs)
    assert len({folder.read_manifest()["protocol_hash"] for folder in runs}) == len(runs)
    assert "overlap" not in str(runs[0].read_manifest()["protocol"]), "as before there was a choice"


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
_NOISY = {2: _time(6.0), 4: _time(4.0)}
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
        ("unified", {"decode": _NOISY}, [_work(steps=2, batch=3)], 123, 123 + 5 + 2 * 5),
        ("unified", {"decode": _NOISY}, [_work(steps=2, batch=9)], 123, 123 + 5 + 2 * 4),
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
    profile = _profile(guided_denoise=_time(50.0))
    plain, guided = (LatencyModel(profile, "isolated", guided=how) for how in (False, True))
    assert guided.action_ms == plain.action_ms + 30
    assert guided.busy_ms(_TWO_TEXTS) == plain.busy_ms(_TWO_TEXTS) + 30
    with pytest.raises(UsageError, match=r"'abacus' cannot price overlap rtc: .*--save-profile"):
        LatencyModel(_profile(), "isolated", guided=True)
    skip, rtc = (clock("profile:jetson-thor-oxygen-2603", overlap=rule) for rule in ("skip", "rtc"))
    more_ms = rtc.profile.guided_denoise.ms - rtc.profile.denoise.ms
    assert rtc.latency(call()) == skip.latency(call())
    guided_ms = rtc.latency(call(guided=True)).actions_ms
    assert guided_ms == pytest.approx(rtc.latency(call()).actions_ms + more_ms)
    assert "guided_denoise" not in skip.describe()["profile"], "as in runs of before it was known"
    assert "guided_denoise" in rtc.describe()["profile"]


@pytest.mark.parametrize(
    ("batch", "ms"), [(1, 6.0), (2, 6.0), (3, 6.5), (4, 7.0), (5, 8.5), (10, 16.0), (12, 19.0)]
)
def test_decode_latency_is_piecewise_linear_in_the_batch_size(batch, ms):
    assert LatencyModel(_profile(), "unified").decode_ms(batch) == pytest.approx(ms)


def test_jitter_is_log_normal_with_median_one_by_episode_and_query():
    profile = _profile(jitter=0.2)
    assert jitter(profile, KEY, 3) == jitter(_profile(jitter=0.2, prefill=_time(1.0)), KEY, 3)
    logs = [
        math.log(jitter(profile, dataclasses.replace(KEY, init_id=init_id), query))
        for init_id in range(40)
        for query in range(50)
    ]
    assert len(set(logs)) == 2000
    assert statistics.median(logs) == pytest.approx(0, abs=0.02)
    assert statistics.stdev(logs) == pytest.approx(0.2, rel=0.08)
    assert sum(abs(value) < 0.2 for value in logs) / len(logs) == pytest.approx(0.683, abs=0.04)


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """A suite without physics that the policy in the box fits, as a file."""
    changes = {"environment": {"success_at": 37}, "max_steps": 40, "settle_steps": 0, "camera_size": 256}
    return suite_file(tmp_path_factory.mktemp("suites"), "fake", FakeSuite, **changes)


@pytest.fixture(scope="module")
def profiled(suite, tmp_path_factory):
    """Plays the suite in some modes, in a folder of its own unless it is given one; returns the runs'."""

    def played(*modes, folder=None, executor=SERIAL, **changes):
        folder = folder or tmp_path_factory.mktemp("runs")
        same = {"suites": (suite,), "clock": "profile:jetson-thor-oxygen-2603", "video": "none", **changes}
        runs = [new_run(folder, RunConfig(mode=mode, **same)) for mode in modes]
        evaluate(*runs, executor=executor)
        return [run.folder for run in runs]

    return played


@pytest.fixture(scope="module")
def whole(profiled):
    return profiled("isolated", "unified")


@pytest.mark.slow
def test_a_resumed_run_under_a_profile_equals_an_uninterrupted_one(profiled, whole, monkeypatch, tmp_path):
    uninterrupted, ended = episode.rollout, iter([False, False, True])

    def rollout(*arguments, **named):
        if next(ended, False):
            raise KeyboardInterrupt
        return uninterrupted(*arguments, **named)

    monkeypatch.setattr(episode, "rollout", rollout)
    with pytest.raises(KeyboardInterrupt):
        profiled("isolated", "unified", folder=tmp_path)
    again = find_unfinished(tmp_path, {})
    evaluate(*again)
    assert [records(run.folder) for run in again] == [records(folder) for folder in whole]


@pytest.mark.slow
def test_guided_chunks_are_equal_bit_for_bit_in_any_batch(profiled):
    """In one batch with worlds that have nothing under way, and with those that have."""
    how = {"overlap": "rtc", "batch_size": 2}
    (alone,) = profiled("unified", **how)
    (together,) = profiled("unified", executor=Processes(num_envs=2), **how)
    assert sorted(records(together), key=str) == sorted(records(alone), key=str)
    guided = [record for record in records(alone) if "action_prefix" in record]
    assert len(guided) > 5


_SLOWLY = pytest.param("libero_object", 1, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("where", "every"), [("fake", 2), pytest.param("fake", 1, marks=pytest.mark.slow), _SLOWLY]
)
def test_schedules_with_equal_a_and_b_give_equal_episodes_bit_for_bit(
    where, every, profiled, suite, tmp_path
):
    device = tmp_path / "device.yaml"
    prices = {"host": _time(0), "prefill": _time(30), "denoise": _time(30), "fork": _time(0)}
    profile = _profile(name="device", **prices, decode={1: _time(0.1)})
    device.write_text(yaml.safe_dump(profile.model_dump(mode="json", exclude_none=True)))
    texts = {"clock": f"profile:{device}", "text_every": 1}
    schedules = [
        ("actions", {"clock": "fixed:100,150", "replan_steps": 1}),
        ("actions", {"clock": "fixed:52,137", "replan_steps": 2}),
        ("actions", {"clock": "fixed:100", "replan_steps": 3}),
        ("isolated", {**texts, "replan_steps": 1}),  # 60 ms and two prefills more, and decoding
        ("unified", {**texts, "replan_steps": 3}),
    ][::every]
    world = {} if where == "fake" else {"suites": (where,), "assets": "standins", "task_ids": (0,)}
    short = {"max_steps": 15} if where == "fake" else {"init_ids": (40,), "max_steps": 30}
    lasting = dataclasses.replace(SERIAL, lasting=True)  # loads the policy once for both in mode `actions`
    runs = [profiled(mode, executor=lasting, **{**how, **world, **short})[0] for mode, how in schedules]
    results = [read_json_object(run.results_path)["overall"] for run in runs]
    steps = {name: dict.fromkeys(("median", "least", "most"), count) for name, count in (("a", 2), ("b", 3))}
    assert [result["control_steps"] for result in results] == [steps] * len(runs)
    assert [courses(run) for run in runs[1:]] == [courses(runs[0])] * (len(runs) - 1)
    assert [bool(result["tokens"]) for result in results] == [mode != "actions" for mode, _ in schedules]


def courses(folder):
    """What happened in each episode, and every action to the last bit."""
    names = ("key", "outcome", "steps", "queries", "idle_steps", "continued_steps", "skipped_actions")
    names += ("step", "actions_step", "spans", "skipped", "actions")
    return [{name: record[name] for name in names if name in record} for record in records(folder)]
