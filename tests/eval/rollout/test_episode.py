"""An episode: whatever goes wrong becomes a record with its traceback, and a video shows what was said."""

import dataclasses
import itertools
import json

import numpy as np
import pytest

from configs.exits import DeferredSignals
from configs.schema import RunConfig
from contracts.clock import PAUSED, Fixed
from contracts.episode import EpisodeKey, Outcome
from contracts.latency import Latency, Quantiles
from contracts.nouns import Nouns
from contracts.perturbation import parse_perturbations
from contracts.query import QueryRecord, Snapshot
from eval.metrics.simulated_time import restricted_s
from eval.policies.base import PolicyLostError
from eval.records.query_logs import read_queries
from eval.records.reader import read_identity
from eval.records.run_folders import Run
from eval.records.schema import RunFolder
from eval.rollout import recorder
from eval.rollout.episode import EpisodeJob, LoadedVariant, WorldCache, run_episode
from eval.rollout.executors.executor import SERIAL
from eval.rollout.plan import EpisodePlan, TaskPlan
from eval.rollout.recorder import EpisodeCaptions, EpisodeRecorder
from sim_envs.fake import FakeWorld
from sim_envs.world import AdvanceResult, PhysicsError, TaskError
from tests.eval.doubles import FakePolicy, libero_object, opened, text_finished
from tests.eval.factory import compare
from tests.eval.rollout.scaled import played, timeless
from tests.eval.rollout.test_executors import POLICY
from videos.recorder import EpisodeVideo

ERROR, INVALID = Outcome.ERROR, Outcome.INVALID_ACTION
WITH_NAN = np.where(np.arange(70).reshape(10, 7) == 17, np.nan, 0.0)
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


def run(tmp_path, plan, world, policy, video="all", fatal=(), key=KEY):
    worlds = OneWorld(world)
    variant = LoadedVariant(
        run=Run(config=RunConfig(video=video), folder=RunFolder(tmp_path)),
        plan=EpisodePlan(tasks=(plan,)),
        policy=opened(policy),
        record=EpisodeRecorder,
    )
    job = EpisodeJob(variant=0, task=0, key=key)
    with DeferredSignals() as interrupts:
        return run_episode(variant, job, worlds=worlds, interrupts=interrupts, fatal=fatal), worlds


def test_a_world_without_a_method_ends_the_run(plan, monkeypatch):
    monkeypatch.setattr(plan.suite, "open", lambda task: object())
    with pytest.raises(TaskError, match=r"the world of libero_object lacks reset\(\) and advance\(\) and "):
        WorldCache().of(plan)


class Diverging(FakeWorld):
    def advance(self, actions):
        if self.steps + len(actions) >= 8:
            raise PhysicsError("an acceleration is not finite")
        return super().advance(actions)


class DivergingAtOnce(FakeWorld):
    def reset(self, **options):
        raise PhysicsError("it diverged")


class NotFinite(FakeWorld):
    def observe(self):
        return dataclasses.replace(super().observe(), state=np.full(8, np.nan))


class Untidy(FakeWorld):
    """Reports after five steps whatever it is given."""

    def __init__(self, **reported):
        super().__init__()
        self.reported = reported

    def advance(self, actions):
        return self.reported.get("advance", super().advance(actions))

    def progress(self):
        return self.reported.get("progress", super().progress())


def test_an_episode_ends_as_a_failure_once_the_task_cannot_be_solved(tmp_path, plan):
    result, _ = run(tmp_path, plan, FakeWorld(success_at=12, lost_at=7), FakePolicy())
    assert (result.outcome, result.steps) == (Outcome.FAILURE, 7)
    assert restricted_s(result, {result.key.suite: 14.0}) == 14.0


def test_what_is_retried_leaves_no_files(tmp_path, plan):
    for error, fatal in ((PolicyLostError("it stays away"), ()), (MemoryError(), (MemoryError,))):
        with pytest.raises(type(error)):
            run(tmp_path, plan, FakeWorld(), FakePolicy(fails_at=1, fails_with=error), fatal=fatal)
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    starving = FakePolicy(fails_at=0, fails_with=MemoryError())
    assert run(tmp_path, plan, FakeWorld(), starving)[0].outcome is Outcome.ERROR


def test_a_solved_episode_and_its_query_log(tmp_path, plan):
    policy = FakePolicy(actions=np.full((10, 7), 0.1))
    result, worlds = run(tmp_path, plan, FakeWorld(success_at=12), policy)
    assert (result.outcome, result.steps, result.queries) == (Outcome.SUCCESS, 12, 3)
    assert result.tokens == 9
    assert (result.requests.requested, result.requests.finished, result.requests.cancelled) == (3, 2, 1)
    assert result.compiles_after_warm_up == 0
    assert result.latency_ms["action"] == Quantiles(p50=2.0, p95=2.0, p99=2.0)
    assert result.policy_s == pytest.approx(0.015)
    assert result.video == "videos/libero_object/task00_ep003_seed7_success.mp4"
    assert (tmp_path / result.video).stat().st_size > 0
    assert not worlds.closed
    lines = [json.loads(line) for line in RunFolder(tmp_path).queries_path(KEY).read_text().splitlines()]
    at = [(line["query"], line["step"], line["steps"]) for line in lines]
    assert at == [(0, 0, 5), (1, 5, 5), (2, 10, 2)]
    assert lines[0]["actions"] == [[0.1] * 7] * 10
    assert lines[0]["requested"] == [{"task": "narration", "request_id": 0, "query": 0}]
    assert lines[2]["finished"][0]["text"] == "I narrate query 1 — schön"


class Elsewhere(FakeWorld):
    def truth(self):
        places = frozenset([("pond", "in")])
        nouns = Nouns(movable=frozenset(["duck"]), parts=frozenset(["hatch"]), places=places)
        return dataclasses.replace(super().truth(), nouns=nouns)


class Unknown(FakeWorld):
    def truth(self):
        if self.steps:
            raise IndexError("list index out of range")
        return super().truth()


class Talkative(FakeWorld):
    def truth(self):
        return "The robot moves."


@pytest.mark.parametrize(
    ("world", "error", "told"),
    [
        (Unknown, "IndexError: list index out of range", [True, False, False]),
        (Talkative, "truth() returned a str, not a contracts.truth.Truth", [False] * 3),
        (FakeWorld, None, [True] * 3),
    ],
)
def test_a_world_that_fails_to_tell_the_truth_loses_its_grades_and_no_episode(
    tmp_path, plan, world, error, told
):
    result, worlds = run(tmp_path, plan, world(success_at=12), FakePolicy())
    assert (result.outcome, result.truth_error, worlds.closed) == (Outcome.SUCCESS, error, 0)
    queries = read_queries(RunFolder(tmp_path), KEY)
    assert [query.truth is not None for query in queries] == told
    assert [query.truth_error for query in queries] == [None if known else error for known in told]


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
        (ERROR, DivergingAtOnce(), {}, "RuntimeError: before the policy's first action: it diverged", 0),
        (ERROR, NotFinite(), {}, "UsageError: the world's state is not finite: [nan, nan, ", 0),
        (ERROR, Untidy(progress=np.nan), {}, "UsageError: progress() of the world is nan (float), but", 0),
        (ERROR, Untidy(progress=1.5), {}, "UsageError: progress() of the world is 1.5, but must be", 0),
        (ERROR, Untidy(advance=(5, True)), {}, "UsageError: advance() of the world returned (5, True)", 0),
        (
            ERROR,
            Untidy(advance=AdvanceResult(steps=0, success=False)),
            {},
            "UsageError: advance() of the world returned Adv",
            0,
        ),
        (INVALID, FakeWorld(), {"actions": WITH_NAN}, "ActionError: action 2 holds nan in dimension 3", 0),
        (INVALID, FakeWorld(), {"actions": np.zeros((4, 7))}, "ActionError: actions have shape (4, 7)", 0),
        (INVALID, Diverging(), {}, "PhysicsError: an acceleration is not finite", 5),
    ],
)
def test_what_fails_is_recorded_with_its_traceback(tmp_path, plan, outcome, world, policy, complaint, steps):
    result, worlds = run(tmp_path, plan, world, FakePolicy(**policy))
    assert (result.outcome, result.steps, worlds.closed) == (outcome, steps, 1)
    if steps:
        assert result.video == f"videos/libero_object/task00_ep003_seed7_{outcome}.mp4"
    assert result.error.startswith(complaint)
    assert result.traceback.startswith("Traceback (most recent call last)")
    assert complaint.split(":")[0] in result.traceback


def test_each_seed_of_an_initial_state_has_its_own_video(tmp_path, plan):
    of_seeds = {seed: dataclasses.replace(KEY, seed=seed) for seed in (7, 77)}
    first, second = (
        run(tmp_path, plan, FakeWorld(success_at=8), FakePolicy(), key=key)[0].video
        for key in of_seeds.values()
    )
    assert first == "videos/libero_object/task00_ep003_seed7_success.mp4"
    assert second == "videos/libero_object/task00_ep003_seed77_success.mp4"
    assert (tmp_path / first).is_file()


def test_videos_of_failures_only_and_a_successful_retry_removes_the_errors_video(tmp_path, plan):
    failed, _ = run(tmp_path, plan, FakeWorld(), FakePolicy(fails_at=1), video="failures")
    assert [path.name for path in tmp_path.rglob("*.mp4")] == ["task00_ep003_seed7_error.mp4"]
    assert failed.video is not None
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, plan, FakeWorld(success_at=8), FakePolicy(interrupted_at=1), video="failures")
    assert (tmp_path / failed.video).exists()
    run(tmp_path, plan, FakeWorld(success_at=8), FakePolicy(), video="failures")
    assert not list(tmp_path.rglob("*.mp4"))


def captions(task, text, *, step=6):
    """An episode of two queries at steps 0 and 4; the text is of the first, and delivered at a step."""
    words = {"instructions": {0: "x", 3: "y"}, "policy": "mine", "mode": "unified", "has_texts": True}
    made = EpisodeCaptions(KEY, **words, assets="libero", clock=Fixed(50, 200), limit_s=9.0, control_hz=20.0)
    said = text_finished(0, task=task, text=text, step=step)
    truths = {step: FakeWorld(steps=step).truth()}
    for start, delivered in ((0, []), (4, [said])):
        latency = Latency(actions_ms=50.0, busy_ms=200.0)
        query = QueryRecord(step=start, steps=4, actions_step=start + 1, free_step=start + 4, truths=truths)
        made.add(dataclasses.replace(query, latency=latency, delivered=delivered))
        if start == 0:
            assert made.at(3).narration is made.at(3).memory is None
            assert made.at(3).task == "x", "what the policy was told in its last query"
    assert made.at(4).task == "y"
    return made


@pytest.mark.parametrize(("given", "shown"), [("none", ""), ("light:3+camera:2", " · camera:2+light:3")])
def test_a_video_says_what_of_its_episode_is_perturbed(given, shown):
    words = {"instructions": {0: "x"}, "policy": "mine", "mode": "actions", "has_texts": False}
    how = {"assets": "libero", "limit_s": 9.0, "control_hz": 20.0, "perturb": parse_perturbations(given)}
    begun = f"libero_object · task 0 · init 3 · seed {KEY.seed}"
    assert EpisodeCaptions(KEY, **words, **how, clock=PAUSED).at(0).episode == begun + shown


@pytest.mark.parametrize(
    ("task", "text", "mark", "parts"),
    [
        ("narration", "Carrying the black bowl to the plate.", "right", [None]),
        ("narration", "Carrying the black bowl.", "wrong", [None]),
        ("narration", "Hm.", "unreadable", [None]),
        ("memory", "nothing done yet; the black bowl is in the gripper", "right", ["right", "right"]),
        ("memory", "nothing done yet; the black bowl is on the table", "wrong", ["right", "wrong"]),
        ("memory", "nothing done yet; hm", "unreadable", ["right", "unreadable"]),
    ],
)
def test_a_text_is_marked_when_it_is_delivered_a_memory_also_part_by_part(task, text, mark, parts):
    made = captions(task, text)
    assert getattr(made.at(5), task) is None
    caption = made.at(6)
    shown = getattr(caption, task)
    assert (shown.text, shown.mark, shown.seen_s) == (text, mark, 0.0)
    assert [each for _, each in shown.parts] == parts
    assert caption.time_s == 0.3
    assert [latency.busy_ms for latency in caption.latencies] == [200.0, 200.0]


def test_a_video_shows_a_text_from_the_control_step_of_its_delivery_on(tmp_path, plan, monkeypatch):
    frames = []

    class Noting(EpisodeVideo):
        def add(self, images, steps, *, caption):
            said = caption.narration and caption.narration.text
            frames.extend([(int(images["image"][0, 0, 0]), said)] * steps)

    monkeypatch.setattr(recorder, "EpisodeVideo", Noting)
    run = Run(config=RunConfig(video="all"), folder=RunFolder(tmp_path))
    episode, seen = EpisodeRecorder(run, plan, KEY), FakeWorld().observe()
    picture = Snapshot(step=5, camera="image", image=np.full((8, 8, 3), 200, np.uint8))
    said = [text_finished(0, text=text, step=step) for text, step in (("A.", 3), ("B.", 6), ("C.", 8))]
    query = QueryRecord(index=0, steps=8, delivered=said, pictures=[picture], observation=seen)
    episode.add(query)
    episode.add(dataclasses.replace(query, index=1, step=8, steps=1, delivered=[], pictures=[]))
    episode.abandon()
    assert frames == [*[(0, None)] * 3, *[(0, "A.")] * 2, (200, "A."), *[(200, "B.")] * 2, (0, "C.")]


def recorded(folder, config, **changes):
    (run,) = played(folder, config.model_copy(update=changes), executor=SERIAL)
    (record,) = timeless(run).values()
    (episode,) = run.folder.episodes().values()
    return run.folder, dataclasses.replace(episode, video=None), record


@pytest.fixture
def shown(monkeypatch):
    """The images that videos show, and for how many control steps."""
    images = []

    class Noting(EpisodeVideo):
        def add(self, images_, steps, *, caption):
            images.append((next(iter(images_.values())).copy(), steps))
            super().add(images_, steps, caption=caption)

    monkeypatch.setattr(recorder, "EpisodeVideo", Noting)
    return images


@pytest.mark.parametrize("suite", [pytest.param("libero_object", marks=pytest.mark.slow), "gym_reacher"])
def test_a_smooth_video_changes_neither_records_nor_protocol(tmp_path, suite, shown):
    (tmp_path / "looking.py").write_text(POLICY)
    looking = {"policy": f"{tmp_path}/looking.py:Mine", "assets": "standins", "num_steps_wait": 2}
    config = RunConfig(
        suites=(suite,),
        task_ids=(0,),
        init_ids=(3,),
        max_steps=12,
        clock="fixed:100,400",
        mode="actions",
        video="none",
        **(looking if suite == "libero_object" else {"policy": "random"}),
    )
    without, _, expected = recorded(tmp_path / "without", config)
    rare, _, _ = recorded(tmp_path / "rare", config, video="all", video_every=6)
    few = len(shown)
    smooth, _, record = recorded(tmp_path / "smooth", config, video="all", video_every=1)
    assert record[1] == expected[1]
    assert {**record[0], "video": None} == {**expected[0], "video": None}
    images, steps = zip(*shown[few:], strict=True)
    assert steps == (1,) * 12
    assert not any(np.array_equal(one, other) for one, other in itertools.pairwise(images))
    queries = {query["step"] for query in record[1]}
    assert few == len(queries | {step + 6 for step in queries if step + 6 < 12})
    assert smooth.read_manifest()["config"]["video_every"] == 1
    assert read_identity(smooth).protocol_hash == read_identity(without).protocol_hash
    assert compare(smooth, rare).actions.bitwise_equal
