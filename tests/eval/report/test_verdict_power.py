"""The verdict detects real differences: a worsened policy is inferior, and an equal one is not."""

import dataclasses
import functools
import types
from collections.abc import Callable

import numpy as np
import pytest

from configs.schema import RunConfig
from eval.report.comparison import compare
from eval.report.comparison_verdict import judge
from eval.rollout import rollout
from eval.rollout.executors import executor
from oxygen.policy.reply import Reply
from sim_envs.fake import FakeSuite, FakeWorld
from sim_envs.suite import InitIds
from sim_envs.world import AdvanceResult
from tests.eval.conftest import play
from tests.eval.doubles import FakePolicy, opened

EPISODES = 100
SPEED, REACH, STAY = 0.04, 0.03, 3


class PursuitWorld(FakeWorld):
    """A point in the plane has to touch a target that moves to and fro, and to stay on it. State: both."""

    def reset(self, *, init_id, seed, settle_steps):
        super().reset(init_id=init_id, seed=seed, settle_steps=0)
        draw = np.random.default_rng((init_id, seed))
        self.point, self.touching = np.zeros(2), 0
        self.middle = draw.normal(size=2)
        self.middle *= draw.uniform(0.3, 1.5) / np.linalg.norm(self.middle)
        self.swing, self.phase = draw.normal(size=2) * 0.15, draw.uniform(0, 2 * np.pi)

    def target(self):
        return self.middle + self.swing * np.sin(self.phase + 2 * np.pi * self.steps / 40)

    def advance(self, actions):
        for taken, action in enumerate(actions, start=1):
            self.steps += 1
            self.point = self.point + SPEED * np.clip(action[:2], -1, 1)
            near = np.linalg.norm(self.point - self.target()) < REACH
            self.touching = self.touching + 1 if near else 0
            if self.touching == STAY:
                return AdvanceResult(steps=taken, success=True)
        return AdvanceResult(steps=len(actions), success=False)

    def observe(self):
        state = np.concatenate([self.point, self.target(), np.zeros(4)])
        return dataclasses.replace(super().observe(), state=state)

    def truth(self):
        return None


class PursuitSuite(FakeSuite):
    published = FakeSuite.published.model_copy(update={"max_steps": 50, "settle_steps": 0, "replan_steps": 2})

    def __init__(self):
        super().__init__(self.published)

    def init_ids(self, task):
        return InitIds(stored=EPISODES)

    def open(self, task):
        return PursuitWorld()


@dataclasses.dataclass(kw_only=True)
class Pursuer(FakePolicy):
    """Goes straight to where the target is seen, with noise; forgets one chunk in so many."""

    think: Callable[[], None]
    noise: float = 0.0
    forgets: int = 0

    def reset(self, key):
        super().reset(key)
        self.draw, self.query = np.random.default_rng(key.digest()), 0

    def act(self, observation):
        self.think()
        self.query += 1
        point, target = observation.state[:2], observation.state[2:4]
        actions = np.zeros((10, 7))
        if self.forgets and self.query % self.forgets == 0:
            return actions
        for action in actions:
            action[:2] = np.clip((target - point) / SPEED, -1, 1)
            point = point + SPEED * action[:2]
        actions[:, :2] += self.noise * self.draw.normal(size=(10, 2))
        return actions

    def complete(self):
        return Reply(timings_ms={"decode": 0.0})


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """The verdict on a policy, beside one that answers at once, without noise, and forgets nothing."""
    now_s = [0.0]  # passes only when a policy thinks

    @functools.cache
    def played(clock, thinks_ms=0.0, **worse):
        def think():
            now_s[0] += thinks_ms / 1e3

        policy = Pursuer(interface=PursuitSuite().interface, think=think, **worse)
        patch.setattr(executor, "open_policies", lambda *_, **__: [opened(policy)])
        states = tuple(range(EPISODES))
        config = RunConfig(suites=("pursuit",), init_ids=states, clock=clock, video="none", policy="noop")
        return play(tmp_path_factory.mktemp("runs"), config)

    def judged(clock="paused", **worse):
        pairs = compare(played(clock), played(clock, **worse)).overall
        return judge(pairs), pairs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollout, "time", types.SimpleNamespace(perf_counter=lambda: now_s[0]))
        patch.setattr("eval.rollout.plan.open_suite", lambda name, **protocol: PursuitSuite())
        yield judged


@pytest.mark.parametrize(
    ("other", "verdict"),
    [
        pytest.param({"noise": 0.5}, "inferior", id="noise on actions", marks=pytest.mark.slow),
        pytest.param(
            {"clock": "measured", "thinks_ms": 500.0}, "inferior", id="half a second", marks=pytest.mark.slow
        ),
        pytest.param({"forgets": 5}, "inferior", id="one chunk in five is forgotten"),
        pytest.param({"clock": "measured", "forgets": 10**9}, "non-inferior", id="nothing is forgotten"),
        pytest.param({"thinks_ms": 500.0}, "non-inferior", id="time that is free", marks=pytest.mark.slow),
    ],
)
def test_a_policy_that_was_made_worse_is_found_inferior_and_an_equal_one_is_not(judged, other, verdict):
    judgement, pairs = judged(**other)
    assert 60 < pairs.percent_a < 100, "the world is neither too easy nor too hard"
    assert judgement.verdict == verdict
