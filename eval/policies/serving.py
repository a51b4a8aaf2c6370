"""Policies served to worlds in other processes, or loaded there. Imports no JAX.

Observations go through shared memory or in messages. Worlds are divided into groups, each with its own batch;
while the model computes one group's batch, the worlds of the others simulate. See `BatchQueue` for when a
batch is run.
"""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.shared_memory import SharedMemory
from typing import Any, Self

import numpy as np

from configs.feedback import FeedbackByTask
from configs.interface import Interface
from eval.policies.base import BatchPolicy, LoadedPolicy, PolicyLostError
from oxygen.policy.reply import EpisodeEnd, Reply
from oxygen.serve.batching import BatchQueue, Query
from sim_envs.workers import WorkerConnection
from sim_envs.world import EpisodeKey, Observation

Answer = Callable[[object], None]

_NUMBER = np.dtype(np.float64)
_LARGEST = (1080, 1920)
"""Maximum camera resolution if the interface gives none. Unwritten shared memory costs nothing."""
_IMPORTABLE = ("builtins", "configs", "eval", "oxygen", "sim_envs")
"""Packages whose exceptions worlds can import."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObservationLayout:
    """An observation whose state and images are in an `ObservationBlock`.

    Attributes:
        rest: The observation without state and images.
        state: Size of the state.
        images: Camera to image shape, in order, after the state.
    """

    rest: Observation
    state: int
    images: Mapping[str, tuple[int, ...]]


class ObservationBlock:
    """Shared memory for one observation: written by one process, read by another without a copy."""

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory

    @classmethod
    def fitting(cls, interfaces: Sequence[Interface]) -> Self:
        """Allocate a block for any observation of the interfaces."""
        sizes = [
            _NUMBER.itemsize * interface.observation.state_size
            + sum(3 * math.prod(camera.size or _LARGEST) for camera in interface.observation.cameras)
            for interface in interfaces
        ]
        return cls(SharedMemory(create=True, size=max(sizes)))

    @classmethod
    def attached(cls, name: str) -> Self:
        """Attach to a block created by another process."""
        return cls(SharedMemory(name))

    @property
    def name(self) -> str:
        """Name of the shared memory."""
        return self._memory.name

    def write(self, observation: Observation) -> ObservationLayout:
        """Overwrite the block with an observation.

        Raises:
            ValueError: It is larger than the suite's interface declares.
        """
        state = np.ascontiguousarray(observation.state, _NUMBER)
        images = {name: np.ascontiguousarray(image, np.uint8) for name, image in observation.images.items()}
        needed = state.nbytes + sum(image.nbytes for image in images.values())
        if needed > self._memory.size:
            raise ValueError(
                f"an observation has {needed} bytes; the suite's interface declares {self._memory.size}"
            )
        start = 0
        for array in (state, *images.values()):
            self._view(start, array.shape, array.dtype)[...] = array
            start += array.nbytes
        return ObservationLayout(
            rest=dataclasses.replace(observation, images={}, state=np.empty(0)),
            state=len(state),
            images={name: image.shape for name, image in images.items()},
        )

    def read(self, layout: ObservationLayout) -> Observation:
        """A view of the observation, valid until the next `write`."""
        state = self._view(0, (layout.state,), _NUMBER)
        start, images = state.nbytes, {}
        for name, shape in layout.images.items():
            images[name] = self._view(start, shape, np.dtype(np.uint8))
            start += images[name].nbytes
        return dataclasses.replace(layout.rest, images=images, state=state)

    def _view(self, start: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        return np.ndarray(shape, dtype, buffer=self._memory.buf, offset=start)

    def close(self) -> None:
        """Detach and free the memory."""
        self._memory.close()
        self._memory.unlink()


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeStart:
    """A world starts an episode of a variant."""

    variant: int
    key: EpisodeKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActionsRequest:
    """A world requests actions; `sent` is the observation, or its layout in shared memory."""

    sent: Any


class ReplyRequest:
    """A world requests the reply of its query."""


class EndRequest:
    """A world ends its episode."""


@dataclasses.dataclass(frozen=True)
class FailedAnswer:
    """An exception of the policy, to be raised in the world."""

    error: BaseException

    @classmethod
    def of(cls, error: BaseException) -> "FailedAnswer":
        """Wrap an exception; one of a class that worlds cannot import becomes a RuntimeError."""
        if type(error).__module__.partition(".")[0] in _IMPORTABLE:
            return cls(error)
        return cls(RuntimeError(f"{type(error).__name__}: {error}"))


class PolicyProxy:
    """A policy in another process, in one of the run's variants."""

    def __init__(
        self,
        connection: WorkerConnection,
        block: ObservationBlock | None,
        variant: int,
        interface: Interface,
    ) -> None:
        """Connect to a policy.

        Args:
            connection: The connection to its `PolicyServer`.
            block: Shared memory for the observations; None to send them in messages.
            variant: Index of the variant.
            interface: Conventions of observations and actions.
        """
        self.interface = interface
        self._connection = connection
        self._block = block
        self._variant = variant

    def reset(self, key: EpisodeKey) -> None:
        """See `Policy`."""
        self._connection.send(EpisodeStart(variant=self._variant, key=key))

    def act(self, observation: Observation) -> np.ndarray:
        """See `Policy`."""
        sent = observation if self._block is None else self._block.write(observation)
        return self._request(ActionsRequest(sent=sent))

    def complete(self) -> Reply:
        """See `Policy`."""
        return self._request(ReplyRequest())

    def finish(self) -> EpisodeEnd:
        """See `Policy`."""
        return self._request(EndRequest())

    def _request(self, message: object) -> Any:
        answer = self._connection.request(message)
        if isinstance(answer, FailedAnswer):
            raise answer.error
        return answer


class _Group:
    """The worlds of one batch in one variant.

    Attributes:
        policy: The policy.
        queue: The queries that wait for the batch.
        replies: Row to the reply of its last query.
    """

    def __init__(self, policy: BatchPolicy) -> None:
        self.policy = policy
        self.queue = BatchQueue(policy.act, policy.complete)
        self.replies: dict[int, Any] = {}


def _answered(method: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call of the policy, or its exception, to be raised in the episode concerned."""
    try:
        return method(*arguments)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - raised again in the episode concerned
        return _as_answer(error)


def _as_answer(result: Any) -> Any:
    if isinstance(result, PolicyLostError):
        raise result
    return FailedAnswer.of(result) if isinstance(result, BaseException) else result


class PolicyServer:
    """Serves all workers in all variants. A request handler for `sim_envs.workers`."""

    def __init__(self, policies: Sequence[LoadedPolicy], blocks: Sequence[ObservationBlock] = ()) -> None:
        """Start serving.

        Args:
            policies: One per variant, with a row for each worker.
            blocks: Shared memory of each worker; empty if observations travel in messages.
        """
        self._variants = [[_Group(policy) for policy in each.groups] for each in policies]
        self._blocks = blocks
        self._at: dict[int, tuple[_Group, int]] = {}
        self._begun: dict[int, Any] = {}

    def handle(self, worker: int, message: Any, answer: Answer) -> None:
        """Queue a query, or answer a message that needs no batch."""
        match message:
            case EpisodeStart(variant=variant, key=key):
                self.job_ended(worker)
                groups = self._variants[variant]
                group, row = groups[worker % len(groups)], worker // len(groups)
                self._at[worker] = group, row
                self._begun[worker] = _answered(group.policy.reset, row, key)
                group.queue.activate(row)
            case ActionsRequest() if isinstance(failed := self._begun[worker], FailedAnswer):
                answer(failed)
            case ActionsRequest(sent=sent):
                group, row = self._at[worker]
                group.queue.add(
                    row,
                    Query(
                        observation=self._blocks[worker].read(sent) if self._blocks else sent,
                        acted=lambda actions: answer(_as_answer(actions)),
                        replied=lambda reply: group.replies.update({row: _as_answer(reply)}),
                    ),
                )
            case ReplyRequest():
                group, row = self._at[worker]
                answer(group.replies.pop(row))
            case EndRequest():
                group, row = self._at[worker]
                answer(_answered(group.policy.finish, row))

    def job_ended(self, worker: int) -> None:
        """See `RequestHandler`."""
        if worker in self._at:
            group, row = self._at.pop(worker)
            group.queue.remove(row)

    def poll(self) -> float:
        """Run the batch that has been due longest.

        Returns:
            Seconds until the next batch may be due.
        """
        queues = [group.queue for variant in self._variants for group in variant]
        first = min(queues, key=BatchQueue.due_s, default=None)
        wait_s = math.inf if first is None else first.due_s() - time.monotonic()
        if first is None or wait_s > 0:
            return wait_s
        for _ in first.run():
            pass
        return 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicySource:
    """Opens the policy of one variant in a worker. Pickled and sent to workers.

    Attributes:
        variant: Index of the variant.
        interface: Conventions of a served policy.
        blocks: Names of the shared memory of each worker; empty if observations travel in messages.
        opener: Loads a policy that is not served.
        feedback: See `LoadedPolicy`.
    """

    variant: int
    interface: Interface | None
    blocks: tuple[str, ...]
    opener: Callable[[], LoadedPolicy] | None
    feedback: FeedbackByTask

    def open(self, connection: WorkerConnection) -> LoadedPolicy:
        """The policy in a worker."""
        if self.opener is not None:
            return dataclasses.replace(self.opener(), feedback=self.feedback)
        assert self.interface is not None, "a policy that is served has been opened"
        block = ObservationBlock.attached(self.blocks[connection.worker]) if self.blocks else None
        served = PolicyProxy(connection, block, self.variant, self.interface)
        return LoadedPolicy(
            interface=self.interface,
            horizon=None,
            inputs={},
            in_world=lambda *_: served,
            feedback=self.feedback,
        )


@contextlib.contextmanager
def served(
    policies: Sequence[LoadedPolicy], interfaces: Sequence[Interface], *, worlds: int
) -> Iterator[tuple[PolicyServer, tuple[PolicySource, ...]]]:
    """A server for the policies of all variants, and the sources for the workers.

    Args:
        policies: One per variant. Policies that workers load themselves are closed here.
        interfaces: Conventions of the suites.
        worlds: Number of workers.
    """
    with contextlib.ExitStack() as resources:
        blocks = [ObservationBlock.fitting(interfaces) for _ in range(worlds)]
        for block in blocks:
            resources.callback(block.close)
        for policy in policies:
            if policy.opener is not None:
                policy.close()
        yield PolicyServer(policies, blocks), sources_of(policies, [block.name for block in blocks])


def sources_of(policies: Sequence[LoadedPolicy], blocks: Sequence[str] = ()) -> tuple[PolicySource, ...]:
    """The sources of the policies of all variants, with the names of the workers' shared memory, if any."""
    return tuple(
        PolicySource(
            variant=variant,
            interface=policy.interface,
            blocks=tuple(blocks),
            opener=policy.opener,
            feedback=policy.feedback,
        )
        for variant, policy in enumerate(policies)
    )
