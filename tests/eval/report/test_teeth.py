"""The verdict has teeth: policies that were made worse on purpose are found inferior, and an equal one is not."""

import time

import pytest

from configs.schema import RunConfig
from eval.records.run_folders import new_run
from eval.report.comparison import compare
from eval.report.comparison_verdict import Verdict, judge
from eval.rollout import evaluation, rollout
from tests.eval.conftest import evaluate
from tests.eval.doubles import opened
from tests.eval.pursuit import Pursuer, PursuitSuite

EPISODES = 200


class Clock:
    """Seconds that pass only when a policy thinks."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def think(self, milliseconds: float) -> None:
        self.now_s += milliseconds / 1e3

    def perf_counter(self) -> float:
        return self.now_s


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """The verdict on a policy, beside one that answers at once, without noise, and forgets nothing."""
    clock = Clock()
    monkeypatch.setattr(rollout, "time", clock)

    def played(clock_name, **worse):
        policy = Pursuer(think=clock.think, **worse)
        monkeypatch.setattr(evaluation, "open_policies", lambda *_, **__: [opened(policy)])
        config = RunConfig(
            suites=("pursuit",),
            init_ids=tuple(range(EPISODES)),
            clock=clock_name,
            video="none",
            policy="noop",
        )
        run = new_run(tmp_path, config)
        evaluate(run)
        return run.folder

    def judged(clock_name="paused", **worse):
        comparison = compare(played(clock_name), played(clock_name, **worse))
        return judge(comparison.overall), comparison.overall

    monkeypatch.setattr(
        "eval.rollout.plan.open_suite",
        lambda name, **protocol: PursuitSuite(
            PursuitSuite.published.model_copy(update={k: v for k, v in protocol.items() if k != "assets"})
        ),
    )
    return judged


@pytest.mark.parametrize(
    "worse",
    [
        pytest.param({"noise": 1.0}, id="noise on actions"),
        pytest.param({"clock_name": "measured", "thinks_ms": 500.0}, id="a latency of 500 ms"),
        pytest.param({"forgets": 5}, id="one chunk in five is forgotten"),
    ],
)
def test_a_policy_that_was_made_worse_is_found_inferior(judged, worse):
    judgement, pairs = judged(**worse)
    print(pairs.percent_a, pairs.percent_b, judgement.sentence)
    assert 60 < pairs.percent_a < 100, "the world is neither too easy nor too hard"
    assert judgement.verdict is Verdict.INFERIOR


def test_an_equal_policy_is_found_non_inferior(judged):
    judgement, _ = judged("measured")
    assert judgement.verdict is Verdict.NON_INFERIOR


def test_latency_that_no_time_is_charged_for_cannot_be_seen(judged):
    judgement, _ = judged("paused", thinks_ms=500.0)
    assert judgement.verdict is Verdict.NON_INFERIOR
