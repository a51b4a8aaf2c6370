"""A world in an actor of a Ray cluster, and its line to the actor of its policy.

Imports no JAX: worlds need none.
"""

import contextlib
import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import ray
from ray.exceptions import RayActorError, RayTaskError

from eval.policies.served import EpisodeStart
from eval.records.schema import EpisodeResult, RunFolder
from eval.rollout.executors.player import EpisodeJob, EpisodePlayer
from sim_envs.gl import rendering_device
from sim_envs.worker_process import OrphanedError
from sim_envs.workers import LostJob

_STARTING_S = 600.0
"""What the actor of a policy may take to come back in."""


class Left:
    """A world is in no episode any more."""


class NotBegun:
    """The policy that is asked knows nothing of the episode: it is another one than where that began."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlayedEpisode:
    """An episode that was played on some machine.

    Attributes:
        result: Its record.
        files: Its query log and its video, by their paths in the run's folder.
    """

    result: EpisodeResult
    files: Mapping[Path, bytes]

    @classmethod
    def collected(cls, result: EpisodeResult, folder: Path) -> Self:
        """With the files in a folder, which are removed there."""
        paths = [path for path in folder.rglob("*") if path.is_file()]
        files = {path.relative_to(folder): path.read_bytes() for path in paths}
        for path in paths:
            path.unlink()
        return cls(result=result, files=files)

    def write_to(self, folder: RunFolder) -> None:
        """Put its files into the run's folder."""
        for path, content in self.files.items():
            whole = folder.path / path
            whole.parent.mkdir(parents=True, exist_ok=True)
            whole.write_bytes(content)


class ServiceLine:
    """A world's line to the actor of its policy. See `sim_envs.worker_process.Line`.

    Attributes:
        worker: The world's number.
    """

    def __init__(self, worker: int, service: Any, row: int) -> None:
        """Begin to ask.

        Args:
            worker: The world's number among all.
            service: The actor; None where the world opens its policy itself.
            row: The world's number among those that the actor answers.
        """
        self.worker = worker
        self._service = service
        self._row = row

    def tell(self, message: object) -> None:
        """See `Line`."""
        self.ask(message)

    def ask(self, message: object) -> Any:
        """See `Line`. An episode does not begin before the actor is there, which may have been lost."""
        patience_s = _STARTING_S if isinstance(message, EpisodeStart) else 0.0
        deadline = time.monotonic() + patience_s
        while True:
            try:
                answer = ray.get(self._service.ask.remote(self._row, message))
            except RayTaskError as error:
                raise error.cause from None
            except RayActorError:
                if time.monotonic() > deadline:
                    raise OrphanedError from None
                time.sleep(1.0)
                continue
            if isinstance(answer, NotBegun):
                raise OrphanedError
            return answer

    def leave(self) -> None:
        """Tell the actor that the world is in no episode any more."""
        if self._service is not None:
            self._service.ask.remote(self._row, Left())


class WorldActor:
    """Plays episodes in a world."""

    def __init__(self, player: EpisodePlayer, line: ServiceLine) -> None:
        self._line = line
        self._folder = Path(tempfile.mkdtemp(prefix="oxygen-eval-"))
        runs = [
            dataclasses.replace(run, folder=RunFolder(self._folder / str(variant)))
            for variant, run in enumerate(player.runs)
        ]
        self._player = dataclasses.replace(player, runs=tuple(runs))
        self._resources = contextlib.ExitStack()
        self._play: Callable[[EpisodeJob], EpisodeResult]

    def open(self) -> None:
        """Begin."""
        device = rendering_device(self._line.worker)
        if device is not None:
            os.environ["MUJOCO_EGL_DEVICE_ID"] = str(device)
        self._play = self._resources.enter_context(self._player.opened(self._line))

    def play(self, job: EpisodeJob) -> PlayedEpisode | LostJob:
        """Play an episode."""
        try:
            return PlayedEpisode.collected(self._play(job), self._folder / str(job.variant))
        except OrphanedError:
            return LostJob(reason="the actor of its policy was lost")
