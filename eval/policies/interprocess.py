"""Policies served to worlds in other processes, or loaded there. Imports no JAX.

Images go through shared memory or in messages. Worlds are divided into groups, each with its own batch;
while the model computes one group's batch, the worlds of the others simulate. See `BatchQueue` for when a
batch is run.
"""

import contextlib
import dataclasses
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np

from contracts.episode import EpisodeKey
from contracts.interface import Interface
from contracts.observation import Observation
from contracts.text import EpisodeEnd, Reply
from eval.policies.base import BatchPolicy, LoadedPolicy, PolicyLostError
from oxygen.server.batching import BatchQueue, Query
from sim_envs.workers import WorkerConnection

Answer = Callable[[object], None]
SentObservation: TypeAlias = tuple[Observation, Mapping[str, tuple[int, ...]]]
"""An observation without its images, and camera to shape of those in an `ImageBlock`."""

_LARGEST = (1080, 1920)
"""Maximum camera resolution if the interface gives none. Unwritten shared memory costs nothing."""
_IMPORTABLE = ("builtins", "configs", "contracts", "eval", "oxygen", "sim_envs")
"""Packages whose exceptions worlds can import."""


class ImageBlock:
    """Shared memory for an observation's images: written by one process, read by another without a copy."""

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory

    @classmethod
    def fitting(cls, interfaces: Sequence[Interface]) -> Self:
        """Allocate a block for the images of any observation of the interfaces; an OSError without room."""
        sizes = [
            sum(3 * math.prod(camera.size or _LARGEST) for camera in interface.observation.cameras)
            for interface in interfaces
        ]
        memory = SharedMemory(create=True, size=max(1, *sizes))
        file = Path("/dev/shm", memory.name)
        try:
            if file.exists():  # without room, the first write would end the process by SIGBUS
                with file.open("rb+") as opened:
                    os.posix_fallocate(opened.fileno(), 0, memory.size)
        except OSError:
            memory.close()
            memory.unlink()
            raise
        return cls(memory)

    @property
    def name(self) -> str:
        """Name of the shared memory."""
        return self._memory.name

    def write(self, observation: Observation) -> SentObservation:
        """Overwrite the block with the images; returns the rest of the observation, and their shapes.

        Images larger than the suite's interface declares are a ValueError.
        """
        shapes = {name: image.shape for name, image in observation.images.items()}
        needed = sum(image.size for image in observation.images.values())
        if needed > self._memory.size:
            raise ValueError(
                f"the images of an observation have {needed} bytes; the suite's interface declares "
                f"{self._memory.size}"
            )
        for name, view in self._views(shapes).items():
            view[...] = observation.images[name]
        return dataclasses.replace(observation, images={}), shapes

    def read(self, sent: SentObservation) -> Observation:
        """The observation. Its images are views, valid until the next `write`."""
        rest, shapes = sent
        return dataclasses.replace(rest, images=self._views(shapes))

    def _views(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
        start, views = 0, {}
        for name, shape in shapes.items():
            views[name] = np.ndarray(shape, np.uint8, buffer=self._memory.buf, offset=start)
            start += views[name].nbytes
        return views

    def close(self) -> None:
        """Detach and free the memory."""
        self._memory.close()
        self._memory.unlink()


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeStart:
    """A world starts an episode of a variant."""

    variant: int
    key: EpisodeKey


@dataclasses.dataclass(frozen=True)
class FailedAnswer:
    """An exception of the policy, to be raised in the world."""

    error: BaseException


class PolicyProxy:
    """A policy in another process, in one of the run's variants."""

    charged_ms = None

    def __init__(
        self, connection: WorkerConnection, block: ImageBlock | None, variant: int, interface: Interface
    ) -> None:
        """Connect to a `PolicyServer`; without a block, images are sent in messages."""
        self.interface = interface
        self._connection = connection
        self._block = block
        self._variant = variant

    def reset(self, key: EpisodeKey) -> None:
        """See `Policy`."""
        self._connection.send(EpisodeStart(variant=self._variant, key=key))

    def act(self, observation: Observation) -> np.ndarray:
        """See `Policy`."""
        return self._request("act", observation if self._block is None else self._block.write(observation))

    def complete(self) -> Reply:
        """See `Policy`."""
        return self._request("complete", None)

    def finish(self) -> EpisodeEnd:
        """See `Policy`."""
        return self._request("finish", None)

    def _request(self, method: str, argument: object) -> Any:
        answer = self._connection.request((method, argument))
        if isinstance(answer, FailedAnswer):
            raise answer.error
        return answer


class _Group:
    def __init__(self, policy: BatchPolicy) -> None:
        self.policy = policy
        self.queue = BatchQueue(policy.act, policy.complete)
        self.replies: dict[int, Any] = {}  # row to the reply of its last query


def _answered(method: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return method(*arguments)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - raised again in the episode concerned
        return _as_answer(error)


def _as_answer(result: Any) -> Any:
    """A result, or an exception; one that worlds cannot import or would think their own is a RuntimeError."""
    if isinstance(result, PolicyLostError):
        raise result
    if not isinstance(result, BaseException):
        return result
    importable = type(result).__module__.partition(".")[0] in _IMPORTABLE
    is_known = importable and not isinstance(result, MemoryError)  # of this process, not of the world's
    return FailedAnswer(result if is_known else RuntimeError(f"{type(result).__name__}: {result}"))


class PolicyServer:
    """Serves all workers in all variants. A request handler for `sim_envs.workers`."""

    def __init__(self, policies: Sequence[LoadedPolicy], blocks: Sequence[ImageBlock] = ()) -> None:
        """Start serving a policy per variant, with a row for each worker.

        Each worker has a block of shared memory, unless images travel in messages.
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
            case "act", _ if isinstance(failed := self._begun[worker], FailedAnswer):
                answer(failed)
            case "act", sent:
                group, row = self._at[worker]
                group.queue.add(
                    row,
                    Query(
                        observation=self._blocks[worker].read(sent) if self._blocks else sent,
                        acted=lambda actions: answer(_as_answer(actions)),
                        replied=lambda reply: group.replies.update({row: _as_answer(reply)}),
                    ),
                )
            case "complete", _:
                group, row = self._at[worker]
                answer(group.replies.pop(row))
            case "finish", _:
                group, row = self._at[worker]
                answer(_answered(group.policy.finish, row))

    def serves(self, worker: int) -> bool:
        """Whether a worker is in an episode."""
        return worker in self._at

    def job_ended(self, worker: int) -> None:
        """See `RequestHandler`."""
        if worker in self._at:
            group, row = self._at.pop(worker)
            group.queue.remove(row)

    def poll(self) -> float:
        """Run the batch that has been due longest; returns the seconds until the next may be due."""
        queues = [group.queue for variant in self._variants for group in variant]
        first = min(queues, key=BatchQueue.due_s, default=None)
        wait_s = math.inf if first is None else first.due_s() - time.monotonic()
        if first is None or wait_s > 0:
            return wait_s
        for _ in first.run():
            pass
        return 0.0


def open_in_worker(
    policy: LoadedPolicy, variant: int, connection: WorkerConnection, blocks: Sequence[str]
) -> LoadedPolicy:
    """A `described` policy of a variant in a worker; `blocks` are the names of all workers' `ImageBlock`s."""
    if policy.opener is not None:
        return dataclasses.replace(policy.opener(), fields_by_task=policy.fields_by_task)
    assert policy.interface is not None, "a policy that is served has been opened"
    block = ImageBlock(SharedMemory(blocks[connection.worker])) if blocks else None
    served = PolicyProxy(connection, block, variant, policy.interface)
    return dataclasses.replace(policy, in_world=lambda *_: served)


@contextlib.contextmanager
def served(
    policies: Sequence[LoadedPolicy], interfaces: Sequence[Interface], *, worlds: int
) -> Iterator[tuple[PolicyServer, list[str]]]:
    """A server for the policies of all variants, and the names of the workers' shared memory.

    Policies that workers load themselves are closed here.
    """
    with contextlib.ExitStack() as resources:
        blocks = list[ImageBlock]()
        try:
            for _ in range(worlds):
                blocks.append(ImageBlock.fitting(interfaces))
                resources.callback(blocks[-1].close)
        except OSError as error:
            blocks = []
            sys.stderr.write(
                f"warning: images do not fit in shared memory ({error.strerror}) and travel in messages, "
                "which is slower: mount a larger /dev/shm (docker run --shm-size 1g)\n"
            )
        for policy in policies:
            if policy.opener is not None:
                policy.close()
        yield PolicyServer(policies, blocks), [block.name for block in blocks]
