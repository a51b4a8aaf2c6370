"""A policy served with a deadline that leaves too little time for its texts: who waits, who is dropped."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from configs.language_task import LanguageTaskConfig
from configs.load import load
from configs.schema import RunConfig
from eval.policies.engine import engine_for
from oxygen.policy.vector_policy import VectorPolicy
from oxygen.presets.language_tasks import language_task
from oxygen.robots import tokenizer
from oxygen.robots.transforms import LIBERO, untrained
from oxygen.serving.runner import ProgramSizes
from oxygen.serving.scheduler import Deadline
from tests.oxygen.serving.fake_runner import FakeRunner

TASKS = tuple(language_task(load(LanguageTaskConfig, name)) for name in ("narration", "memory"))
WITH_A_DEADLINE = RunConfig(deadline_ms=50.0)
SEEN = {
    "images": dict.fromkeys(("image", "wrist_image"), np.zeros((28, 28, 3), np.uint8)),
    "state": np.zeros(8),
    "prompt": "",
}


class StepBudget(Deadline):
    """Decode steps that fit the deadline, by frame."""

    def __init__(self, steps):
        super().__init__(ms=50.0)
        object.__setattr__(self, "_steps", iter(steps))

    def steps(self, *, spent_ms, step_ms):
        return next(self._steps)


def replies(config, steps):
    engine = engine_for(TASKS, [config])
    sizes = ProgramSizes(slots=engine.slots, rows=(1, engine.rows), forks=(2,), suffix=4, limit=48)
    policy = VectorPolicy(
        FakeRunner(sizes),
        dataclasses.replace(engine, budget=StepBudget(steps)),
        tokenizer=tokenizer.tiny(),
        tasks=TASKS,
        transform=untrained(LIBERO),
    )
    return [answered(policy) for _ in steps]


def answered(policy):
    policy.act({0: SEEN})
    return policy.complete()[0]


spells = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 30)), min_size=1, max_size=4)


@given(spells)
@example([(1, 40)])
@example([(4, 30), (3, 15)])
@settings(max_examples=4)
def test_an_older_waiting_text_is_dropped_for_a_newer_one(spells):
    steps = list(itertools.chain.from_iterable([count] * frames for count, frames in spells))
    for query, reply in enumerate(replies(WITH_A_DEADLINE, steps)):
        assert all(text.query < query for text in reply.dropped)


def test_narration_continues_while_memory_waits():
    answers = replies(WITH_A_DEADLINE, [2] * 30 + [24] * 10)
    scarce = [text.task for reply in answers[:30] for text in reply.finished]
    ample = [text.task for reply in answers[30:] for text in reply.finished]
    assert scarce.count("narration") > 8
    assert "memory" not in scarce
    assert ample.count("memory") > 2


def test_with_fixed_tokens_no_text_waits():
    engine = engine_for(TASKS, [RunConfig(tokens_per_frame=5)])
    assert engine.slots == engine.rows == 8
    assert not any(reply.dropped for reply in replies(RunConfig(tokens_per_frame=5), [5] * 40))


@pytest.mark.parametrize("first", [RunConfig(mode="isolated"), WITH_A_DEADLINE])
def test_programs_have_room_for_the_variant_with_a_deadline(first):
    engine = engine_for(TASKS, [first, WITH_A_DEADLINE])
    assert (engine.slots, engine.rows) == (18, 8)
