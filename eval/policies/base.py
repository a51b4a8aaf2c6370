"""The `Policy` protocol. Imports neither JAX nor a simulator."""

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from contracts.episode import EpisodeKey
from contracts.interface import Interface
from contracts.observation import Observation
from contracts.prompt import FieldsByTask
from contracts.text import EpisodeEnd, Reply
from eval.policies.torch_objects import as_numpy
from sim_envs.suite import Suite
from sim_envs.world import World

ResultT = TypeVar("ResultT")


class PolicyLostError(RuntimeError):
    """The policy is permanently unavailable, as after its server stopped: the run ends and can be resumed."""


class QueryTimeoutError(RuntimeError):
    """A policy did not answer in time."""


class BadAnswerError(ValueError):
    """A policy answered a query with something other than actions."""


def numeric_actions(actions: object) -> np.ndarray:
    """A policy's actions as float64; a BadAnswerError if they are ragged, or not real numbers."""
    try:
        return np.asarray(as_numpy(actions)).astype(np.float64, casting="same_kind")
    except (TypeError, ValueError) as error:
        what = f"{type(actions).__name__} ({error})"
        raise BadAnswerError(f"the policy's actions are {what}; give numbers [horizon, action]") from error


class Policy(Protocol):
    """A policy; one object serves all episodes of a run, one after the other.

    A query is one `act` followed by one `complete`; physics may run in between.
    """

    charged_ms: float | None
    """What clock `measured` charges for the last `act`, milliseconds; None for the wall time."""

    @property
    def interface(self) -> Interface:
        """Conventions of observations and actions; compared with the suite's before the first step."""

    def reset(self, key: EpisodeKey) -> None:
        """Start an episode; drop all state of the previous one."""

    def act(self, observation: Observation) -> np.ndarray:
        """Return a chunk of actions [horizon, action] as soon as it is computed."""

    def complete(self) -> Reply:
        """Complete the query; returns its texts and the milliseconds of each stage."""

    def finish(self) -> EpisodeEnd:
        """End the episode; cancels unfinished texts and returns their number."""


class BatchPolicy(Protocol):
    """A policy that serves several episodes at once, one per row.

    A query is one `act` for some rows, followed by one `complete`. The actions of an episode depend on
    neither its row nor the other rows. An exception in place of a row's actions or reply ends its episode.
    """

    def reset(self, row: int, key: EpisodeKey) -> None:
        """Start an episode in a row; drop all state of the previous one."""

    def act(self, observations: Mapping[int, Observation]) -> Mapping[int, np.ndarray | BaseException]:
        """Return a chunk of actions [horizon, action] for each given row.

        Observations may be overwritten after it returns.
        """

    def complete(self) -> Mapping[int, Reply | BaseException]:
        """Complete the queries of the last `act`."""

    def finish(self, row: int) -> EpisodeEnd:
        """End the episode of a row; cancels unfinished texts and returns their number."""


def _or_raise(result: ResultT | BaseException) -> ResultT:
    if isinstance(result, BaseException):
        raise result
    return result


class BatchSlot:
    """The first row of a `BatchPolicy` as a `Policy`."""

    charged_ms = None

    def __init__(self, policy: BatchPolicy, interface: Interface) -> None:
        self.batch = policy
        self.interface = interface

    def reset(self, key: EpisodeKey) -> None:
        """See `Policy`."""
        self.batch.reset(0, key)

    def act(self, observation: Observation) -> np.ndarray:
        """See `Policy`."""
        return _or_raise(self.batch.act({0: observation})[0])

    def complete(self) -> Reply:
        """See `Policy`."""
        return _or_raise(self.batch.complete()[0])

    def finish(self) -> EpisodeEnd:
        """See `Policy`."""
        return self.batch.finish(0)


class SingleRowBatch:
    """A `Policy` as a `BatchPolicy` of one row. Copies observations."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def reset(self, row: int, key: EpisodeKey) -> None:
        """See `Policy`."""
        del row
        self._policy.reset(key)

    def act(self, observations: Mapping[int, Observation]) -> Mapping[int, np.ndarray]:
        """See `Policy`."""
        ((row, observation),) = observations.items()
        return {row: as_numpy(self._policy.act(copy.deepcopy(observation)))}  # worlds may lack PyTorch

    def complete(self) -> Mapping[int, Reply]:
        """See `Policy`."""
        return {0: self._policy.complete()}

    def finish(self, row: int) -> EpisodeEnd:
        """See `Policy`."""
        del row
        return self._policy.finish()


def _acts_elsewhere(*_: object) -> Policy:
    raise AssertionError("the policy acts in another process")


def do_nothing(*_: object) -> None:
    """Take any arguments and do nothing; unlike a lambda, it can be sent to workers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadedPolicy:
    """A loaded policy."""

    interface: Interface | None  # conventions of observations and actions; None if it takes the suite's
    inputs: Mapping[str, Any]  # its inputs (prompt template, cameras), for the manifest
    # Returns the policy for one episode; scripted policies read the world.
    in_world: Callable[[Suite, World], Policy]
    # Camera to the height and width to which its images are resized, where the policy declares them.
    image_sizes: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    # Batched policies for worlds in other processes, with at least as many rows as worlds.
    groups: Sequence[BatchPolicy] = ()
    # Picklable; loads the policy in each worker if it has no `groups`.
    opener: Callable[[], "LoadedPolicy"] | None = None
    writes_texts: bool = True  # whether its replies may have texts
    follows_mode: bool = True  # whether the run's mode decides when it writes
    reports_work: bool = False  # whether its replies report `Reply.work`, which profile clocks need
    history: int = 0  # control steps before a query whose observations it has
    remark: str | None = None  # one line to print before the first episode, or None
    runs_on: Mapping[str, str] = dataclasses.field(default_factory=dict)  # PyTorch's version, device, type
    # Language task to the fields of later prompts that hold its texts.
    fields_by_task: FieldsByTask = dataclasses.field(default_factory=dict)
    close: Callable[[], None] = do_nothing  # releases resources outside this process; idempotent

    def described(self) -> Self:
        """A picklable copy for another process, which cannot act there."""
        return dataclasses.replace(self, in_world=_acts_elsewhere, groups=(), close=do_nothing)
