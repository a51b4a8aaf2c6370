"""Each target stands beside what was reached, by the runs that count, and by the worst of these."""

import dataclasses

import pytest

from eval.bundle.results import Result, TaskResult
from eval.bundle.targets import TARGETS, Reached, reached
from eval.metrics.language_results import LanguageRow
from eval.metrics.statistics import wilson_95
from eval.records.reader import AssetsUsed
from sim_envs.libero.tasks import FIRST_DRAWN

TINY = TARGETS["tiny"]
SUITE = "libero_spatial"


def result(*, solved: int, trials: int = 20, phase: float = 90.0, **changes) -> Result:
    """A run of the suite's ten tasks in held-out wordings, of whose episodes so many were solved."""
    tasks = [TaskResult(task_id=n, task=f"task_{n}", n_episodes=trials, n_success=0) for n in range(10)]
    made = Result(
        run_id="run",
        suite=SUITE,
        mode="unified",
        assets=AssetsUsed(name="standins", digest="0" * 12),
        protocol="p",
        n_episodes=10 * trials,
        n_success=solved,
        n_errors=0,
        init_ids=tuple(range(30, 30 + trials)),
        options={"wordings": "held_out"},
        latency_ms={"frame": {"p50": 20.0, "p95": 30.0}},
        texts={"narration": narration(phase)},
        tasks=tuple(tasks),
        machine="an abacus, 2 cores",
        commit=None,
        finished="2026-01-01",
    )
    return dataclasses.replace(made, **changes)


def narration(phase: float) -> LanguageRow:
    born = {"phase": {"pc": phase, "ci95": (phase - 1, phase + 1), "n": 100}}
    arrived = {"phase": {"pc": 1.0, "ci95": None, "n": 100}}
    return LanguageRow(n_texts=100, n_not_graded=0, born=born, arrived=arrived)


def row(what: str, results: list[Result], where: str = f"{SUITE}, stand-ins", begun=()) -> Reached:
    found = reached(TINY, results, lambda suite: begun)
    (only,) = [each for each in found if (each.what, each.where) == (what, where)]
    return only


def test_every_target_has_a_row_and_what_was_not_measured_says_so():
    rows = reached(TINY, [], lambda suite: ())
    assert len(rows) == len(TINY.success) * (1 + len(TINY.texts)) + 1
    assert {each.met for each in rows} == {"not measured"}
    assert {each.value for each in rows} == {"–"}


@pytest.mark.parametrize(("solved", "met"), [(160, "yes"), (159, "no")])
def test_success_is_held_against_its_least_with_interval_and_trials(solved, met):
    found = row("success", [result(solved=solved)])
    assert (found.asked, found.value, found.met) == ("≥ 80 %", f"{solved / 2:.1f} %", met)
    assert (found.trials, found.modes) == ("20", "unified")
    interval = wilson_95(solved, 200)
    assert found.interval == f"{100 * interval.low:.1f} – {100 * interval.high:.1f}"


def test_the_worst_of_the_runs_with_the_most_trials_counts():
    runs = [
        result(solved=170),
        result(solved=150, mode="isolated", phase=80.0),
        result(solved=0, trials=2, phase=1.0, mode="shared"),
    ]
    found = row("success", runs)
    assert (found.value, found.modes, found.met) == ("75.0 %", "isolated, unified", "no")
    assert row("narration: phase", runs).value == "80.0 %"


def test_too_few_trials_reach_nothing_but_may_miss():
    assert row("success", [result(solved=50, trials=5)]).met == "too few trials"
    assert row("success", [result(solved=39, trials=5)]).met == "no"


def test_as_far_as_it_gets_is_neither_reached_nor_missed():
    found = row("success", [result(solved=7, suite="libero_goal")], "libero_goal, stand-ins")
    assert (found.asked, found.value, found.met) == ("as far as it gets", "3.5 %", "–")


@pytest.mark.parametrize(
    "changes",
    [
        {"options": {}},
        {"options": {"wordings": "training"}},
        {"options": {"wordings": "held_out", "max_steps": 900}},
        {"options": {"wordings": "held_out", "task_ids": [3]}},
        {"init_ids": (FIRST_DRAWN, 30)},
        {"init_ids": (5, 30)},
        {"suite": "libero_goal"},
        {"assets": AssetsUsed(name="libero-assets", digest="1" * 12)},
    ],
)
def test_a_run_that_training_helped_or_of_another_protocol_does_not_count(changes):
    found = row("success", [result(solved=200, **changes)], begun=(5, 6))
    assert found.met == "not measured"


def test_how_a_run_was_served_does_not_matter():
    options = {"wordings": "held_out", "tokens_per_frame": 2, "language_tasks": ["narration"]}
    assert row("success", [result(solved=200, options=options)]).met == "yes"


def test_real_assets_are_any_but_the_stand_ins():
    own = AssetsUsed(name="libero-assets", digest="1" * 12)
    found = row(
        "success", [result(solved=150, suite="libero_object", assets=own)], "libero_object, real assets"
    )
    assert (found.asked, found.met) == ("≥ 75 %", "yes")


def test_texts_are_held_against_the_truth_they_were_born_in():
    found = row("narration: phase", [result(solved=0, phase=86.0)])
    assert (found.asked, found.value, found.interval, found.met) == ("≥ 85 %", "86.0 %", "85.0 – 87.0", "yes")
    assert row("narration: object", [result(solved=0)]).met == "not measured"
    assert row("memory: f1", [result(solved=0)]).met == "not measured"
    assert row("narration: phase", [result(solved=0, texts={})]).met == "not measured"


def test_a_query_is_as_long_as_in_the_slowest_run_on_such_a_machine():
    slow = {"frame": {"p50": 61.0, "p95": 90.0}}
    elsewhere = [
        result(solved=0, latency_ms=slow, machine=machine)
        for machine in ("an abacus, 32 cores", "an abacus, 2 cores, gpu: quick")
    ]
    where = "2 cores, any suite"
    assert row("a query, median", elsewhere, where).met == "not measured"
    here = [result(solved=0), *elsewhere, result(solved=0, mode="actions", latency_ms={})]
    assert row("a query, median", here, where).value == "20.0 ms"
    found = row("a query, median", [*here, result(solved=0, mode="isolated", latency_ms=slow)], where)
    assert (found.value, found.modes, found.met) == ("61.0 ms", "isolated, unified", "no")
