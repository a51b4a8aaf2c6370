"""Runs episodes on a Ray cluster: worlds on all machines, policies where the GPUs are.

World actors run `EpisodePlayer` like worker processes, policy actors batch queries with `PolicyServer`. The
files of an episode are written on its world's machine and sent to the driver with its record.
"""

import contextlib
import dataclasses
import functools
import logging
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from configs.exits import DeferredSignals
from configs.paths import absolute
from configs.schema import RunConfig
from contracts.errors import UsageError, one_line
from eval.policies.base import LoadedPolicy
from eval.policies.opening import open_policies
from eval.policies.resolved import ResolvedPolicy
from eval.rollout.episode import EpisodeJob, EpisodePlayer, lost_result
from eval.rollout.executors.executor import Executor, Jobs, OnBegin, Played, ResultT, Variants, queue_of
from eval.rollout.executors.ray_actors import ActorConnection, PlayedEpisode, PolicyService, WorldActor
from sim_envs.workers import MAX_STARTS, JobQueue, LostJob

_POLL_S = 0.3  # interval of checks for Ctrl-C and hung worlds
_ANSWER_S = 5.0  # timeout of connecting to the head of a cluster


@dataclasses.dataclass(frozen=True, kw_only=True)
class RayCluster(Executor):
    """Runs episodes in parallel world actors of the connected Ray cluster; without a free CPU, one waits."""

    timeout_s: float  # seconds after which an episode is considered hung
    _services: list[Any] = dataclasses.field(default_factory=list, init=False)

    @property
    def local_worlds(self) -> int:
        """See `Executor`; 0, since the cluster places its worlds."""
        return 0

    def open_policies(
        self, resolved: ResolvedPolicy, variants: Sequence[RunConfig], notify: Callable[[str], None]
    ) -> list[LoadedPolicy]:
        """See `Executor`. Batches are divided among policy actors, one per GPU."""
        if not resolved.is_served:
            return super().open_policies(resolved, variants, notify)
        gpus = int(ray.cluster_resources().get("GPU", 0))
        batches = -(-self.num_envs // variants[0].batch_size)
        count = max(1, min(batches, gpus))
        actor = ray.remote(PolicyService).options(
            num_cpus=1, num_gpus=min(1, gpus), max_restarts=-1, max_concurrency=self.num_envs + 2
        )
        shares = [len(range(first, self.num_envs, count)) for first in range(count)]
        self._services[:] = [
            actor.remote(functools.partial(open_policies, resolved, variants, worlds=worlds), absolute(""))
            for worlds in shares
        ]
        described, *_ = [_got(service.opened.remote()) for service in self._services]

        def close() -> None:
            while self._services:
                ray.kill(self._services.pop())

        return [dataclasses.replace(each, close=close) for each in described]

    def play(
        self, variants: Variants[ResultT], jobs: Jobs, interrupts: DeferredSignals, on_begin: OnBegin
    ) -> Played[ResultT]:
        """See `Executor`."""
        queue = queue_of(variants, jobs, on_begin)
        player = EpisodePlayer.of(variants)
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
                    job, ended = world.job, world.news(self.timeout_s)
                    if job is None or ended is None:
                        continue
                    world.job = None
                    if isinstance(ended, PlayedEpisode):
                        ended.write_to(variants[job.variant].run.folder)
                        yield job, ended.result
                    elif job in lost_before:
                        yield job, lost_result(variants[job.variant], job, ended)
                    else:
                        lost_before.add(job)
                        queue.put_back(world.connection.worker, job)


class _World:
    """The driver's handle of a world actor, which is replaced when it is lost."""

    def __init__(self, player: EpisodePlayer, connection: ActorConnection) -> None:
        self.connection = connection  # to its policy
        self.job: EpisodeJob | None = None  # the episode being played; None while it is idle or being opened
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
        except (MemoryError, RayError) as lost:
            reason = _reason(lost)
            if self.job is None:
                self._failed_starts += 1
                if self._failed_starts == MAX_STARTS:
                    raise UsageError(f"the actor of a world cannot be opened: {reason}") from None
            self._replace()
            return LostJob(reason=reason)
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
        self._actor = self._actor_of.remote(self._player, self.connection, absolute(""))
        self.pending = self._actor.open.remote()  # the call, opening or playing; None while idle


def _got(reference: Any) -> Any:
    """The result of an actor's method; its exceptions are raised unwrapped."""
    try:
        return ray.get(reference)
    except RayTaskError as error:
        raise error.cause from None


def _reason(lost: MemoryError | RayError) -> str:
    if isinstance(lost, MemoryError):
        return "it ran out of memory"
    return f"{type(lost).__name__}: {str(lost).strip().splitlines()[-1].strip()}"


def connect(address: str, *, worlds: int) -> None:
    """Connect this process to a Ray cluster: that of this machine (`auto`), or at `host:port`.

    `local` starts one in this process, with a CPU for each of the worlds and one for a policy.

    Raises:
        UsageError: The cluster is not found, or does not start.
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
    except Exception as error:  # noqa: BLE001 - of a start that takes too long, Ray raises a plain Exception
        if address == "local":
            raise UsageError(
                f"Ray does not start here ({one_line(error)}); try again when this machine is less busy, or "
                "leave out --executor ray, to play the worlds in processes"
            ) from None
        raise UsageError(
            f"no Ray cluster found at --ray-address {address} ({one_line(error)}); start one with ray start "
            "--head, give another address, or give local"
        ) from None
