"""The boundary: whatever goes wrong inside an episode becomes a record with its traceback."""

import dataclasses
import json

import numpy as np
import pytest

from configs.exits import DeferredSignals
from configs.schema import RunConfig
from eval.metrics.simulated_time import restricted_s
from eval.policies.base import PolicyLostError
from eval.records.query_logs import read_queries
from eval.records.run_folders import Run
from eval.records.schema import Outcome, RunFolder
from eval.rollout.clock import PAUSED
from eval.rollout.episode import EpisodeJob, Variant, run_episode
from eval.rollout.plan import EpisodePlan, TaskPlan
from eval.rollout.recorder import EpisodeRecorder
from sim_envs.fake import FakeWorld
from sim_envs.truth.nouns import Nouns
from sim_envs.world import EpisodeKey, PhysicsError
from tests.eval.doubles import FakePolicy, libero_object, opened

ERROR, INVALID = Outcome.ERROR, Outcome.INVALID_ACTION
KEY = EpisodeKey(suite="libero_object", task_id=0, init_id=3, seed=7)


class OneWorld:
    """Stands in for the holder of worlds: always the same world, and whether it was thrown away."""

    def __init__(self, world: FakeWorld) -> None:
        self.world = world
        self.closed = 0

    def of(self, plan):
        return self.world

    def close(self):
        self.closed += 1


@pytest.fixture
def plan() -> TaskPlan:
    suite = libero_object(max_steps=20)
    return TaskPlan(suite=suite, task=suite.tasks()[0], keys=(KEY,))


def run(tmp_path, plan, world, policy, video="all", fatal=()):
    worlds = OneWorld(world)
    variant = Variant(
        run=Run(config=RunConfig(video=video), folder=RunFolder(tmp_path)),
        plan=EpisodePlan(tasks=(plan,)),
        policy=opened(policy),
        clock=PAUSED,
        record=EpisodeRecorder,
    )
    job = EpisodeJob(variant=0, task=0, key=KEY)
    with DeferredSignals() as interrupts:
        return run_episode(variant, job, worlds=worlds, interrupts=interrupts, fatal=fatal), worlds


class Diverging(FakeWorld):
    """Its physics do not survive the eighth step."""

    def advance(self, actions):
        if self.steps + len(actions) >= 8:
            raise PhysicsError("an acceleration is not finite")
        return super().advance(actions)


class Starving(FakePolicy):
    def act(self, observation):
        raise MemoryError


def test_an_episode_ends_as_a_failure_once_the_task_cannot_be_solved(tmp_path, plan):
    result, _ = run(tmp_path, plan, FakeWorld(success_at=12, lost_at=7), FakePolicy())
    assert (result.outcome, result.steps) == (Outcome.FAILURE, 7)
    assert restricted_s(result, {result.key.suite: 14.0}) == 14.0


def test_what_is_retried_leaves_no_files(tmp_path, plan):
    lost = FakePolicy(fails_at=1, fails_with=PolicyLostError("the server stays away"))
    for policy, error, fatal in ((lost, PolicyLostError, ()), (Starving(), MemoryError, (MemoryError,))):
        with pytest.raises(error):
            run(tmp_path, plan, FakeWorld(), policy, fatal=fatal)
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert run(tmp_path, plan, FakeWorld(), Starving())[0].outcome is Outcome.ERROR


def test_a_solved_episode_and_its_query_log(tmp_path, plan):
    policy = FakePolicy(actions=np.full((10, 7), 0.1))
    result, worlds = run(tmp_path, plan, FakeWorld(success_at=12), policy)
    assert (result.outcome, result.steps, result.queries) == (Outcome.SUCCESS, 12, 3)
    assert result.tokens == 9
    assert (result.requests.requested, result.requests.finished, result.requests.cancelled) == (3, 2, 1)
    assert result.compiles_after_warm_up == 0
    assert result.latency_ms["action"] == {"p50": 2.0, "p95": 2.0, "p99": 2.0}
    assert result.policy_s == pytest.approx(0.015)
    assert result.video == "videos/libero_object/task00_ep003_success.mp4"
    assert (tmp_path / result.video).stat().st_size > 0
    assert not worlds.closed
    lines = [json.loads(line) for line in RunFolder(tmp_path).queries_path(KEY).read_text().splitlines()]
    assert [(line["query"], line["step"], line["steps"]) for line in lines] == [
        (0, 0, 5),
        (1, 5, 5),
        (2, 10, 2),
    ]
    assert lines[0]["actions"] == [[0.1] * 7] * 10
    assert lines[0]["requested"] == [{"task": "narration", "request_id": 0, "query": 0}]
    assert lines[2]["finished"][0]["text"] == "I narrate query 1 — schön"


class Elsewhere(FakeWorld):
    """A world with nouns of its own."""

    def truth(self):
        nouns = Nouns(
            movable=frozenset(["duck"]), parts=frozenset(["hatch"]), places=frozenset([("pond", "in")])
        )
        return dataclasses.replace(super().truth(), nouns=nouns)


@pytest.mark.parametrize("world", [FakeWorld, Elsewhere])
def test_the_query_log_round_trips_the_truth(tmp_path, plan, world):
    run(tmp_path, plan, world(success_at=12), FakePolicy())
    told = [query.truth for query in read_queries(RunFolder(tmp_path), KEY)]
    assert told == [world(steps=step).truth() for step in (0, 5, 10)]


@pytest.mark.parametrize(
    ("outcome", "world", "policy", "complaint", "steps"),
    [
        (ERROR, FakeWorld(fails_at=7), {}, "RuntimeError: the fake simulator fails at step 7", 5),
        (ERROR, FakeWorld(), {"fails_at": 1}, "FloatingPointError: the fake policy fails", 5),
        (INVALID, FakeWorld(), {"actions": np.full((10, 7), np.nan)}, "ActionError: action 0 holds nan", 0),
        (INVALID, FakeWorld(), {"actions": np.zeros((4, 7))}, "ActionError: actions have shape (4, 7)", 0),
        (INVALID, Diverging(), {}, "PhysicsError: an acceleration is not finite", 5),
    ],
)
def test_what_fails_is_recorded_with_its_traceback(tmp_path, plan, outcome, world, policy, complaint, steps):
    result, worlds = run(tmp_path, plan, world, FakePolicy(**policy))
    assert (result.outcome, result.steps, worlds.closed) == (outcome, steps, 1)
    if steps:
        assert result.video == f"videos/libero_object/task00_ep003_{outcome}.mp4"
    assert result.error.startswith(complaint)
    assert result.traceback.startswith("Traceback (most recent call last)")
    assert complaint.split(":")[0] in result.traceback


def test_videos_of_failures_only_and_a_successful_retry_removes_the_errors_video(tmp_path, plan):
    failed, _ = run(tmp_path, plan, FakeWorld(), FakePolicy(fails_at=1), video="failures")
    assert [path.name for path in tmp_path.rglob("*.mp4")] == ["task00_ep003_error.mp4"]
    assert failed.video is not None
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, plan, FakeWorld(success_at=8), FakePolicy(interrupted_at=1), video="failures")
    assert (tmp_path / failed.video).exists()
    run(tmp_path, plan, FakeWorld(success_at=8), FakePolicy(), video="failures")
    assert not list(tmp_path.rglob("*.mp4"))
