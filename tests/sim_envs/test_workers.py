"""Worker processes: hangs, lack of memory, and the GPU that each renders on."""

import functools
import math
import multiprocessing
import os
from types import SimpleNamespace

import pytest

from contracts.errors import UsageError
from sim_envs import gl
from sim_envs.workers import MAX_STARTS, JobQueue, LostJob, run_in_workers
from tests.sim_envs.worker_jobs import (
    HANGING,
    SATED,
    STARVED,
    STARVED_ONCE,
    device,
    dying,
    failing_late,
    hungry,
)


def results_of(runner, jobs, *, workers, job_ended=lambda worker: None, check=lambda: None):
    queue = JobQueue(jobs, task=lambda job: job, episode=lambda job: job)
    handler = SimpleNamespace(poll=lambda: math.inf, job_ended=job_ended, handle=pytest.fail)
    how = {"workers": workers, "check": check, "handler": handler, "timeout_s": 1.0}
    return dict(run_in_workers(runner, queue, **how))


@pytest.mark.parametrize(
    ("job", "result"),
    [
        (STARVED_ONCE, 0),
        pytest.param(STARVED, "it ran out of memory", marks=pytest.mark.slow),
        pytest.param("oom", "it was killed by SIGKILL (perhaps out of memory)", marks=pytest.mark.slow),
        ("crash", "it was killed by SIGSEGV (a library crashed, often the renderer: try another MUJOCO_GL)"),
        (HANGING, "it had not finished after 1 s"),
    ],
)
def test_a_worker_that_hangs_or_has_no_memory_is_replaced_and_its_job_retried_once(tmp_path, job, result):
    found = results_of(functools.partial(hungry, tmp_path / "mark"), [job, SATED], workers=1)
    assert found == {job: LostJob(reason=result) if isinstance(result, str) else result, SATED: 0}


def test_a_worker_that_died_between_two_jobs_is_replaced_before_the_second(tmp_path):
    ended, of_others = [], multiprocessing.active_children()

    def die_after_the_first(worker):
        if not ended:
            (process,) = (each for each in multiprocessing.active_children() if each not in of_others)
            process.kill()
            process.join()
        ended.append(worker)

    runner = functools.partial(hungry, tmp_path / "mark")
    found = results_of(runner, [SATED, STARVED_ONCE], workers=1, job_ended=die_after_the_first)
    assert found == {SATED: 0, STARVED_ONCE: 0}, "a retry is left for the second"


def test_a_worker_that_fails_after_all_were_stopped_says_nothing(tmp_path, capfd):
    def check():
        if (tmp_path / "mark").exists():
            raise UsageError("another has failed")

    with pytest.raises(UsageError, match="another has failed"):
        results_of(functools.partial(failing_late, tmp_path / "mark"), [0], workers=1, check=check)
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_a_job_survives_workers_that_die_before_they_are_ready(tmp_path, capsys):
    assert results_of(functools.partial(dying, tmp_path, MAX_STARTS - 1), [7], workers=1) == {7: 7}
    capsys.readouterr()
    lost = results_of(functools.partial(dying, tmp_path, 2 * MAX_STARTS), [7], workers=1)
    assert lost == {7: LostJob(reason="it exited with code 3")}
    said = "warning: worker 0 was lost: it exited with code 3; its job is "
    assert capsys.readouterr().err.splitlines() == [f"{said}started again"] * 2 + [f"{said}given up"]


def test_workers_are_spread_over_the_gpus_that_render(monkeypatch):
    monkeypatch.delenv("MUJOCO_EGL_DEVICE_ID", raising=False)
    monkeypatch.setattr(gl, "gpu_count", lambda: 3)
    monkeypatch.setattr(gl, "choose_backend", lambda: "egl")
    monkeypatch.setattr(gl, "_failure", lambda _, device: "no such device" if device == 1 else None)
    found = results_of(device, range(3), workers=3)
    assert set(found.values()) == {(0, "0"), (1, "2"), (2, "0")}
    assert "MUJOCO_EGL_DEVICE_ID" not in os.environ
