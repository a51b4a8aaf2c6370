"""Worker processes: what becomes of those that run out of memory, and which GPU each renders on."""

import contextlib
import dataclasses
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from sim_envs import gl
from sim_envs.job_queue import JobQueue
from sim_envs.worker_process import Line
from sim_envs.workers import LostJob, play_in_workers

SATED, STARVED_ONCE, STARVED, OOM_KILLED = "sated", "starved once", "starved", "killed"


@dataclasses.dataclass(frozen=True)
class Hungry:
    """Jobs that take more memory than there is, but for the first."""

    mark: Path

    @contextlib.contextmanager
    def opened(self, line: Line) -> Iterator[Callable[[str], int]]:
        yield lambda job: self.play(job, line.worker)

    def play(self, job: str, worker: int) -> int:
        if job == OOM_KILLED:
            os.kill(os.getpid(), signal.SIGKILL)
        if job == STARVED or (job == STARVED_ONCE and not self.mark.exists()):
            self.mark.touch()
            raise MemoryError
        return worker


class Rendering:
    """Says which device a worker renders on."""

    @contextlib.contextmanager
    def opened(self, line: Line) -> Iterator[Callable[[int], tuple[int, str | None]]]:
        yield lambda _: (line.worker, os.environ.get("MUJOCO_EGL_DEVICE_ID"))


def played(player, jobs, *, workers):
    queue = JobQueue(jobs, task=lambda job: job, episode=lambda job: job)
    return dict(play_in_workers(player, queue, workers=workers, check=lambda: None))


def test_a_worker_without_memory_is_replaced_and_its_job_played_once_more(tmp_path):
    found = played(Hungry(tmp_path / "mark"), [SATED, STARVED_ONCE, STARVED, OOM_KILLED], workers=1)
    assert found == {
        SATED: 0,
        STARVED_ONCE: 0,
        STARVED: LostJob(reason="it ran out of memory"),
        OOM_KILLED: LostJob(reason="it was ended by SIGKILL, as for want of memory"),
    }


def test_workers_are_spread_over_the_gpus_that_render(monkeypatch):
    monkeypatch.delenv("MUJOCO_EGL_DEVICE_ID", raising=False)
    monkeypatch.setattr(Path, "glob", lambda *_: [Path(f"/dev/nvidia{gpu}") for gpu in range(3)])
    monkeypatch.setattr(gl, "choose_backend", lambda: "egl")
    monkeypatch.setattr(gl, "_failure", lambda _, device: "no such device" if device == 1 else None)
    found = played(Rendering(), range(3), workers=3)
    assert set(found.values()) == {(0, "0"), (1, "2"), (2, "0")}
    assert "MUJOCO_EGL_DEVICE_ID" not in os.environ
    monkeypatch.setenv("MUJOCO_EGL_DEVICE_ID", "1")
    assert gl.rendering_device(0) is None, "it is set for all"
