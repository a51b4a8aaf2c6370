"""Limits the time of a query to a Python class."""

import contextlib
import dataclasses
import functools
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, cast

from configs.errors import UsageError
from eval.policies.base import BatchPolicy, LoadedPolicy, Policy
from eval.policies.resolved import ResolvedPolicy
from sim_envs.suite import Suite
from sim_envs.world import World

QUERY_TIMEOUT_S = 600.0
"""Default time limit: a class may compile in its first query."""
_TIMED = ("reset", "act", "complete", "finish")
_REPEAT_S = 1.0
"""Interval at which the exception is raised again where it was swallowed."""
_LONGEST_S = 1_000_000


class QueryTimeoutError(RuntimeError):
    """A policy did not answer in time."""


def query_limit_s(resolved: ResolvedPolicy, given: float | None) -> float | None:
    """The time limit of a query, seconds; None if the policy is not a Python class.

    Raises:
        UsageError: One is given for another policy, or is out of range.
    """
    is_class = resolved.policy.kind == "python"
    if given is None:
        return QUERY_TIMEOUT_S if is_class else None
    if not 0 < given <= _LONGEST_S:
        raise UsageError(f"--query-timeout is {given:g}: give seconds, above 0 to {_LONGEST_S}")
    if not is_class:
        raise UsageError(
            f"--query-timeout {given:g} is for a Python class, not {resolved.policy.name}; leave it out (a "
            "server's limit is --policy-kwargs timeout_s)"
        )
    return given


def limited(policy: LoadedPolicy, seconds: float | None) -> LoadedPolicy:
    """The policy with a time limit on each call; None for no limit.

    A call that exceeds it raises QueryTimeoutError as soon as it executes Python, in the main thread only.
    """

    if seconds is None:
        return policy

    def in_world(suite: Suite, world: World) -> Policy:
        return cast("Policy", WithTimeout(policy.in_world(suite, world), seconds))

    groups = [cast("BatchPolicy", WithTimeout(group, seconds)) for group in policy.groups]
    return dataclasses.replace(policy, in_world=in_world, groups=groups)


class WithTimeout:
    """A policy with a time limit on its methods."""

    def __init__(self, policy: Policy | BatchPolicy, seconds: float) -> None:
        self._policy = policy
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._policy, name)
        return found if name not in _TIMED else functools.partial(self._call, found)

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        with _time_limit(self._seconds):
            return method(*arguments)


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(_number: int, _frame: FrameType | None) -> None:
        raise QueryTimeoutError(f"the policy has not answered a query within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds, _REPEAT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
