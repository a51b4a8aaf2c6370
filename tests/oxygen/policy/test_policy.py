"""The policy as a loop sees it: what must not depend on the mode, what the replies tell, what is refused."""

import dataclasses

import numpy as np
import pytest

from configs.errors import UsageError
from oxygen.policy.policy import EngineConfig, create_policy
from oxygen.robots import tokenizer
from oxygen.serving.budget import FixedTokens
from oxygen.serving.language import LanguageTask
from oxygen.serving.scheduler import Mode
from tests.oxygen.conftest import SMALL, TASKS

QUERIES = 14


def episode(policy, observe, *, seed=7, queries=QUERIES):
    policy.reset(seed)
    replies = [policy.infer(observe(number)) for number in range(queries)]
    return replies, policy.finish()


def actions_of(replies):
    return np.stack([reply.actions for reply in replies])


def texts_of(replies):
    return {text.request_id: text for reply in replies for text in reply.finished}


@pytest.fixture(scope="module")
def episodes(in_mode, observe):
    return {mode: episode(in_mode(mode), observe) for mode in Mode}


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.ACTIONS])
def test_actions_are_equal_bit_for_bit_with_and_without_language(episodes, mode):
    without, _ = episodes[Mode.ACTIONS]
    with_language, _ = episodes[mode]
    assert sum(reply.tokens for reply in with_language) > 0
    assert actions_of(with_language).tobytes() == actions_of(without).tobytes()


def test_a_text_is_the_same_in_every_mode(episodes):
    alone = texts_of(episodes[Mode.ISOLATED][0])
    assert len({text.text for text in alone.values()}) > len(alone) / 2, "too alike to prove anything"
    for mode in (Mode.SHARED, Mode.UNIFIED, Mode.PARALLEL):
        for request_id, text in texts_of(episodes[mode][0]).items():
            same = ("task", "born_query", "text", "tokens", "reason")
            for field in same:
                assert getattr(text, field) == getattr(alone[request_id], field)


@pytest.mark.parametrize(("tokens_per_frame", "rows"), [(1, 8), (2, 3), (17, 8)])
def test_a_text_is_the_same_over_any_frame_boundaries_and_in_any_company(
    policy, observe, episodes, tokens_per_frame, rows
):
    engine = EngineConfig(budget=FixedTokens(tokens_per_frame), slots=10, rows=rows)
    other = policy.served(engine)
    replies, _ = episode(other, observe)
    alone = texts_of(episodes[Mode.ISOLATED][0])
    texts = texts_of(replies)
    assert texts
    assert {key: text.text for key, text in texts.items()} == {key: alone[key].text for key in texts}


def test_the_same_episode_gives_the_same_bytes_again_and_another_seed_does_not(policy, observe):
    first, _ = episode(policy, observe, seed=3, queries=3)
    again, _ = episode(policy, observe, seed=3, queries=3)
    other, _ = episode(policy, observe, seed=2**40 + 3, queries=3)
    assert actions_of(first).tobytes() == actions_of(again).tobytes()
    assert not np.array_equal(actions_of(first), actions_of(other))
    assert texts_of(first).keys() == texts_of(again).keys()


def test_noise_is_new_in_every_query(policy, observe):
    policy.reset(7)
    seen = observe(0)
    assert not np.array_equal(policy.infer(seen).actions, policy.infer(seen).actions)


def test_actions_depend_on_every_camera_and_on_the_prompt(policy, observe):
    def first_actions(**changes):
        policy.reset(7)
        return policy.infer({**observe(0), **changes}).actions

    as_seen = first_actions()
    assert not np.array_equal(as_seen, first_actions(prompt="open the top drawer"))
    for camera in ("image", "wrist_image"):
        dark = {**observe(0)["images"], camera: np.zeros((64, 48, 3), np.uint8)}
        assert not np.array_equal(as_seen, first_actions(images=dark))


def test_every_request_is_born_once_and_finished_dropped_or_cancelled_once(episodes):
    for mode, (replies, tail) in episodes.items():
        born = [born.request_id for reply in replies for born in reply.born]
        finished = [text.request_id for reply in replies for text in reply.finished]
        dropped = [text.request_id for reply in replies for text in reply.dropped]
        cancelled = [text.request_id for text in tail.requests]
        expected = 0 if mode is Mode.ACTIONS else QUERIES + len(range(0, QUERIES, 3))
        assert born == list(range(expected))
        assert sorted(finished + dropped + cancelled) == born
        assert tail.cancelled == len(cancelled)


def test_texts_run_to_their_end_within_the_query_unless_unified(episodes):
    for mode in (Mode.ISOLATED, Mode.SHARED, Mode.PARALLEL):
        assert all(text.finished_query == text.born_query for text in texts_of(episodes[mode][0]).values())
    unified = texts_of(episodes[Mode.UNIFIED][0]).values()
    longest = {task.name: task.max_tokens for task in TASKS}
    assert any(text.finished_query > text.born_query for text in unified)
    for text in unified:
        frames = text.finished_query - text.born_query + 1
        assert frames == -(-text.tokens // 3), "three tokens a frame, from the frame of birth on"
        assert text.tokens <= longest[text.task]
        assert text.reason == ("length" if text.tokens == longest[text.task] else "stop")


def test_tokens_of_the_replies_add_up_to_the_tokens_of_the_texts(episodes):
    replies, tail = episodes[Mode.SHARED]
    assert tail.cancelled == 0
    assert sum(reply.tokens for reply in replies) == sum(text.tokens for text in texts_of(replies).values())


def test_times_of_the_stages_add_up(episodes):
    for replies, _ in episodes.values():
        for reply in replies:
            times = reply.timings_ms
            assert all(value >= 0 for value in times.values())
            assert times["frame"] == pytest.approx(times["action"] + times["decode"])
            assert times["action"] >= times["preprocess"] + times["prefill"] + times["denoise"]
            assert all(text.latency_ms > 0 for text in reply.finished)


def test_nothing_is_compiled_after_warm_up(policy, in_mode, observe):
    before = policy.compiles_after_warm_up
    for mode in Mode:
        _, tail = episode(in_mode(mode), observe, queries=4)
        assert tail.compiles_after_warm_up == before
    assert policy.compiles_after_warm_up == before


def test_actions_can_be_had_before_the_language_of_their_query(policy, observe, episodes):
    policy.reset(7)
    actions, replies = [], []
    for number in range(QUERIES):
        actions.append(policy.act(observe(number)).actions)
        replies.append(policy.settle())
    policy.finish()
    assert np.stack(actions).tobytes() == actions_of(episodes[Mode.ACTIONS][0]).tobytes()
    unified = texts_of(episodes[Mode.UNIFIED][0])
    assert {key: text.text for key, text in texts_of(replies).items()} == {
        key: text.text for key, text in unified.items()
    }


def test_an_episode_may_end_before_its_last_query_is_settled(policy, observe):
    policy.reset(7)
    policy.act(observe(0))
    tail = policy.finish()
    assert tail.reply is not None
    assert tail.reply.tokens > 0
    assert tail.cancelled == len(TASKS)


def test_a_reply_that_nobody_settled_comes_with_the_next_actions(policy, observe, episodes):
    settled, _ = episodes[Mode.UNIFIED]
    policy.reset(7)
    answers = [policy.act(observe(number)) for number in range(QUERIES)]
    replies = [answer.before for answer in answers[1:]] + [policy.finish().reply]
    assert answers[0].before is None
    for late, reply in zip(replies, settled, strict=True):
        assert late.actions.tobytes() == reply.actions.tobytes()
        assert (late.born, late.dropped, late.tokens) == (reply.born, reply.dropped, reply.tokens)
        assert [text.text for text in late.finished] == [text.text for text in reply.finished]


def test_there_is_nothing_to_settle_before_a_query_and_after_its_reply(policy, observe):
    policy.reset(7)
    with pytest.raises(UsageError, match="no query is in progress"):
        policy.settle()
    policy.act(observe(0))
    policy.settle()
    with pytest.raises(UsageError, match="no query is in progress"):
        policy.settle()
    policy.act(observe(1))
    policy.reset(7)
    assert policy.finish().cancelled == 0


def test_a_full_pool_drops_requests_and_says_which(policy, in_mode, observe):
    few = policy.served(EngineConfig(budget=FixedTokens(1), slots=3, rows=2))
    replies, tail = episode(few, observe)
    dropped = [text for reply in replies for text in reply.dropped]
    assert dropped
    assert len({text.request_id for text in dropped}) == len(dropped)
    assert texts_of(replies), "what is being decoded is never dropped, so something is finished"
    without, _ = episode(in_mode(Mode.ACTIONS), observe)
    assert actions_of(replies).tobytes() == actions_of(without).tobytes()
    assert tail.cancelled <= 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": np.array([0.0] * 7 + [np.nan])}, "state holds nan at 7"),
        ({"state": np.array([np.inf] + [0.0] * 7)}, "state holds inf at 0"),
        ({"state": np.zeros(7)}, r"state has shape \(7,\); this policy takes \(8,\)"),
        ({"images": {"image": np.zeros((8, 8, 3), np.uint8)}}, "unknown camera 'wrist_image'"),
        (
            {"images": dict.fromkeys(("image", "wrist_image"), np.zeros((8, 8, 3), np.int16))},
            "image 'image' is int16",
        ),
        (
            {"images": dict.fromkeys(("image", "wrist_image"), np.zeros((8, 8), np.uint8))},
            r"shape \(8, 8\) \(grayscale\?\)",
        ),
    ],
)
def test_observations_that_make_no_sense_are_refused_in_one_line(policy, observe, changes, message):
    policy.reset(7)
    with pytest.raises(UsageError, match=message) as refusal:
        policy.infer({**observe(0), **changes})
    assert "\n" not in str(refusal.value)
    assert policy.infer(observe(0)).actions.shape == (10, 7), "the policy is as good as before"


def test_an_observation_without_a_prompt_is_refused(policy, observe):
    policy.reset(7)
    without = {key: value for key, value in observe(0).items() if key != "prompt"}
    with pytest.raises(UsageError, match="lacks 'prompt'"):
        policy.infer(without)


def test_a_policy_is_not_served_beyond_what_its_programs_take(policy):
    with pytest.raises(UsageError, match="rows is 9; the programs take 8 at most"):
        policy.served(EngineConfig(slots=10, rows=9))


def test_parts_that_do_not_fit_are_refused():
    task = LanguageTask(name="a", prompt="b", max_tokens=1)
    small_vocabulary = dataclasses.replace(SMALL, vocab_size=100)
    with pytest.raises(UsageError, match="768 tokens"):
        create_policy(small_vocabulary, weights=0, tokenizer=tokenizer.tiny())
    with pytest.raises(UsageError, match="1 slots for 2 language tasks"):
        create_policy(
            SMALL, weights=0, tokenizer=tokenizer.tiny(), tasks=(task, task), engine=EngineConfig(slots=1)
        )
