"""Client of a policy served by another process. Observations go through shared memory or in messages.

Imports no JAX.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from multiprocessing.shared_memory import SharedMemory
from typing import Any, Protocol, Self

import numpy as np

from configs.action_prefix import ActionPrefix
from configs.interface import Interface
from oxygen.policy.reply import EpisodeEnd, Reply
from sim_envs.worker_process import WorkerConnection
from sim_envs.world import EpisodeKey, Observation

_NUMBER = np.dtype(np.float64)
_LARGEST = (1080, 1920)
"""Maximum camera resolution if the interface gives none. Unwritten shared memory costs nothing."""
_IMPORTABLE = ("builtins", "configs", "eval", "oxygen", "sim_envs")
"""Packages whose exceptions worlds can import."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObservationLayout:
    """Layout of an `ObservationBlock`.

    Attributes:
        images: Camera name and image shape, in order, after the state.
        state: Size of the state.
        language: See `Observation`.
        feedback: See `Observation`.
        action_prefix: Actions executed meanwhile, for guided denoising.
    """

    images: tuple[tuple[str, tuple[int, int, int]], ...]
    state: int
    language: str
    feedback: Mapping[str, str]
    action_prefix: ActionPrefix | None = None


class Observations(Protocol):
    """Transfers observations from a world to its policy."""

    def write(self, observation: Observation, /) -> Any:
        """The message to send: the observation, or its layout in shared memory."""

    def read(self, sent: Any, /) -> Observation:
        """The observation, on the policy's side."""


class _InMessages:
    """Sends observations in messages, for processes on different machines."""

    def write(self, observation: Observation) -> Observation:
        return observation

    def read(self, sent: Observation) -> Observation:
        return sent


IN_MESSAGES = _InMessages()


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
        shapes = tuple((name, image.shape) for name, image in images.items())
        return ObservationLayout(
            images=shapes,
            state=len(state),
            language=observation.language,
            feedback=observation.feedback,
            action_prefix=observation.action_prefix,
        )

    def read(self, layout: ObservationLayout) -> Observation:
        """A view of the observation, valid until the next `write`."""
        state = self._view(0, (layout.state,), _NUMBER)
        start, images = state.nbytes, {}
        for name, shape in layout.images:
            images[name] = self._view(start, shape, np.dtype(np.uint8))
            start += images[name].nbytes
        return Observation(
            images=images,
            state=state,
            language=layout.language,
            feedback=layout.feedback,
            action_prefix=layout.action_prefix,
        )

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
    """A world requests actions; `sent` is the message of `Observations.write`."""

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
        self, connection: WorkerConnection, observations: Observations, variant: int, interface: Interface
    ) -> None:
        self.interface = interface
        self._connection = connection
        self._observations = observations
        self._variant = variant

    def reset(self, key: EpisodeKey) -> None:
        """See `Policy`."""
        self._connection.send(EpisodeStart(variant=self._variant, key=key))

    def act(self, observation: Observation) -> np.ndarray:
        """See `Policy`."""
        request = ActionsRequest(sent=self._observations.write(observation))
        actions: np.ndarray = _answer(self._connection.request(request))
        return actions

    def complete(self) -> Reply:
        """See `Policy`."""
        reply: Reply = _answer(self._connection.request(ReplyRequest()))
        return reply

    def finish(self) -> EpisodeEnd:
        """See `Policy`."""
        end: EpisodeEnd = _answer(self._connection.request(EndRequest()))
        return end


def _answer(answer: Any) -> Any:
    if isinstance(answer, FailedAnswer):
        raise answer.error
    return answer
