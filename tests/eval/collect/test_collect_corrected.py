"""A learner and an expert in turns, what they intend, and what they read in their prompts."""

import dataclasses
import functools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import UsageError
from contracts.observation import Observation
from eval.collect.collection import collect_demonstrations, collect_from
from eval.collect.episode import CorrectedLearner, action_labels, learnable
from eval.collect.store import EpisodeStore
from oxygen.training import layout
from sim_envs.fake import FakeWorld
from sim_envs.libero.tasks import LIBERO_INTERFACE
from sim_envs.suite import open_suite
from tests.eval.collect.collecting import Counting, config
from tests.eval.doubles import opened, without_physics
from tests.eval.factory import key
from tests.eval.rollout.test_feedback import MEMORY, Writer

LEARNER, EXPERT = 0.25, -0.5


def seen(query: int, speed: float) -> Observation:
    """What is seen of a hand that moves along its first axis by `speed` metres a query."""
    return Observation(images={}, state=np.eye(8)[0] * query * speed, language="lift it")


class Constant(Counting):
    """Always the same action."""

    def __init__(self, action: float) -> None:
        super().__init__()
        self.intended = np.full((10, 7), action)

    def act(self, observation: Observation) -> np.ndarray:
        return self.intended


def turns(
    policy: CorrectedLearner, queries: int, init_id: int = 0, speed: float = 0.01
) -> list[tuple[float, int]]:
    """Who acted, and for how many queries, turn after turn."""
    policy.reset(key(init_id))
    found: list[tuple[float, int]] = []
    for query in range(queries):
        acted = float(policy.act(seen(query, speed))[0, 0])
        policy.complete()
        intended = policy.intended
        assert (intended is None) == (acted == LEARNER)
        assert intended is None or (intended == EXPERT).all()
        if found and found[-1][0] == acted:
            found[-1] = acted, found[-1][1] + 1
        else:
            found.append((acted, 1))
    return found


def test_the_learner_acts_first_and_both_act_in_turns():
    learner, expert = Constant(LEARNER), Constant(EXPERT)
    found = turns(CorrectedLearner(learner, expert), queries=2000)
    assert (len(learner.episodes), len(expert.episodes)) == (1, sum(who == EXPERT for who, _ in found))
    assert [who for who, _ in found] == [(LEARNER, EXPERT)[index % 2] for index in range(len(found))]
    whole = found[:-1]  # the last turn was cut short
    experts = [n for who, n in whole if who == EXPERT]
    assert all(6 * 3**turn <= n <= 14 * 3**turn for turn, n in enumerate(experts)), "each is longer"
    learners = [n for who, n in whole if who == LEARNER]
    assert all(3 <= n <= 96 for n in learners)
    assert min(learners) < 6, "there are short turns of the learner's"
    assert max(learners) > 48, "and long ones"


def test_a_stuck_learner_ends_its_turn():
    policy = CorrectedLearner(Constant(LEARNER), Constant(EXPERT))
    assert max(n for who, n in turns(policy, 2000, speed=0.002) if who == LEARNER) > 48, "slow is not still"
    hung = [n for who, n in turns(policy, 2000, speed=0.001) if who == LEARNER]
    assert max(hung) == 8, "eight queries showed that nothing moves"
    assert min(hung) == 3, "shorter turns end as they do"
    waiting = turns(policy, 2000, speed=0.0)[1:-1]
    assert all(n >= 6 * 3 ** (turn // 2) for turn, (who, n) in enumerate(waiting) if who == EXPERT), (
        "an expert may wait"
    )


def test_turns_are_a_function_of_the_episode_key():
    policy, other = (CorrectedLearner(Constant(LEARNER), Constant(EXPERT)) for _ in range(2))
    assert turns(policy, 100) == turns(policy, 100) == turns(other, 100)
    assert turns(policy, 100, init_id=1) != turns(policy, 100, init_id=2)


@given(
    steps=st.lists(st.integers(1, 10), min_size=1, max_size=8),
    horizon=st.integers(1, 25),
    seed=st.integers(0, 99),
)
def test_a_step_has_the_same_action_in_every_chunk(steps, horizon, seed):
    chunks = np.random.default_rng(seed).normal(size=(len(steps), 10, 7))
    hold = functools.partial(LIBERO_INTERFACE.hold_action, np.zeros(8))
    actions, padded = action_labels(list(chunks), steps, hold, horizon=horizon)
    played = np.concatenate([each[:count] for each, count in zip(chunks, steps, strict=True)])
    starts = np.cumsum([0, *steps[:-1]])
    for start, labels, mask in zip(starts, actions, padded, strict=True):
        left = played[start : start + horizon]
        assert np.array_equal(labels[: len(left)], left)
        assert mask.tolist() == [False] * len(left) + [True] * (horizon - len(left))
        assert (labels[len(left) :, :6] == 0).all()  # holds still, with the gripper's last command
        assert (labels[len(left) :, 6] == played[-1, 6]).all()


def test_after_absolute_positions_the_robot_stays_at_the_last_one():
    aloha, last = open_suite("gym_aloha").interface, np.full((1, 14), 0.5)
    hold = functools.partial(aloha.hold_action, np.zeros(aloha.observation.state_size))
    actions, padded = action_labels([last], [1], hold, horizon=3)
    assert padded.tolist() == [[False, True, True]]
    assert (actions == 0.5).all()


@given(
    turns=st.lists(st.tuples(st.booleans(), st.integers(1, 5)), min_size=1, max_size=12),
    horizon=st.integers(1, 12),
)
def test_learnable_actions_are_those_until_the_end_of_the_turn(turns, horizon):
    by_expert, steps = [list(part) for part in zip(*turns, strict=True)]
    by_step = np.repeat(by_expert, steps)
    starts = np.cumsum([0, *steps[:-1]])
    ahead = np.concatenate([by_step, np.zeros(horizon, bool)])
    for start, mask in zip(starts, learnable(by_expert, steps, horizon=horizon), strict=True):
        assert mask.tolist() == np.logical_and.accumulate(ahead[start : start + horizon]).tolist()


def collected(folder, monkeypatch, acting, *, success_at=None, **changes):
    """The demonstration of an episode, and the memory in the prompt of each of its frames."""
    without_physics(monkeypatch, lambda task: FakeWorld(success_at=success_at))
    options = config(suites=("libero_object",), task_ids=(0,), init_ids=(0,), keep_failures=True, **changes)
    policy = dataclasses.replace(opened(acting), fields_by_task=MEMORY if options.feedback else {})
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
    with pytest.raises(UsageError, match="--feedback own: the prompt of policy 'tiny' holds no text"):
        collect_demonstrations(config(policy="tiny", feedback="own"), tmp_path, workers=1)
    with pytest.raises(UsageError, match="--feedback own: the expert writes no texts; give truth, or"):
        collect_demonstrations(config(policy="expert", feedback="own"), tmp_path, workers=1)
