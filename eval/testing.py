"""Conformance test for policies (`eval.policies.base.Policy`).

from eval.testing import check_policy

def test_my_policy_keeps_the_contract():
    check_policy(MyPolicy, observation)
"""

import copy
import dataclasses
from typing import Any

import numpy as np

from contracts.episode import EpisodeKey
from contracts.observation import Observation
from contracts.text import EpisodeEnd, Reply
from eval.policies.base import Policy
from eval.policies.python import open_python

_ONE = EpisodeKey(suite="check", task_id=0, init_id=0, seed=7)
_OTHER = dataclasses.replace(_ONE, init_id=1)
_QUERIES = 3


def check_policy(policy: Any, observation: Observation, *, replan_steps: int = 1) -> None:
    """Check that a policy conforms to the protocol.

    Args:
        policy: What `--policy` accepts in a file: an object with openpi's `infer` and `reset` or with the
            methods of `Policy`, or a class or function that makes one.
        observation: A valid observation, such as `world.observe()`.
        replan_steps: Minimum number of actions per chunk.

    Raises:
        AssertionError: One line with the actual and the expected behaviour.
        UsageError: It is not a policy.
    """
    name = getattr(policy, "__name__", type(policy).__name__)
    in_world: Any = open_python(name, {}, given=policy).in_world
    policy = in_world(None, None)  # it reads no world
    before = copy.deepcopy(observation)
    first = _episode(policy, _ONE, observation, replan_steps)
    assert np.array_equal(observation.state, before.state), "act() changed the observation's state"
    for camera, image in before.images.items():
        assert np.array_equal(observation.images[camera], image), f"act() changed the image {camera!r}"
    _episode(policy, _OTHER, observation, replan_steps)
    policy.reset(_OTHER)  # aborted within a query
    policy.act(observation)
    again = _episode(policy, _ONE, observation, replan_steps)
    for query, (one, other) in enumerate(zip(first, again, strict=True)):
        assert np.array_equal(one, other), (
            f"query {query} of the same episode had other actions after other episodes: actions must be "
            "a function of the episode key and its observations"
        )


def _episode(
    policy: Policy, key: EpisodeKey, observation: Observation, replan_steps: int
) -> list[np.ndarray]:
    """The actions of an episode of identical observations, checked like its replies and its end."""
    policy.reset(key)
    chunks = []
    for _ in range(_QUERIES):
        array, width = np.array(policy.act(observation), np.float64), policy.interface.action.size
        assert array.ndim == 2, f"actions have shape {array.shape}, should have [horizon, {width}]"
        assert array.shape[1] == width, f"an action has {array.shape[1]} numbers, its interface says {width}"
        assert len(array) >= replan_steps, f"{len(array)} actions, a rollout executes {replan_steps}"
        assert np.isfinite(array).all(), "actions hold numbers that are not finite"
        chunks.append(array)
        reply = policy.complete()
        assert isinstance(reply, Reply), f"complete() returned {type(reply).__name__}, should return a Reply"
        slow = {stage: taken for stage, taken in reply.timings_ms.items() if not 0 <= taken < np.inf}
        assert not slow, f"timings_ms holds {slow}: milliseconds, 0 or more"
    end = policy.finish()
    assert isinstance(end, EpisodeEnd), f"finish() returned {type(end).__name__}, should return an EpisodeEnd"
    return chunks
