"""A policy that another process answers for: the world's end of it. Observations go through shared memory.

Imports no JAX: worlds need none.
"""

import dataclasses
import math
from collections.abc import Sequence
from multiprocessing.shared_memory import SharedMemory
from typing import Any, Self

import numpy as np

from configs.action_prefix import ActionPrefix
from configs.interface import Interface
from oxygen.policy.reply import Reply, Tail
from sim_envs.worker_process import WorkerConnection
from sim_envs.world import EpisodeKey, Observation

_NUMBER = np.dtype(np.float64)
_LARGEST = (1080, 1920)
"""Pixels of a camera whose interface says none. Memory that is never written takes no room."""
_OURS = ("builtins", "configs", "eval", "oxygen", "sim_envs")
"""Packages whose exceptions a world can be told as they are."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObservationLayout:
    """What lies in an `ObservationBlock`.

    Attributes:
        images: Camera name and shape of every picture, in order; before them lies the state.
        state: How many numbers the state has.
        language: The instruction.
        action_prefix: What the robot goes on to execute, if the policy is to heed it.
    """

    images: tuple[tuple[str, tuple[int, int, int]], ...]
    state: int
    language: str
    action_prefix: ActionPrefix | None = None


class ObservationBlock:
    """Shared memory for one observation: a process writes it, another one reads it without a copy."""

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory

    @classmethod
    def fitting(cls, interfaces: Sequence[Interface]) -> Self:
        """One with room for any observation of some interfaces."""
        sizes = [
            _NUMBER.itemsize * interface.observation.state_size
            + sum(3 * math.prod(camera.size or _LARGEST) for camera in interface.observation.cameras)
            for interface in interfaces
        ]
        return cls(SharedMemory(create=True, size=max(sizes)))

    @classmethod
    def attached(cls, name: str) -> Self:
        """The one of that name, which another process has made."""
        return cls(SharedMemory(name))

    @property
    def name(self) -> str:
        """Tells it from all others on this machine."""
        return self._memory.name

    def write(self, observation: Observation) -> ObservationLayout:
        """Put an observation in place of the one before.

        Raises:
            ValueError: It is larger than the suite's interface says.
        """
        state = np.ascontiguousarray(observation.state, _NUMBER)
        images = {name: np.ascontiguousarray(image, np.uint8) for name, image in observation.images.items()}
        needed = state.nbytes + sum(image.nbytes for image in images.values())
        if needed > self._memory.size:
            raise ValueError(
                f"an observation of {needed} bytes; the suite's interface says {self._memory.size}"
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
            action_prefix=observation.action_prefix,
        )

    def read(self, layout: ObservationLayout) -> Observation:
        """The observation as it lies there; it changes with the next `write`."""
        state = self._view(0, (layout.state,), _NUMBER)
        start, images = state.nbytes, {}
        for name, shape in layout.images:
            images[name] = self._view(start, shape, np.dtype(np.uint8))
            start += images[name].nbytes
        return Observation(
            images=images, state=state, language=layout.language, action_prefix=layout.action_prefix
        )

    def _view(self, start: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        return np.ndarray(shape, dtype, buffer=self._memory.buf, offset=start)

    def close(self) -> None:
        """Let go of it, and free it."""
        self._memory.close()
        self._memory.unlink()


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeBegun:
    """A world begins an episode of an arm."""

    arm: int
    key: EpisodeKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActionsWanted:
    """A world's query: what it shows lies in its block."""

    layout: ObservationLayout


class ReplyWanted:
    """A world wants the rest of its query."""


class TailWanted:
    """A world's episode is over."""


@dataclasses.dataclass(frozen=True)
class FailedAnswer:
    """The policy has failed; a world raises the error."""

    error: Exception

    @classmethod
    def of(cls, error: Exception) -> "FailedAnswer":
        """The error, or, of a class that worlds cannot import, one that says the same."""
        if type(error).__module__.partition(".")[0] in _OURS:
            return cls(error)
        return cls(RuntimeError(f"{type(error).__name__}: {error}"))


class ServedPolicy:
    """Asks the process that started this one for actions and texts."""

    def __init__(
        self, connection: WorkerConnection, block: ObservationBlock, arm: int, interface: Interface
    ) -> None:
        """Begin to ask.

        Args:
            connection: To the process that has the policy.
            block: Where it looks for observations.
            arm: Which of its policies is meant.
            interface: The policy's conventions.
        """
        self.interface = interface
        self._connection = connection
        self._block = block
        self._arm = arm

    def reset(self, key: EpisodeKey) -> None:
        """Begin an episode."""
        self._connection.send(EpisodeBegun(arm=self._arm, key=key))

    def act(self, observation: Observation) -> np.ndarray:
        """Answer a query."""
        actions: np.ndarray = _answer(
            self._connection.request(ActionsWanted(layout=self._block.write(observation)))
        )
        return actions

    def settle(self) -> Reply:
        """Complete the query."""
        reply: Reply = _answer(self._connection.request(ReplyWanted()))
        return reply

    def finish(self) -> Tail:
        """End the episode."""
        tail: Tail = _answer(self._connection.request(TailWanted()))
        return tail


def _answer(answer: Any) -> Any:
    if isinstance(answer, FailedAnswer):
        raise answer.error
    return answer
