"""Runs episodes on a Ray cluster: worlds on all machines, policies where the GPUs are.

World actors run `EpisodePlayer` like worker processes, policy actors batch queries with `PolicyServer`. The
files of an episode are written on its world's machine and sent to the driver with its record.
"""

import contextlib
import dataclasses
import functools
import logging
import math
import os
import queue
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from configs.errors import UsageError
from configs.schema import RunConfig
from configs.temporary import temporary_folder
from eval.policies.base import LoadedPolicy
from eval.policies.opening import open_policies
from eval.policies.resolved import ResolvedPolicy
from eval.policies.served import IN_MESSAGES, EpisodeStart
from eval.policies.serving import PolicyServer
from eval.policies.sources import PolicySource
from eval.records.schema import EpisodeResult, RunFolder
from eval.rollout.episode import EpisodeJob, EpisodePlayer, lost_record
from eval.rollout.executors.executor import OnBegin, Played, queue_of
from eval.rollout.interrupts import DeferredSignals
from eval.rollout.manifest import Variant
from sim_envs.gl import rendering_device
from sim_envs.job_queue import JobQueue
from sim_envs.worker_process import OrphanedError
from sim_envs.workers import MAX_STARTS, LostJob

_POLL_S = 0.3
"""Interval of checks for Ctrl-C and hung worlds."""
_ANSWER_S = 5.0
"""Timeout of connecting to the head of a cluster."""
_STARTUP_S = 600.0
"""Timeout of a restarting policy actor."""


class EpisodeLeft:
    """A world has left its episode."""


class UnknownEpisode:
    """The policy actor was restarted and does not know the episode."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlayedEpisode:
    """An episode played on another machine.

    Attributes:
        result: Its record.
        files: Its query log and video by path in the run's folder.
    """

    result: EpisodeResult
    files: Mapping[Path, bytes]

    @classmethod
    def collected(cls, result: EpisodeResult, folder: Path) -> Self:
        """Collect the files of a folder and delete them there."""
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
    """A world's connection to its policy actor. See `sim_envs.worker_process.WorkerConnection`.

    Args:
        worker: Index of the world.
        service: The policy actor; None if the world opens its policy itself.
        row: Index of the world among those of the actor.
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
    """Runs episodes in a world."""

    def __init__(self, player: EpisodePlayer, connection: ActorConnection) -> None:
        self._connection = connection
        self._folder = temporary_folder("oxygen-eval-ray-")
        runs = [
            dataclasses.replace(run, folder=RunFolder(self._folder / str(variant)))
            for variant, run in enumerate(player.runs)
        ]
        self._player = dataclasses.replace(player, runs=tuple(runs))
        self._resources = contextlib.ExitStack()
        self._play: Callable[[EpisodeJob], EpisodeResult]

    def open(self) -> None:
        """Open the player."""
        device = rendering_device(self._connection.worker)
        if device is not None:
            os.environ["MUJOCO_EGL_DEVICE_ID"] = str(device)
        self._play = self._resources.enter_context(self._player.open(self._connection))

    def play(self, job: EpisodeJob) -> PlayedEpisode | LostJob:
        """Run an episode."""
        try:
            return PlayedEpisode.collected(self._play(job), self._folder / str(job.variant))
        except OrphanedError:
            return LostJob(reason="the actor of its policy was lost")


_SENT_FIELDS = ("interface", "horizon", "inputs", "writes_texts", "reports_work", "remark")
"""Fields of `LoadedPolicy` that are sent to the driver."""


class PolicyService:
    """A policy that answers worlds in batches."""

    def __init__(self, opener: Callable[[], Sequence[LoadedPolicy]], worlds: int) -> None:
        self._opener = opener
        self._worlds = worlds
        self._opening = threading.Lock()
        self._sent: list[Mapping[str, Any]] = []
        self._asked: queue.SimpleQueue[tuple[int, Any, Callable[[object], None]]] = queue.SimpleQueue()

    def opened(self) -> list[Mapping[str, Any]]:
        """Open the policy if needed; the fields of each variant's `LoadedPolicy`."""
        with self._opening:
            if not self._sent:
                policies = self._opener()
                server = PolicyServer(policies, [IN_MESSAGES] * self._worlds)
                threading.Thread(target=self._answer, args=(server,), daemon=True).start()
                self._sent = [{name: getattr(each, name) for name in _SENT_FIELDS} for each in policies]
        return self._sent

    def ask(self, world: int, message: Any) -> Any:
        """Answer a world."""
        self.opened()
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._asked.put((world, message, answers.put))
        return answers.get()

    def _answer(self, server: PolicyServer) -> None:
        """Answer all worlds; runs in its own thread."""
        playing: set[int] = set()
        patience_s = math.inf
        try:
            while True:
                with contextlib.suppress(queue.Empty):
                    timeout_s = None if patience_s == math.inf else patience_s
                    self._handle(server, playing, *self._asked.get(timeout=timeout_s))
                    while True:
                        self._handle(server, playing, *self._asked.get_nowait())
                patience_s = server.poll()
        except BaseException:  # noqa: BLE001 - process boundary: worlds must not wait for ever
            traceback.print_exc()
            os._exit(1)

    def _handle(
        self,
        server: PolicyServer,
        playing: set[int],
        world: int,
        message: Any,
        answer: Callable[[object], None],
    ) -> None:
        if isinstance(message, EpisodeLeft):
            playing.discard(world)
            server.job_ended(world)
            answer(None)
        elif isinstance(message, EpisodeStart):
            playing.add(world)
            server.handle(world, message, answer)
            answer(None)
        elif world in playing:
            server.handle(world, message, answer)
        else:
            answer(UnknownEpisode())


class RayCluster:
    """Runs episodes in parallel world actors of the connected Ray cluster.

    Args:
        num_envs: Number of world actors. Actors without a free CPU wait for one.
        timeout_s: Seconds after which an episode is considered hung.
    """

    def __init__(self, *, num_envs: int, timeout_s: float) -> None:
        self.num_envs = num_envs
        self._timeout_s = timeout_s
        self._services: list[Any] = []

    def open_policies(
        self, resolved: ResolvedPolicy, variants: Sequence[RunConfig], notify: Callable[[str], None]
    ) -> list[LoadedPolicy]:
        """See `Executor`. Batches are divided among policy actors, one per GPU."""
        if not resolved.is_served:
            return open_policies(resolved, variants, notify=notify)
        gpus = int(ray.cluster_resources().get("GPU", 0))
        batches = -(-self.num_envs // variants[0].batch_size)
        count = max(1, min(batches, gpus))
        actor = ray.remote(PolicyService).options(
            num_cpus=1, num_gpus=min(1, gpus), max_restarts=-1, max_concurrency=self.num_envs + 2
        )
        shares = [len(range(first, self.num_envs, count)) for first in range(count)]
        self._services = [
            actor.remote(functools.partial(open_policies, resolved, variants, worlds=worlds), worlds)
            for worlds in shares
        ]
        described, *_ = [_got(service.opened.remote()) for service in self._services]

        def elsewhere(*_: object) -> Any:
            raise AssertionError("the policy acts in an actor")

        def close() -> None:
            while self._services:
                ray.kill(self._services.pop())

        return [LoadedPolicy(**each, in_world=elsewhere, close=close) for each in described]

    def play(
        self,
        variants: Sequence[Variant],
        jobs: Sequence[EpisodeJob],
        interrupts: DeferredSignals,
        on_begin: OnBegin,
    ) -> Played:
        """See `Executor`."""
        queue, runs = queue_of(variants, jobs, on_begin), tuple(each.run for each in variants)
        plans = tuple(each.plan for each in variants)
        sources = tuple(
            PolicySource(variant=number, interface=each.interface, blocks=(), opener=each.opener)
            for number, each in enumerate(variant.policy for variant in variants)
        )
        player = EpisodePlayer(plans=plans, runs=runs, sources=sources)
        lost_before: set[EpisodeJob] = set()
        with contextlib.ExitStack() as until_the_end:
            worlds = []
            for number in range(min(self.num_envs, len(queue))):
                row, service = divmod(number, max(1, len(self._services)))
                connection = ActorConnection(number, self._services[service] if self._services else None, row)
                worlds.append(_World(player, connection))
                until_the_end.callback(worlds[-1].kill)
            while queue or any(world.job for world in worlds):
                interrupts.check()
                for world in worlds:
                    world.begin(queue)
                pending = [world for world in worlds if world.pending is not None]
                ray.wait([world.pending for world in pending], timeout=_POLL_S)
                for world in pending:
                    job, ended = world.job, world.news(self._timeout_s)
                    if job is None or ended is None:
                        continue
                    world.job = None
                    if isinstance(ended, PlayedEpisode):
                        ended.write_to(runs[job.variant].folder)
                        yield job, ended.result
                    elif job in lost_before:
                        task = plans[job.variant].tasks[job.task]
                        yield job, lost_record(job, task, runs[job.variant], ended)
                    else:
                        lost_before.add(job)
                        queue.put_back(world.connection.worker, job)


class _World:
    """The driver's handle of a world actor, which is replaced when it is lost.

    Attributes:
        connection: Its connection to its policy.
        job: The episode being played; None while it is idle or being opened.
        pending: The running call, opening or playing; None while idle.
    """

    def __init__(self, player: EpisodePlayer, connection: ActorConnection) -> None:
        self.connection = connection
        self.job: EpisodeJob | None = None
        self._actor_of = ray.remote(WorldActor).options(num_cpus=1)
        self._player = player
        self._failed_starts = 0
        self._start()

    def begin(self, queue: JobQueue[EpisodeJob]) -> None:
        """Start the next episode if the actor is idle and there is one."""
        if self.pending is None:
            self.job = queue.next_for(self.connection.worker)
            if self.job is not None:
                self._began_s = time.monotonic()
                self.pending = self._actor.play.remote(self.job)

    def news(self, timeout_s: float) -> PlayedEpisode | LostJob | None:
        """The result of its episode; None while it runs or after opening.

        Raises:
            UsageError: The actor cannot be opened.
            Exception: Raised by the episode.
        """
        if not ray.wait([self.pending], timeout=0)[0]:
            if self.job is None or time.monotonic() - self._began_s <= timeout_s:
                return None
            self._replace()
            return LostJob(reason=f"it had not finished after {timeout_s:g} s")
        try:
            ended: PlayedEpisode | LostJob | None = _got(self.pending)
        except MemoryError:
            self._replace()
            return LostJob(reason="it ran out of memory")
        except RayError as lost:
            if self.job is None:
                self._failed_starts += 1
                if self._failed_starts == MAX_STARTS:
                    raise UsageError(f"the actor of a world cannot be opened: {_reason(lost)}") from None
            self._replace()
            return LostJob(reason=_reason(lost))
        self.pending, self._failed_starts = None, 0
        return ended

    def kill(self) -> None:
        """Kill its actor."""
        ray.kill(self._actor)
        self.connection.job_ended()

    def _replace(self) -> None:
        self.kill()
        self._start()

    def _start(self) -> None:
        self._actor = self._actor_of.remote(self._player, self.connection)
        self.pending = self._actor.open.remote()


def _got(reference: Any) -> Any:
    """The result of an actor's method; its exceptions are raised unwrapped."""
    try:
        return ray.get(reference)
    except RayTaskError as error:
        raise error.cause from None


def _reason(lost: RayError) -> str:
    return f"{type(lost).__name__}: {str(lost).strip().splitlines()[-1].strip()}"


def connect(address: str, *, worlds: int) -> None:
    """Connect this process to a Ray cluster.

    Args:
        address: `local` starts a cluster in this process, `auto` finds this machine's; else `host:port`.
        worlds: Number of CPUs of a local cluster, besides one for a policy.

    Raises:
        UsageError: The cluster is not found.
    """
    if address not in ("local", "auto"):  # Ray itself would keep trying an address that does not answer
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if not host or not port.isdigit():
            raise UsageError(
                f"--ray-address is {address!r}: give auto, local or host:port, such as 10.0.0.1:6379"
            )
        try:
            socket.create_connection((host, int(port)), timeout=_ANSWER_S).close()
        except OSError as error:
            raise UsageError(
                f"no answer from --ray-address {address} ({error.strerror or error}); see ray status on that "
                "machine, or give local"
            ) from None
    started = {"num_cpus": worlds + 1, "include_dashboard": False} if address == "local" else {}
    try:
        ray.init(
            address, ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR, **started
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"no Ray cluster found at --ray-address {address} ({error}); start one with ray start --head, "
            "give another address, or give local"
        ) from None
