"""What a policy read in its prompt is recorded, and its demonstrations keep the instruction."""

import json

import pytest

from configs.errors import UsageError
from configs.signals import DeferredSignals
from eval.collect.collection import collect_demonstrations
from eval.collect.demonstrators import CorrectedLearner, NoiseFreeDemonstrator
from eval.collect.episode import demonstrate
from eval.collect.plan import make_jobs
from sim_envs.fake import FakeWorld
from tests.eval.collect.collecting import Counting, config
from tests.eval.doubles import without_physics
from tests.eval.rollout.test_feedback import MEMORY, Writer


def test_the_texts_in_the_prompt_of_each_frame_are_recorded(monkeypatch):
    without_physics(monkeypatch)
    options = config(feedback="own", keep_failures=True)
    job = make_jobs(options)[0]
    writer = NoiseFreeDemonstrator(Writer("lifted: it # times"))
    world = FakeWorld(success_at=13)
    played = demonstrate(world, writer, job, options, DeferredSignals(), MEMORY)
    read = [json.loads(row) for row in played.rows["oxygen.feedback"].to_pylist()]
    assert read == [{}, {"memory": "lifted it 0 times"}, {"memory": "lifted it 1 times"}]
    assert played.language == FakeWorld().language


def test_a_learner_keeps_writing_while_the_expert_corrects_it(monkeypatch):
    without_physics(monkeypatch)
    options = config(feedback="own", keep_failures=True, max_steps=400)
    writer = Writer("lifted it # times")
    acting = CorrectedLearner(writer, Counting(), keeps_writing=True)
    played = demonstrate(FakeWorld(), acting, make_jobs(options)[0], options, DeferredSignals(), MEMORY)
    read = [json.loads(row).get("memory") for row in played.rows["oxygen.feedback"].to_pylist()]
    assert read == [None, *(f"lifted it {query} times" for query in range(len(read) - 1))]


def test_a_dataset_of_a_policy_that_reads_no_texts_has_no_such_column(monkeypatch):
    without_physics(monkeypatch)
    options = config()
    writer = NoiseFreeDemonstrator(Writer("?"))
    played = demonstrate(FakeWorld(success_at=3), writer, make_jobs(options)[0], options, DeferredSignals())
    assert "oxygen.feedback" not in played.rows.column_names


def test_feedback_of_a_policy_that_reads_none_is_refused(monkeypatch, tmp_path):
    without_physics(monkeypatch)
    with pytest.raises(UsageError, match="--feedback own: policy 'tiny' was not trained with texts"):
        collect_demonstrations(config(policy="tiny", feedback="own"), tmp_path, workers=1)
