"""A world and a policy in Ray actors, and the connection between them. Imports no JAX."""

import contextlib
import dataclasses
import math
import os
import queue
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import ray
from ray.exceptions import RayActorError, RayTaskError

from configs.paths import begin_in, temporary_folder
from eval.policies.base import LoadedPolicy, PolicyLostError
from eval.policies.interprocess import EpisodeStart, PolicyServer
from eval.records.schema import RunFolder
from eval.rollout.episode import EpisodeJob, EpisodePlayer
from sim_envs.gl import DEVICE, rendering_device
from sim_envs.workers import LostJob, OrphanedError

_STARTUP_S = 600.0  # timeout of a restarting policy actor
_POLL_S = 1.0  # interval at which a waiting world asks whether the policy is lost


class EpisodeLeft:
    """A world has left its episode."""


class UnknownEpisode:
    """The policy actor was restarted and does not know the episode."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlayedEpisode:
    """An episode played on another machine."""

    result: Any  # its record
    files: Mapping[Path, bytes]  # its query log and video by path in the run's folder

    @classmethod
    def collected(cls, result: Any, folder: Path) -> Self:
        """Read the files of a folder, and delete them."""
        paths = [path for path in folder.rglob("*") if path.is_file()]
        files = {path.relative_to(folder): path.read_bytes() for path in paths}
        for path in paths:
            path.unlink()
        return cls(result=result, files=files)

    def write_to(self, folder: RunFolder) -> None:
        """Write its files to the run's folder."""
        for path, content in self.files.items():
            whole = folder.path / path
            whole.parent.mkdir(parents=True, exist_ok=True)
            whole.write_bytes(content)


class ActorConnection:
    """A world's connection to its policy actor. See `sim_envs.workers.WorkerConnection`.

    Without a service, the world opens its policy itself; `row` is its index among the worlds of the actor.
    """

    def __init__(self, worker: int, service: Any, row: int) -> None:
        self.worker = worker
        self._service = service
        self._row = row

    def send(self, message: object) -> None:
        """See `WorkerConnection`."""
        self.request(message)

    def request(self, message: object) -> Any:
        """See `WorkerConnection`. The start of an episode waits for the actor, which may be restarting."""
        patience_s = _STARTUP_S if isinstance(message, EpisodeStart) else 0.0
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
            if isinstance(answer, UnknownEpisode):
                raise OrphanedError
            return answer

    def job_ended(self) -> None:
        """Tell the actor that the world has left its episode."""
        if self._service is not None:
            self._service.ask.remote(self._row, EpisodeLeft())


class WorldActor:
    """Runs episodes in a world; relative paths are from the driver's folder."""

    def __init__(self, player: EpisodePlayer, connection: ActorConnection, driver: Path) -> None:
        begin_in(driver)
        self._connection = connection
        self._folder = temporary_folder("oxygen-eval-ray-")
        folders = [RunFolder(self._folder / str(variant)) for variant in range(len(player.variants))]
        variants = [
            dataclasses.replace(each, run=dataclasses.replace(each.run, folder=folder))
            for each, folder in zip(player.variants, folders, strict=True)
        ]
        self._player = dataclasses.replace(player, variants=tuple(variants))
        self._resources = contextlib.ExitStack()
        self._play: Callable[[EpisodeJob], Any]

    def open(self) -> None:
        """Open the player."""
        device = rendering_device(self._connection.worker)
        if device is not None:
            os.environ[DEVICE] = str(device)
        self._play = self._resources.enter_context(self._player.open(self._connection))

    def play(self, job: EpisodeJob) -> PlayedEpisode | LostJob:
        """Run an episode."""
        try:
            return PlayedEpisode.collected(self._play(job), self._folder / str(job.variant))
        except OrphanedError:
            return LostJob(reason="the actor of its policy was lost")


class PolicyService:
    """A policy that answers worlds in batches; relative paths are from the driver's folder."""

    def __init__(self, opener: Callable[[], Sequence[LoadedPolicy]], driver: Path) -> None:
        begin_in(driver)
        self._opener = opener
        self._opening = threading.Lock()
        self._described: list[LoadedPolicy] = []
        self._asked: queue.SimpleQueue[tuple[int, Any, Callable[[object], None]]] = queue.SimpleQueue()
        self._lost: PolicyLostError | None = None

    def opened(self) -> list[LoadedPolicy]:
        """Open the policy if needed; each variant's, see `LoadedPolicy.described`."""
        with self._opening:
            if not self._described:
                policies = self._opener()
                server = PolicyServer(policies)
                threading.Thread(target=self._answer, args=(server,), daemon=True).start()
                self._described = [each.described() for each in policies]
        return self._described

    def ask(self, world: int, message: Any) -> Any:
        """Answer a world; a PolicyLostError once the policy is lost."""
        self.opened()
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._asked.put((world, message, answers.put))
        while self._lost is None:
            with contextlib.suppress(queue.Empty):
                return answers.get(timeout=_POLL_S)
        raise self._lost

    def _answer(self, server: PolicyServer) -> None:
        patience_s = math.inf
        try:
            while True:
                with contextlib.suppress(queue.Empty):
                    timeout_s = None if patience_s == math.inf else patience_s
                    self._handle(server, *self._asked.get(timeout=timeout_s))
                    while True:
                        self._handle(server, *self._asked.get_nowait())
                patience_s = server.poll()
        except PolicyLostError as lost:
            self._lost = lost
        except BaseException:  # noqa: BLE001 - process boundary: worlds must not wait for ever
            traceback.print_exc()
            os._exit(1)

    def _handle(
        self, server: PolicyServer, world: int, message: Any, answer: Callable[[object], None]
    ) -> None:
        if isinstance(message, EpisodeLeft):
            server.job_ended(world)
            answer(None)
        elif isinstance(message, EpisodeStart):
            server.handle(world, message, answer)
            answer(None)
        elif server.serves(world):
            server.handle(world, message, answer)
        else:
            answer(UnknownEpisode())
