"""What runs in the actors of a Ray cluster: a world that plays episodes, and a policy that answers worlds."""

import contextlib
import dataclasses
import os
import queue
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import ray
from ray.exceptions import RayActorError, RayTaskError

from configs.schema import RunConfig
from eval.policies.resolved import ResolvedPolicy
from eval.policies.served import IN_MESSAGES, EpisodeBegun
from eval.policies.serving import PolicyServer
from eval.records.schema import EpisodeResult, RunFolder
from eval.rollout.executors.player import EpisodePlayer, Play
from sim_envs.gl import rendering_device
from sim_envs.worker_process import OrphanedError
from sim_envs.workers import LostJob

_STARTING_S = 600.0
"""What the actor of a policy may take to come back in."""
_TOLD = ("interface", "horizon", "inputs", "reports_work", "remark")
"""What the driver needs to know of an open policy."""


class _Left:
    """A world is in no episode any more."""


class _NotBegun:
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
        patience_s = _STARTING_S if isinstance(message, EpisodeBegun) else 0.0
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
            if isinstance(answer, _NotBegun):
                raise OrphanedError
            return answer

    def leave(self) -> None:
        """Tell the actor that the world is in no episode any more."""
        if self._service is not None:
            self._service.ask.remote(self._row, _Left())


class WorldActor:
    """Plays episodes in a world."""

    def __init__(self, player: EpisodePlayer, line: ServiceLine) -> None:
        self._line = line
        self._folder = Path(tempfile.mkdtemp(prefix="oxygen-eval-"))
        runs = [
            dataclasses.replace(run, folder=RunFolder(self._folder / str(arm)))
            for arm, run in enumerate(player.runs)
        ]
        self._player = dataclasses.replace(player, runs=tuple(runs))
        self._resources = contextlib.ExitStack()
        self._play: Callable[[Play], EpisodeResult]

    def open(self) -> None:
        """Begin."""
        device = rendering_device(self._line.worker)
        if device is not None:
            os.environ["MUJOCO_EGL_DEVICE_ID"] = str(device)
        self._play = self._resources.enter_context(self._player.opened(self._line))

    def play(self, play: Play) -> PlayedEpisode | LostJob:
        """Play an episode."""
        try:
            return PlayedEpisode.collected(self._play(play), self._folder / str(play.arm))
        except OrphanedError:
            return LostJob(reason="the actor of its policy was lost")


class PolicyService:
    """A policy, which answers worlds in batches."""

    def __init__(self, resolved: ResolvedPolicy, variants: Sequence[RunConfig], worlds: int) -> None:
        self._what = resolved, variants, worlds
        self._opening = threading.Lock()
        self._told: list[Mapping[str, Any]] = []
        self._asked: queue.SimpleQueue[tuple[int, Any, Callable[[object], None]]] = queue.SimpleQueue()

    def opened(self) -> list[Mapping[str, Any]]:
        """Open it, unless it is; what there is to know of it in every arm."""
        with self._opening:
            if not self._told:
                from eval.policies.opening import open_policies  # imports JAX, which worlds must not

                resolved, variants, worlds = self._what
                policies = open_policies(resolved, variants, worlds=worlds)
                server = PolicyServer(policies, [IN_MESSAGES] * worlds)
                threading.Thread(target=self._answer, args=(server,), daemon=True).start()
                self._told = [{name: getattr(each, name) for name in _TOLD} for each in policies]
        return self._told

    def ask(self, world: int, message: Any) -> Any:
        """Answer a world."""
        self.opened()
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._asked.put((world, message, answers.put))
        return answers.get()

    def _answer(self, server: PolicyServer) -> None:
        """Answer all worlds, in one thread."""
        playing: set[int] = set()
        patience_s = float("inf")
        try:
            while True:
                self._take_in(server, playing, patience_s)
                patience_s = server.attend()
        except BaseException:  # noqa: BLE001 - the boundary of the process: worlds must not wait for ever
            traceback.print_exc()
            os._exit(1)

    def _take_in(self, server: PolicyServer, playing: set[int], patience_s: float) -> None:
        """Wait for a message, and note all that there are."""
        with contextlib.suppress(queue.Empty):
            timeout_s = None if patience_s == float("inf") else patience_s
            self._note(server, playing, *self._asked.get(timeout=timeout_s))
            while True:
                self._note(server, playing, *self._asked.get_nowait())

    def _note(
        self,
        server: PolicyServer,
        playing: set[int],
        world: int,
        message: Any,
        answer: Callable[[object], None],
    ) -> None:
        if isinstance(message, _Left):
            playing.discard(world)
            server.left(world)
            answer(None)
        elif isinstance(message, EpisodeBegun):
            playing.add(world)
            server.asked(world, message, answer)
            answer(None)
        elif world in playing:
            server.asked(world, message, answer)
        else:
            answer(_NotBegun())
