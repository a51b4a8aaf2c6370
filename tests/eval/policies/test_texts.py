"""Texts of policies: tasks in YAML, those of an oracle, and who waits or is dropped under a deadline."""

import dataclasses

import numpy as np
import pytest
import yaml

from configs.errors import check
from configs.language_task import LanguageTaskConfig
from configs.load import load
from configs.schema import PolicyConfig, RunConfig
from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from contracts.query import QueryRecord
from eval.metrics.language import HEADLINES, ORACLE, EpisodeGrader
from eval.policies.engine import engine_for
from eval.policies.scripted import Scripted, open_scripted
from oxygen.policy.vector_policy import VectorPolicy
from oxygen.presets.language_tasks import language_task
from oxygen.robots import tokenizer
from oxygen.robots.transforms import LIBERO, untrained
from oxygen.serving.language import Burst, EveryN, Poisson, RandomLength, stop_token
from oxygen.serving.requests import GREEDY, Sampling
from oxygen.serving.runner import ProgramSizes
from oxygen.serving.scheduler import Deadline
from sim_envs.fake import FakeSuite, FakeWorld
from sim_envs.scripted.policy import Noop
from sim_envs.truth.wording import parse_narration
from tests.oxygen.serving.fake_runner import FakeRunner

KEY = EpisodeKey(suite="libero_object", task_id=0, init_id=0, seed=7)
HEADLINE_TASKS = [load(LanguageTaskConfig, name) for name in HEADLINES]


def spoken(tasks, queries=6, key=KEY):
    """What the oracle says in each query of an episode of the fake world, and its scores."""
    world = FakeWorld()
    policy = Scripted("noop", FakeSuite(), world, tasks=tasks)
    grader = EpisodeGrader(control_hz=20.0)
    policy.reset(key)
    said = []
    for _ in range(queries):
        policy.act(world.observe())
        reply = policy.complete()
        assert [text.request for text in reply.finished] == list(reply.requested)
        texts = [dataclasses.replace(text, step=world.steps) for text in reply.finished]
        grader.add(QueryRecord(step=world.steps, truths={world.steps: world.truth()}, delivered=texts))
        said.append(reply.finished)
        world.advance(np.zeros((3, 7)))
    return said, grader.scores()


@pytest.mark.parametrize(("asked", "known"), [(0.0, 0.0), (0.2, 0.25), (0.75, 0.75), (0.8, 1.0)])
def test_an_expert_knows_the_truth_of_its_prompt_which_is_that_of_a_query(asked, known):
    """With one every five steps of 50 ms."""

    class Suite(FakeSuite):
        def expert(self, world, *, noise=0.0, memory_age_s=0.0):
            assert memory_age_s == known
            return Noop(self.interface)

    Scripted("expert", Suite(), FakeWorld(), memory_age_s=asked).reset(KEY)


def test_oracle_texts_finish_in_their_query_and_are_right():
    said, scores = spoken(HEADLINE_TASKS)
    rare, often = ["narration", "memory", "textual_memory"], ["narration", "textual_memory"]
    assert [[text.task for text in query] for query in said] == [rare, *[often] * 3, rare, often]
    for query, texts in enumerate(said):
        told = {(text.requested_query, text.finished_query, text.reason, text.tokens) for text in texts}
        assert told == {(query, query, ORACLE, 0)}
    for task, row in scores.items():
        assert row.oracle == row.texts > row.not_graded == 0
        assert row.at_request[HEADLINES[task]].hits == row.on_delivery[HEADLINES[task]].of


def test_an_episode_has_one_wording_and_episodes_have_several():
    keys = [dataclasses.replace(KEY, init_id=init_id) for init_id in range(20)]
    episodes = [spoken(HEADLINE_TASKS, queries=1, key=key)[0] for key in keys]
    texts = {narration.text for ((narration, *_),) in episodes}
    assert len(texts) == 3
    assert len({parse_narration(text) for text in texts}) == 1


def test_only_requested_texts_with_a_truth_are_written_and_none_in_mode_actions():
    poem = HEADLINE_TASKS[0].model_copy(update={"name": "poem"})
    assert spoken([])[0] == spoken([poem])[0] == [()] * 6
    preset = PolicyConfig(name="still", kind="noop", generates_text="truth")
    suite, world = FakeSuite(), FakeWorld()
    for mode, count in (("actions", 0), ("unified", 3)):
        opened = open_scripted(preset, HEADLINE_TASKS, RunConfig(mode=mode))
        policy = opened.in_world(suite, world)
        policy.reset(KEY)
        policy.act(world.observe())
        assert len(policy.complete().finished) == count
        assert opened.writes_texts == (count > 0)
    wrong = {"name": "x", "kind": "oxygen", "description": "x", "model": "tiny", "generates_text": "truth"}
    with pytest.raises(UsageError, match="for scripted policies only"):
        check(PolicyConfig, wrong, source="x")


@pytest.fixture
def read(tmp_path):
    def of(**content):
        file = tmp_path / "mine.yaml"
        file.write_text(yaml.safe_dump({"name": "mine", "prompt": "Say: ", "max_tokens": 9, **content}))
        return language_task(load(LanguageTaskConfig, str(file)))

    return of


def random_length(min_tokens, max_tokens, n=1):
    inner = {"kind": "every_n", "n": n}
    return {"kind": "random_length", "arrivals": inner, "min_tokens": min_tokens, "max_tokens": max_tokens}


@pytest.mark.parametrize(
    ("content", "arrivals"),
    [
        ({"kind": "every_n", "n": 4}, EveryN(4)),
        ({"kind": "burst", "n": 2, "every": 8}, Burst(n=2, every=8)),
        ({"kind": "poisson", "rate": 0.5, "seed": 3}, Poisson(rate=0.5, seed=3)),
        (random_length(4, 9, n=2), RandomLength(arrivals=EveryN(2), min_tokens=4, max_tokens=9, seed=0)),
    ],
)
def test_arrivals_are_built_by_kind(read, content, arrivals):
    assert read(arrivals=content).arrivals == arrivals


def test_by_default_a_task_is_requested_at_every_query_greedy_and_ended_by_the_end_token(read):
    assert (read().arrivals, read().sampling) == (EveryN(1), GREEDY)
    sampled = read(sampling={"temperature": 0.7, "top_k": 40})
    assert sampled.sampling == Sampling(temperature=0.7, top_k=40)
    vocabulary = tokenizer.tiny()
    assert stop_token(read(), vocabulary) == vocabulary.eos
    assert [stop_token(read(stop=stop), vocabulary) for stop in (".", "\n")] == [750, 4]
    with pytest.raises(UsageError, match=r"stop 'done' is 2 tokens \('d', 'one'\); give a single one"):
        stop_token(read(stop="done"), vocabulary)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"arrivals": {"kind": "evry_n", "n": 1}}, "did you mean 'every_n'"),
        ({"arrivals": {"kind": "every_n", "n": 0}}, "arrivals.every_n.n"),
        ({"arrivals": {"kind": "burst", "n": 2**16 + 1, "every": 1}}, "arrivals.burst.n"),
        ({"arrivals": {"kind": "burst", "n": 1, "evry": 2}}, "arrivals.burst.ev"),
        ({"arrivals": {"kind": "poisson", "rate": -1}}, "arrivals.poisson.rate"),
        ({"arrivals": random_length(9, 4)}, "max_tokens is 4"),
        ({"arrivals": random_length(9, 40)}, "up to 40 tokens, its max_tokens is 9"),
        ({"sampling": {"temperature": -1}}, "sampling.temperature"),
        ({"sampling": {"top_k": 0}}, "sampling.top_k"),
        ({"prompt": ""}, "prompt is ''"),
        ({"stop": ""}, "at least 1 character"),
    ],
)
def test_an_invalid_language_task_is_refused_in_one_line(read, content, said):
    with pytest.raises(UsageError, match=said):
        read(**content)


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


def test_narration_continues_while_memory_waits():
    answers = replies(WITH_A_DEADLINE, [2] * 30 + [24] * 10)
    scarce = [text.task for reply in answers[:30] for text in reply.finished]
    ample = [text.task for reply in answers[30:] for text in reply.finished]
    assert scarce.count("narration") > 8
    assert "memory" not in scarce
    assert ample.count("memory") > 2


def test_programs_have_room_for_the_variant_with_a_deadline_and_with_fixed_tokens_no_text_waits():
    for first in (RunConfig(mode="isolated"), WITH_A_DEADLINE):
        engine = engine_for(TASKS, [first, WITH_A_DEADLINE])
        assert (engine.slots, engine.rows) == (18, 8)
    fixed = RunConfig(tokens_per_frame=5)
    engine = engine_for(TASKS, [fixed])
    assert engine.slots == engine.rows == 8
    assert not any(reply.dropped for reply in replies(fixed, [5] * 40))
