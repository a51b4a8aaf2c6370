"""Worker processes: what becomes of those that hang or have no memory, and which GPU each renders on."""

import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sim_envs import gl
from sim_envs.job_queue import JobQueue
from sim_envs.worker_process import Line
from sim_envs.workers import OPENINGS, LostJob, play_in_workers

SATED, STARVED_ONCE, STARVED, OOM_KILLED, HANGING = "sated", "starved once", "starved", "killed", "hanging"


@dataclasses.dataclass(frozen=True)
class Hungry:
    """Jobs that take more memory than there is, or never end, but for the first."""

    mark: Path

    @contextlib.contextmanager
    def opened(self, line: Line) -> Iterator[Callable[[str], int]]:
        yield lambda job: self.play(job, line.worker)

    def play(self, job: str, worker: int) -> int:
        if job == HANGING:
            time.sleep(60)
        if job == OOM_KILLED:
            os.kill(os.getpid(), signal.SIGKILL)
        if job == STARVED or (job == STARVED_ONCE and not self.mark.exists()):
            self.mark.touch()
            raise MemoryError
        return worker


@dataclasses.dataclass(frozen=True)
class Unlucky:
    """Is lost some times before it is open, each with a mark, and then not any more."""

    marks: Path
    losses: int

    @contextlib.contextmanager
    def opened(self, line: Line) -> Iterator[Callable[[int], int]]:
        before = len(list(self.marks.iterdir()))
        if before < self.losses:
            (self.marks / str(before)).touch()
            os._exit(3)
        yield lambda job: job


class Rendering:
    """Says which device a worker renders on."""

    @contextlib.contextmanager
    def opened(self, line: Line) -> Iterator[Callable[[int], tuple[int, str | None]]]:
        yield lambda _: (line.worker, os.environ.get("MUJOCO_EGL_DEVICE_ID"))


def played(player, jobs, *, workers):
    queue = JobQueue(jobs, task=lambda job: job, episode=lambda job: job)
    return dict(play_in_workers(player, queue, workers=workers, check=lambda: None, timeout_s=1.0))


def test_a_worker_that_hangs_or_has_no_memory_is_replaced_and_its_job_played_once_more(tmp_path):
    jobs = [SATED, STARVED_ONCE, STARVED, OOM_KILLED, HANGING]
    found = played(Hungry(tmp_path / "mark"), jobs, workers=1)
    assert found == {
        SATED: 0,
        STARVED_ONCE: 0,
        STARVED: LostJob(reason="it ran out of memory"),
        OOM_KILLED: LostJob(reason="it was ended by SIGKILL, as for want of memory"),
        HANGING: LostJob(reason="it had not ended after 1 s"),
    }


@pytest.mark.slow
def test_a_job_is_not_lost_with_a_worker_that_had_not_begun_it(tmp_path):
    """Unless that goes on."""
    assert played(Unlucky(tmp_path, OPENINGS - 1), [7], workers=1) == {7: 7}
    lost = played(Unlucky(tmp_path, 2 * OPENINGS), [7], workers=1)
    assert lost == {7: LostJob(reason="it ended with exit code 3")}


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
