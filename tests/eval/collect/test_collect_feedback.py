"""What a policy read in its prompt is recorded, and its demonstrations keep the instruction."""

import dataclasses
import json

import pytest

from configs.errors import UsageError
from eval.collect.collection import collect_demonstrations, collect_from
from eval.collect.episode import CorrectedLearner
from eval.collect.store import EpisodeStore
from oxygen.training import layout
from sim_envs.fake import FakeWorld
from tests.eval.collect.collecting import Counting, config
from tests.eval.doubles import opened, without_physics
from tests.eval.rollout.test_feedback import MEMORY, Writer


def collected(folder, monkeypatch, acting, *, success_at=None, **changes):
    """The demonstration of an episode, and the memory in the prompt of each of its frames."""
    without_physics(monkeypatch, lambda task: FakeWorld(success_at=success_at))
    options = config(suites=("libero_object",), task_ids=(0,), init_ids=(0,), keep_failures=True, **changes)
    policy = dataclasses.replace(opened(acting), feedback=MEMORY if options.feedback else {})
    assert collect_from(lambda _: policy, options, folder, workers=1) == 0
    (stored,) = EpisodeStore(folder).demonstrations()
    rows = stored.rows()
    texts = rows[layout.FED].to_pylist() if layout.FED in rows.column_names else []
    return stored, [json.loads(text).get("memory") for text in texts]


def test_the_texts_in_the_prompt_of_each_frame_are_recorded(monkeypatch, tmp_path):
    writer = Writer("lifted: it # times")
    stored, read = collected(tmp_path, monkeypatch, writer, success_at=13, feedback="own")
    assert read == [None, "lifted it 0 times", "lifted it 1 times"]
    assert stored.language == "pick up the alphabet soup and place it in the basket"


def test_a_learner_keeps_writing_while_the_expert_corrects_it(monkeypatch, tmp_path):
    acting = CorrectedLearner(Writer("lifted it # times"), Counting(), keeps_writing=True)
    _, read = collected(tmp_path, monkeypatch, acting, max_steps=400, feedback="own")
    assert read == [None, *(f"lifted it {query} times" for query in range(len(read) - 1))]


def test_a_policy_that_reads_no_texts_has_no_such_column_and_takes_no_feedback(monkeypatch, tmp_path):
    _, read = collected(tmp_path, monkeypatch, Writer("?"), success_at=3)
    assert read == []
    with pytest.raises(UsageError, match="--feedback own: policy 'tiny' was not trained with texts"):
        collect_demonstrations(config(policy="tiny", feedback="own"), tmp_path, workers=1)
