"""The oracle reads the truth aloud when texts are due, and is never taken for a policy that speaks."""

import dataclasses

import numpy as np
import pytest

from configs.errors import UsageError
from configs.language_task import LanguageTaskConfig
from configs.load import check, load
from configs.schema import PolicyConfig, RunConfig
from eval.metrics.language import HEADLINES, ORACLE, EpisodeGrader
from eval.policies.scripted import Scripted, open_scripted
from eval.records.query_logs import QueryRecord
from eval.rollout.rollout import rollout
from sim_envs.fake import FakeSuite, FakeWorld
from sim_envs.libero.tasks import LIBERO_INTERFACE
from sim_envs.scripted.policy import Noop
from sim_envs.truth.wording import parse_narration
from sim_envs.world import EpisodeKey
from tests.eval.doubles import FakePolicy, libero_object

KEY = EpisodeKey(suite="libero_object", task_id=0, init_id=0, seed=7)
TASKS = [load(LanguageTaskConfig, name) for name in HEADLINES]


def spoken(tasks, queries=6, key=KEY):
    """What the oracle says in each query of an episode of the fake world, and its scores."""
    world = FakeWorld()
    policy = Scripted(LIBERO_INTERFACE, lambda: Noop(LIBERO_INTERFACE), world, tasks)
    grader = EpisodeGrader(control_hz=20.0)
    world.reset(init_id=0, seed=7, settle_steps=0)
    policy.reset(key)
    said = []
    for _ in range(queries):
        policy.act(world.observe())
        reply = policy.complete()
        assert [text.request for text in reply.finished] == list(reply.requested)
        truth = world.truth()
        texts = [dataclasses.replace(text, step=world.steps) for text in reply.finished]
        grader.add(
            QueryRecord(
                actions=np.zeros((3, 7)),
                timings_ms={},
                step=world.steps,
                truths={world.steps: truth},
                delivered=texts,
            )
        )
        said.append(reply.finished)
        world.advance(np.zeros((3, 7)))
    return said, grader.scores()


def test_oracle_texts_finish_in_their_query_and_are_right():
    said, scores = spoken(TASKS)
    rare, often = ["narration", "memory", "textual_memory"], ["narration", "textual_memory"]
    assert [[text.task for text in query] for query in said] == [rare, *[often] * 3, rare, often]
    for query, texts in enumerate(said):
        assert all(text.requested_query == text.finished_query == query for text in texts)
        assert all((text.reason, text.tokens) == (ORACLE, 0) for text in texts)
    for task, row in scores.items():
        assert row.oracle == row.texts > row.not_graded == 0
        assert row.at_request[HEADLINES[task]].hits == row.on_delivery[HEADLINES[task]].of


def test_an_episode_has_one_wording_and_episodes_have_several():
    texts = {
        spoken(TASKS, queries=1, key=EpisodeKey(suite="s", task_id=0, init_id=init_id, seed=7))[0][0][0].text
        for init_id in range(20)
    }
    assert len(texts) == 3
    assert len({parse_narration(text) for text in texts}) == 1


def test_only_requested_texts_with_a_truth_are_written_and_none_in_mode_actions():
    poem = TASKS[0].model_copy(update={"name": "poem"})
    assert spoken([])[0] == spoken([poem])[0] == [()] * 6
    preset = PolicyConfig(name="still", kind="noop", generates_text="truth")
    suite, world = FakeSuite(), FakeWorld()
    for mode, count in (("actions", 0), ("unified", 3)):
        opened = open_scripted(preset, TASKS, RunConfig(mode=mode))
        policy = opened.in_world(suite, world)
        policy.reset(KEY)
        policy.act(world.observe())
        assert len(policy.complete().finished) == count
        assert opened.writes_texts == (count > 0)


def test_only_scripted_policies_take_generates_text():
    wrong = {"name": "x", "kind": "oxygen", "description": "x", "model": "tiny", "generates_text": "truth"}
    with pytest.raises(UsageError, match="for scripted policies only"):
        check(PolicyConfig, wrong, source="x")


def test_the_truth_is_recorded_and_hidden_from_the_policy():
    queries = list(rollout(FakeWorld(success_at=11), FakePolicy(), KEY, libero_object(max_steps=15)))
    world = FakeWorld(success_at=11)
    for query in queries:
        world.steps = query.step
        assert query.truth == world.truth()
        assert not hasattr(query.observation, "truth")
