"""The verdict has teeth: a policy that was made worse is found inferior, and an equal one is not."""

import functools

import pytest

from configs.schema import RunConfig
from eval.records.run_folders import new_run
from eval.report.comparison import compare
from eval.report.comparison_verdict import Verdict, judge
from eval.rollout import rollout
from eval.rollout.executors import executor
from tests.eval.conftest import evaluate
from tests.eval.doubles import opened
from tests.eval.pursuit import Pursuer, PursuitSuite

EPISODES = 100


class Clock:
    """Seconds that pass only when a policy thinks."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def think(self, milliseconds: float) -> None:
        self.now_s += milliseconds / 1e3

    def perf_counter(self) -> float:
        return self.now_s


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """The verdict on a policy, beside one that answers at once, without noise, and forgets nothing."""
    clock = Clock()

    @functools.cache
    def played(clock_name, noise=0.0, forgets=0, thinks_ms=0.0):
        policy = Pursuer(noise=noise, forgets=forgets, thinks_ms=thinks_ms, think=clock.think)
        patch.setattr(executor, "open_policies", lambda *_, **__: [opened(policy)])
        config = RunConfig(
            suites=("pursuit",),
            init_ids=tuple(range(EPISODES)),
            clock=clock_name,
            video="none",
            policy="noop",
        )
        run = new_run(tmp_path_factory.mktemp("runs"), config)
        evaluate(run)
        return run.folder

    def judged(clock_name="paused", **worse):
        comparison = compare(played(clock_name), played(clock_name, **worse))
        return judge(comparison.overall), comparison.overall

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollout, "time", clock)
        patch.setattr("eval.rollout.plan.open_suite", lambda name, **protocol: PursuitSuite())
        yield judged


@pytest.mark.parametrize(
    "worse",
    [
        pytest.param({"noise": 0.5}, id="noise on actions", marks=pytest.mark.slow),
        pytest.param(
            {"clock_name": "measured", "thinks_ms": 500.0}, id="a latency of 500 ms", marks=pytest.mark.slow
        ),
        pytest.param({"forgets": 5}, id="one chunk in five is forgotten"),
    ],
)
def test_a_policy_that_was_made_worse_is_found_inferior(judged, worse):
    judgement, pairs = judged(**worse)
    assert 60 < pairs.percent_a < 100, "the world is neither too easy nor too hard"
    assert judgement.verdict is Verdict.INFERIOR


def test_an_equal_policy_is_found_non_inferior(judged):
    judgement, _ = judged("measured", forgets=10**9)  # another run of the same
    assert judgement.verdict is Verdict.NON_INFERIOR


@pytest.mark.slow
def test_latency_that_no_time_is_charged_for_cannot_be_seen(judged):
    judgement, _ = judged("paused", thinks_ms=500.0)
    assert judgement.verdict is Verdict.NON_INFERIOR
