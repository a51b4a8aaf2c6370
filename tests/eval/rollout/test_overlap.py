"""How a chunk takes over from the one before, and what a policy is told of that."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.errors import UsageError
from configs.interface import Motion, Rotation
from configs.latency import ActionPrefix, Latency
from configs.schema import RunConfig
from eval.records.query_logs import ActionSpan
from eval.rollout.clock import DelayEstimator, TimedQuery, find_clock
from eval.rollout.rollout import averaged_channels, blend_chunks, rollout
from sim_envs.fake import FakeWorld
from sim_envs.libero.tasks import LIBERO_INTERFACE
from tests.eval.doubles import FakePolicy, libero_object
from tests.eval.rollout.scaled import records
from tests.eval.rollout.test_clock import KEY, run_on


class Planning(FakePolicy):
    """Answers query q with actions of 100 q, 100 q + 1, …, and notes what it is told is under way."""

    def __init__(self):
        super().__init__()
        self.told = []

    def act(self, observation):
        self.told.append(observation.action_prefix)
        self.actions = np.tile(100.0 * self._query + np.arange(10.0)[:, None], (1, 7))
        return super().act(observation)


class Listening(FakeWorld):
    """Notes the first channel of what it is told, and the gripper's."""

    def __init__(self):
        super().__init__()
        self.arm, self.gripper = [], []

    def advance(self, actions):
        self.arm += actions[:, 0].tolist()
        self.gripper += actions[:, -1].tolist()
        return super().advance(actions)


def played(overlap, latency="100", **limits):
    """What a world was told, what the policy was, and the queries."""
    world, policy = Listening(), Planning()
    suite = libero_object(**{"max_steps": 10, "replan_steps": 5, **limits})
    clock = find_clock(RunConfig(clock=f"fixed:{latency}"), [KEY])
    queries = list(rollout(world, policy, KEY, suite, clock=clock, overlap=overlap))
    return world, policy, queries


def test_blending_averages_with_falling_weights_except_grippers():
    """| - - a0 a1 a2 | a3 a4, then b2 b3 b4, of which b2 to b6 meet a5 to a9."""
    skipped, _, _ = played("skip")
    world, _, queries = played("blend")
    assert skipped.arm == [0, 0, 0, 1, 2, 3, 4, 102, 103, 104]
    assert world.arm[:7] == skipped.arm[:7]
    assert world.arm[7:] == pytest.approx(
        [(5 * 5 + 1 * 102) / 6, (4 * 6 + 2 * 103) / 6, (3 * 7 + 3 * 104) / 6]
    )
    assert world.gripper == skipped.gripper
    assert [query.blended for query in queries] == [0, 5]
    assert [query.spans for query in queries] == [query.spans for query in played("skip")[2]]


@given(st.data())
def test_a_blended_chunk_lies_between_both_chunks(data):
    left, horizon = data.draw(st.integers(0, 12)), data.draw(st.integers(1, 12))
    late = data.draw(st.integers(0, left))
    old, new = np.zeros((left, 2)), np.ones((horizon, 2))
    result = blend_chunks(old, new, late=late, channels=np.array([True, False]))
    assert (result[:, 1] == 1).all()
    assert (result[:late, 0] == 1).all(), "these are left out"
    assert (result[left:, 0] == 1).all()
    mixed = result[late : min(left, horizon), 0]
    assert ((mixed > 0) & (mixed < 1)).all() or late == 0
    assert (np.diff(mixed) >= 0).all()


def test_blending_refuses_rotations_whose_mean_is_not_a_rotation():
    action = LIBERO_INTERFACE.action
    assert averaged_channels(action).tolist() == [True] * 6 + [False]
    turned = [dataclasses.replace(part, motion=Motion.ABSOLUTE) for part in action.channels]
    for wrong in (
        dataclasses.replace(action, channels=tuple(turned)),
        dataclasses.replace(action, rotation=Rotation.QUATERNION_WXYZ),
    ):
        with pytest.raises(UsageError, match=r"the mean of .* is not a rotation; choose skip"):
            averaged_channels(wrong)


def test_rtc_passes_the_action_prefix_to_the_policy():
    """| - - a0 a1 a2 a3 a4 a5 | a6 a7 b2 …: eight steps between queries."""
    _, policy, queries = played("rtc", "100,400", max_steps=20)
    assert policy.told == [None, ActionPrefix(first=6, delay=2), ActionPrefix(first=8, delay=2)]
    assert [query.action_prefix for query in queries] == policy.told
    assert played("skip", "100,400")[1].told == [None, None]
    # It is limited by the rest of the chunk.
    assert played("rtc", "400,400", max_steps=30)[1].told[1] == ActionPrefix(first=0, delay=8)
    _, policy, _ = played("rtc", "400,850", max_steps=60)
    assert policy.told[1] == ActionPrefix(first=9, delay=1)
    _, policy, _ = played("rtc", "400,950", max_steps=60)
    assert set(policy.told) == {None}


def test_on_a_measured_clock_the_expected_delay_is_the_longest_of_ten():
    estimator = DelayEstimator(find_clock(RunConfig(clock="measured"), []), KEY, control_hz=20)
    left = ActionSpan(chunk=0, first=1, steps=9)
    delays = []
    for milliseconds in (120, *[60] * 10, 4000):
        estimator.note(Latency(actions_ms=milliseconds, busy_ms=milliseconds))
        delays.append(estimator.prefix(1, left).delay)
    assert delays == [3] * 10 + [2, 9]
    assert estimator.prefix(1, None) is None


def test_without_delay_all_overlap_rules_are_equal_bit_for_bit(policy, tmp_path):
    policy.actions = np.random.default_rng(0).normal(size=(10, 7))
    skip, blend, rtc = (run_on(tmp_path, "fixed:0", overlap=rule) for rule in ("skip", "blend", "rtc"))
    assert records(skip) == records(blend) == records(rtc)
    assert len({folder.read_manifest()["protocol_hash"] for folder in (skip, blend, rtc)}) == 3
    assert "overlap" not in str(skip.read_manifest()["protocol"]), "as before there was a choice"


def test_a_replay_repeats_the_action_prefixes(policy, tmp_path):
    recorded = run_on(tmp_path, "measured", overlap="rtc")
    again = run_on(tmp_path, f"replay:{recorded.path}", overlap="rtc")
    assert any("action_prefix" in record for record in records(recorded))
    assert records(again) == records(recorded)
    assert again.read_manifest()["protocol_hash"] == recorded.read_manifest()["protocol_hash"]
    with pytest.raises(UsageError, match="give --overlap rtc"):
        run_on(tmp_path, f"replay:{recorded.path}", overlap="blend")


def test_a_profile_charges_guided_queries_their_own_denoising():
    skip, rtc = (
        find_clock(RunConfig(clock="profile:jetson-thor", overlap=rule), [KEY]) for rule in ("skip", "rtc")
    )
    more_ms = rtc.profile.guided_denoise.ms - rtc.profile.denoise.ms
    plain = TimedQuery(key=KEY, index=1, act_ms=0.0)
    guided = dataclasses.replace(plain, guided=True)
    assert rtc.latency(plain) == skip.latency(plain)
    assert rtc.latency(guided).actions_ms == pytest.approx(rtc.latency(plain).actions_ms + more_ms)
    assert "guided_denoise" not in skip.describe()["profile"], "as in runs of before it was known"
    assert "guided_denoise" in rtc.describe()["profile"]
