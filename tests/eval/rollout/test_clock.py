"""Clocks: what a query is charged, and what is refused before anything runs."""

import pytest

from configs.errors import UsageError
from configs.schema import RunConfig
from eval.records.run_folders import find_unfinished, new_run
from eval.records.schema import RunFolder
from eval.rollout.clock import PAUSED, LatencyModel, ReplayError, TimedQuery, UnknownCostError, find_clock
from oxygen.serving.requests import DecodeWork
from sim_envs.world import EpisodeKey
from tests.eval.conftest import CONFIG, evaluate
from tests.eval.doubles import reply
from tests.eval.doubles import text_finished as text
from tests.eval.rollout.scaled import records

KEY = EpisodeKey(suite="libero_object", task_id=0, init_id=0, seed=7)


def clock(name: str, **config):
    return find_clock(RunConfig(clock=name, **config), [KEY])


def call(**changes) -> TimedQuery:
    return TimedQuery(**{"key": KEY, "index": 0, "act_ms": 40.0, **changes})


@pytest.mark.parametrize(
    ("name", "expected"), [("paused", (0, 0)), ("fixed:130", (130, 130)), ("fixed:80,500.5", (80, 500.5))]
)
def test_fixed_delivers_texts_when_the_policy_is_free_and_paused_at_once(name, expected):
    latency = clock(name).latency(call(reply=reply(finished=(text(0), text(1))), complete_ms=9.0))
    assert (latency.actions_ms, latency.busy_ms) == expected
    assert list(latency.texts_ms) == [expected[1]] * 2
    assert (clock(name) is PAUSED) == (name == "paused")


def test_measured_charges_policy_time_alone():
    known = clock("measured").latency(call())
    assert known.actions_ms == known.busy_ms == 40
    said = reply(timings_ms={"decode": 25.0, "advance": 9e9}, finished=(text(0, after_ms=55.0),))
    latency = clock("measured").latency(call(reply=said, complete_ms=1.0))
    assert (latency.actions_ms, latency.busy_ms, list(latency.texts_ms)) == (40, 65, [55])
    silent = clock("measured").latency(call(reply=reply(), complete_ms=7.0))
    assert silent.busy_ms == 47


def test_a_profile_charges_the_work_that_the_engine_reports():
    profiled = clock("profile:jetson-thor", mode="isolated")
    work = (
        DecodeWork(prefills=1, forks=1, steps=9, batch=1),
        DecodeWork(prefills=1, forks=1, steps=4, batch=1),
    )
    said = reply(work=work, finished=(text(0, job=1, job_steps=3),))
    latency_model = LatencyModel(profiled.profile, "isolated")
    latency = profiled.latency(call(reply=said))
    assert latency.actions_ms == profiled.latency(call()).actions_ms == latency_model.action_ms
    assert (
        latency.busy_ms
        == latency_model.busy_ms(work)
        > latency.texts_ms[0]
        == latency_model.text_ms(work, job=1, steps=3)
    )


def test_a_profile_cannot_price_a_policy_that_reports_nothing(policy, tmp_path):
    with pytest.raises(UnknownCostError, match="does not say what it computed"):
        clock("profile:jetson-thor").latency(call(reply=reply(work=None)))
    run = new_run(tmp_path, CONFIG.model_copy(update={"clock": "profile:jetson-thor"}))
    with pytest.raises(UsageError, match="does not run on it; choose another clock"):
        evaluate(run)
    assert not run.folder.path.exists()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("pasued", "clock 'pasued'"),
        ("fixed:0,inf", "write fixed:A,B"),
        ("fixed:300,100", "write fixed:100,300"),
        ("profile:jetson", "jetson-thor"),
    ],
)
def test_an_invalid_clock_is_refused_in_one_line(name, problem):
    with pytest.raises(UsageError, match=problem) as refused:
        clock(name)
    assert "\n" not in str(refused.value)


def run_on(tmp_path, name: str, **changes) -> RunFolder:
    run = new_run(tmp_path, CONFIG.model_copy(update={"clock": name, **changes}))
    evaluate(run)
    return run.folder


def test_zero_latency_is_paused_bit_for_bit(policy, tmp_path):
    timed = ("latency", "actions_step", "free_step", "continued", "held", "skipped", "spans")
    paused, zero = (records(run_on(tmp_path, name)) for name in ("paused", "fixed:0"))
    for record in (*paused, *zero):
        for scores in (record.get("texts") or {}).values():
            scores.pop("current_s", None)  # defined only while time passes
    assert [{key: value for key, value in record.items() if key not in timed} for record in zero] == paused


def test_a_replay_repeats_a_measured_run_bit_for_bit_or_says_why_it_cannot(policy, tmp_path):
    measured = run_on(tmp_path, "measured")
    again = run_on(tmp_path, f"replay:{measured.path}")
    assert records(again) == records(measured)
    hashes = [folder.read_manifest()["protocol_hash"] for folder in (measured, again)]
    assert hashes[0] == hashes[1], "a replay is the same protocol"
    paused = run_on(tmp_path, "paused")
    for clock_of, changes, problem in (
        (paused, {}, "nothing to replay"),
        (measured, {"mode": "isolated"}, "mode unified"),
        (measured, {"init_ids": (5,)}, "has no episode"),
    ):
        with pytest.raises(UsageError, match=problem):
            run_on(tmp_path, f"replay:{clock_of.path}", **changes)
    replayed = find_clock(CONFIG.model_copy(update={"clock": f"replay:{measured.path}"}), [])
    key = next(iter(measured.episodes()))
    with pytest.raises(ReplayError, match="this is one more"):
        replayed.latency(call(key=key, index=99))
    with pytest.raises(ReplayError, match="texts were finished"):
        replayed.latency(call(key=key, reply=reply(finished=(text(0), text(1)))))


@pytest.mark.parametrize("name", ["fixed:120,400", "replay"])
def test_a_resumed_run_equals_an_uninterrupted_one(policy, tmp_path, name):
    if name == "replay":
        name = f"replay:{run_on(tmp_path / 'measured', 'measured').path}"
    whole = run_on(tmp_path / "whole", name)
    policy.interrupted_at = policy.queries + 3
    with pytest.raises(KeyboardInterrupt):
        run_on(tmp_path / "parts", name)
    (again,) = find_unfinished(tmp_path / "parts", {})
    evaluate(again)
    assert records(again.folder) == records(whole)


def test_clock_and_waiting_rule_are_part_of_the_protocol(policy, tmp_path):
    clocks = ["paused", "fixed:100", "fixed:100,200", "measured"]
    runs = [
        *(run_on(tmp_path, clock) for clock in clocks),
        run_on(tmp_path, "fixed:100", while_waiting="hold"),
    ]
    assert len({run.read_manifest()["protocol_hash"] for run in runs}) == len(runs)
