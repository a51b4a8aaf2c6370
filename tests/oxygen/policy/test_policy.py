"""The policy as a loop sees it: what must not depend on the mode, guided chunks, texts with an adapter."""

import dataclasses

import numpy as np
import pytest

from contracts.errors import UsageError
from contracts.mode import Mode
from contracts.observation import ActionPrefix
from contracts.text import EpisodeEnd, Reply
from oxygen.serving.engine_config import EngineConfig
from oxygen.serving.language import LanguageTask
from oxygen.serving.requests import Sampling
from oxygen.weights.adapter import AdapterSource
from tests.oxygen.compiling import compile_soon
from tests.oxygen.conftest import SMALL, TASKS, answered, small_policy

QUERIES = 14


@dataclasses.dataclass(frozen=True)
class Episode:
    """The bytes of its actions, and what was told beside them."""

    actions: bytes
    replies: list[Reply]
    end: EpisodeEnd

    @property
    def texts(self):
        return {text.request_id: text for reply in self.replies for text in reply.finished}


def answer(policy, observation):
    return policy.act(observation), policy.complete()


def episode(policy, observe, *, seed=7, queries=QUERIES):
    policy.reset(seed)
    actions, replies = zip(*(answer(policy, observe(number)) for number in range(queries)), strict=True)
    return Episode(np.stack(actions).tobytes(), list(replies), policy.finish())


@pytest.fixture(scope="module")
def episodes(in_mode, observe):
    return {mode: episode(in_mode(mode), observe) for mode in Mode}


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.ACTIONS])
def test_actions_are_the_same_bits_with_and_without_language_and_texts_the_same_in_every_mode(episodes, mode):
    assert sum(reply.tokens for reply in episodes[mode].replies) > 0
    assert episodes[mode].actions == episodes[Mode.ACTIONS].actions
    alone = episodes[Mode.ISOLATED].texts
    assert len({text.text for text in alone.values()}) > len(alone) / 2, "too alike to prove anything"
    for request_id, text in episodes[mode].texts.items():
        for field in ("task", "requested_query", "text", "tokens", "reason"):
            assert getattr(text, field) == getattr(alone[request_id], field)


@pytest.mark.parametrize("mode", list(Mode))
def test_the_reply_says_what_was_computed_for_its_texts_and_when(episodes, mode):
    """And a text, after which decode step of which job it was known."""
    for reply in episodes[mode].replies:
        times = reply.timings_ms
        assert all(value >= 0 for value in times.values())
        assert times["frame"] == times["action"] + times["decode"]
        assert times["action"] >= times["preprocess"] + times["prefill"] + times["denoise"]
        assert mode is not Mode.ACTIONS or times["decode"] == 0
        for text in reply.finished:
            assert 1 <= text.job_steps <= reply.work[text.job].steps
            assert mode in (Mode.INTERLEAVED, Mode.UNIFIED) or text.job_steps == text.tokens
            assert 0 < text.after_ms <= text.latency_ms + 1e-6
            assert text.times.requested_s < text.times.first_token_s <= text.times.finished_s
            assert text.latency_ms <= 1e3 * (text.times.finished_s - text.times.requested_s)
        assert reply.work is not None
        new, own = len(reply.requested), mode in (Mode.ISOLATED, Mode.INTERLEAVED, Mode.PARALLEL)
        assert sum(job.prefills for job in reply.work) == (new if own else 0)
        match mode:
            case Mode.ACTIONS:
                assert not reply.work
            case Mode.UNIFIED:
                assert [job.steps for job in reply.work] == [reply.tokens_per_frame] * len(reply.work)
                assert sum(job.forks for job in reply.work) == bool(new)
            case Mode.INTERLEAVED:
                assert len(reply.work) >= new
                assert {job.batch for job in reply.work} == {1}
                assert max(job.steps for job in reply.work) == reply.tokens_per_frame
                assert [job.forks for job in reply.work] == [job.prefills for job in reply.work]
            case Mode.SHARED:
                assert len(reply.work) == bool(new)
            case _:
                assert [(job.forks, job.batch) for job in reply.work] == [(1, 1)] * new


def test_the_same_episode_gives_the_same_bytes_again_and_another_seed_does_not(policy, observe):
    first = episode(policy, observe, seed=3, queries=3)
    again = episode(policy, observe, seed=3, queries=3)
    other = episode(policy, observe, seed=2**40 + 3, queries=3)
    assert first.actions == again.actions != other.actions
    assert first.texts.keys() == again.texts.keys()


def test_actions_depend_on_every_camera_and_on_the_prompt(policy, observe):
    def first_actions(**changes):
        policy.reset(7)
        return policy.act({**observe(0), **changes})

    as_seen = first_actions()
    assert not np.array_equal(as_seen, first_actions(prompt="open the top drawer"))
    for camera in ("image", "wrist_image"):
        dark = {**observe(0)["images"], camera: np.zeros((64, 48, 3), np.uint8)}
        assert not np.array_equal(as_seen, first_actions(images=dark))


def test_texts_run_to_their_end_within_the_query_unless_unified(episodes):
    for mode in (Mode.ISOLATED, Mode.SHARED, Mode.PARALLEL):
        assert all(text.finished_query == text.requested_query for text in episodes[mode].texts.values())
    unified = episodes[Mode.UNIFIED].texts.values()
    longest = {task.name: task.max_tokens for task in TASKS}
    assert any(text.finished_query > text.requested_query for text in unified)
    for text in unified:
        queries = text.finished_query - text.requested_query + 1
        assert queries == -(-text.tokens // 3), "three tokens a query, from the one it was requested in"
        assert text.tokens <= longest[text.task]
        assert text.reason == ("length" if text.tokens == longest[text.task] else "stop")


def test_nothing_is_compiled_after_warm_up(policy, in_mode, observe):
    before = policy.compiles_after_warm_up
    for mode in Mode:
        assert episode(in_mode(mode), observe, queries=4).end.compiles_after_warm_up == before
    assert policy.compiles_after_warm_up == before


def test_every_query_is_completed_once_before_the_next_unless_the_episode_ends(policy, observe):
    policy.reset(7)
    assert policy.complete() is None
    policy.act(observe(0))
    with pytest.raises(UsageError, match="not complete"):
        policy.act(observe(1))
    policy.complete()
    assert policy.complete() is None
    policy.act(observe(1))
    policy.reset(7)
    assert policy.finish().cancelled == 0


def test_an_observation_that_makes_no_sense_is_refused_in_one_line(policy, observe):
    policy.reset(7)
    with pytest.raises(UsageError, match=r"^[^\n]*state holds nan at 7[^\n]*$"):
        policy.act({**observe(0), "state": np.array([0.0] * 7 + [np.nan])})
    assert policy.act(observe(0)).shape == (10, 7), "the policy is as good as before"


def test_parts_that_do_not_fit_are_refused(policy):
    with pytest.raises(UsageError, match="rows is 9; the programs take 8 at most"):
        policy.with_engine(EngineConfig(slots=10, rows=9))
    task = LanguageTask(name="a", prompt="b", max_tokens=1)
    small_vocabulary = dataclasses.replace(SMALL, vocab_size=100)
    with pytest.raises(UsageError, match="768 tokens"):
        small_policy(config=small_vocabulary)
    drawn = dataclasses.replace(task, sampling=Sampling(temperature=0.7, top_k=SMALL.vocab_size + 1))
    with pytest.raises(UsageError, match="'a': top_k is 769, the model has 768 tokens"):
        small_policy(tasks=[drawn])


UNDER_WAY = {"action_prefix": ActionPrefix(first=2, delay=3)}


@pytest.fixture(scope="module")
def guidable():
    return small_policy(EngineConfig(slots=12, rows=12, robots=2, guided=True))


def second_chunks(policy, first, second, mode=Mode.ACTIONS):
    """What robots are answered in their second query, and its stages."""
    policy = policy.with_engine(dataclasses.replace(policy.engine, mode=mode))
    for robot in range(2):
        policy.reset(robot, 7 + robot)
    policy.act(first)
    policy.complete()
    chunks = policy.act(second)
    return chunks, {robot: reply.timings_ms for robot, reply in policy.complete().items()}


def test_a_guided_chunk_agrees_with_what_will_have_been_executed(guidable, observe):
    first, second = {0: observe(0)}, {0: observe(1)}
    guidable.reset(0, 7)
    before, _ = answered(guidable, first[0])
    (free,) = second_chunks(guidable, first, second)[0].values()
    (pulled,) = second_chunks(guidable, first, {0: second[0] | UNDER_WAY})[0].values()

    def distance(chunk):
        return np.abs(chunk[:3] - before[2:5]).mean()

    assert distance(pulled) < 0.2 * distance(free)


@pytest.mark.parametrize(
    "modes",
    [
        pytest.param((Mode.UNIFIED, Mode.INTERLEAVED, Mode.SHARED, Mode.ISOLATED), id="in this process"),
        pytest.param((Mode.PARALLEL,), id="in two processes", marks=pytest.mark.slow),
    ],
)
def test_neither_company_nor_mode_changes_a_bit(guidable, observe, modes):
    before = guidable.compiles_after_warm_up
    first, second = {0: observe(0), 1: observe(1)}, {0: observe(2), 1: observe(3)}
    guided = {robot: one | UNDER_WAY for robot, one in second.items()}
    free, _ = second_chunks(guidable, first, second)
    both, _ = second_chunks(guidable, first, guided)
    mixed, stages = second_chunks(guidable, first, {0: guided[0], 1: second[1]})
    alone, _ = second_chunks(guidable, first, {0: guided[0]})
    assert np.array_equal(mixed[0], both[0])
    assert np.array_equal(alone[0], both[0])
    assert np.array_equal(mixed[1], free[1])
    assert not np.array_equal(both[0], free[0])
    assert ["guided_denoise" in stages[robot] for robot in range(2)] == [True, False]
    assert ["denoise" in stages[robot] for robot in range(2)] == [False, True]
    for mode in modes:
        again, _ = second_chunks(guidable, first, guided, mode)
        assert all(np.array_equal(again[robot], both[robot]) for robot in range(2)), mode
    assert guidable.compiles_after_warm_up == before


def test_a_query_without_an_old_chunk_is_answered_as_without_guidance(guidable, observe):
    """That is why overlap `rtc` equals `skip` where nothing overlaps."""
    plain = small_policy(dataclasses.replace(guidable.engine, guided=False))
    first, second = {0: observe(0), 1: observe(1)}, {0: observe(2), 1: observe(3)}
    expected, _ = second_chunks(plain, first, second)
    found, _ = second_chunks(guidable, first, second)
    assert all(np.array_equal(found[robot], expected[robot]) for robot in range(2))


def test_what_is_not_under_way_is_refused(guidable, policy, observe):
    policy.reset(7)
    with pytest.raises(UsageError, match="serve the policy with `guided=True`"):
        policy.act(observe(0) | UNDER_WAY)
    with pytest.raises(UsageError, match="guided is True; the programs were compiled with False"):
        policy.with_engine(dataclasses.replace(policy.engine, guided=True))
    guidable.reset(0, 7)
    with pytest.raises(UsageError, match="the last chunk of the episode has 0 actions; leave it out"):
        guidable.act({0: observe(0) | UNDER_WAY})
    answered(guidable, observe(0))
    with pytest.raises(UsageError, match=r"first=10, .* has 10 actions"):
        guidable.act({0: observe(0) | {"action_prefix": ActionPrefix(first=10, delay=1)}})
    with pytest.raises(UsageError, match="`delay` at least 1"):
        ActionPrefix(first=0, delay=0)


ALONE = LanguageTask(name="memory", prompt="Memory: ", max_tokens=6)


@pytest.fixture
def compiled_soon(monkeypatch):
    """For one test, since the module's others compare policies that are optimised."""
    compile_soon(monkeypatch)


def answers(observe, mode, adapter=None):
    """Actions of three queries, and the text of each; unified decodes a text within its query."""
    engine = EngineConfig(mode=mode, slots=2, rows=1)
    policy = small_policy(engine, tasks=[ALONE], adapter=adapter)
    chunks, texts = [], []
    policy.reset(0, 11)
    for number in range(3):
        actions, reply = answered(policy, observe(number))
        chunks.append(actions.tobytes())
        texts += [text.text for text in reply.finished]
    policy.close()
    return chunks, texts


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_soon")
@pytest.mark.parametrize("mask", ["exact", "published"])
def test_with_an_adapter_actions_are_the_same_bits_and_texts_the_same_in_every_mode(observe, mask):
    adapter = AdapterSource(rank=4, mask=mask)
    without, silent = answers(observe, Mode.ACTIONS)
    assert silent == []
    _, base_texts = answers(observe, Mode.ISOLATED)
    found = {mode: answers(observe, mode, adapter) for mode in Mode}
    assert all(chunks == without for chunks, _ in found.values())
    _, wanted = found[Mode.ISOLATED]
    assert wanted != base_texts
    assert found[Mode.PARALLEL][1] == found[Mode.SHARED][1] == wanted
    assert found[Mode.UNIFIED][1] == wanted[: len(found[Mode.UNIFIED][1])] != []


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_soon")
def test_with_an_adapter_a_row_of_the_batch_does_not_change_its_text(observe):
    adapter, texts = AdapterSource(rank=4, mask="published"), []
    for robots in (1, 2):
        engine = EngineConfig(mode=Mode.SHARED, slots=1, rows=1, robots=robots)
        config = dataclasses.replace(SMALL, prompt_buckets=(SMALL.max_prompt,))
        policy = small_policy(engine, config=config, tasks=[ALONE], adapter=adapter)
        policy.act(dict.fromkeys(range(robots), observe(0)))
        texts.append([text.text for reply in policy.complete().values() for text in reply.finished])
    assert texts[1] == texts[0] * 2
