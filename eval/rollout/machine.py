"""Checks of this machine that take no time, before every evaluation: disk, memory, caches, encoder."""

import functools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from configs.paths import absolute, usable_folder
from contracts.errors import UsageError
from oxygen.model.compile_cache import CACHE_VARIABLE, default_cache
from sim_envs.preflight import CheckResult, Status
from sim_envs.workers import WORLD_MB, available_mb, check_memory
from videos.mp4 import REMEDY, encoder_problem

_LOW_DISK_GB = 5.0
_NO_DISK_GB = 0.2


def quick_checks(output_dir: Path, *, num_envs: int, videos: bool) -> Iterator[CheckResult]:
    """Checks that take no time, for runs in `output_dir` with `num_envs` worlds, and `videos` if any.

    They are disk, memory, caches and the encoder.
    """
    yield attempt("output folder", lambda: _writable(output_dir, "--output-dir"))
    yield _disk(output_dir)
    yield attempt("memory", lambda: _memory(num_envs))
    cache = functools.partial(_writable, default_cache(), CACHE_VARIABLE)
    yield attempt("compile cache", cache, otherwise=Status.WARN)
    if videos:
        yield _encoder()


def require_quick_checks(
    output_dir: Path, *, num_envs: int, videos: bool, notify: Callable[[str], None]
) -> None:
    """Run the quick checks before an evaluation; report warnings, and raise a failure as a UsageError."""
    for result in quick_checks(output_dir, num_envs=num_envs, videos=videos):
        if result.status is Status.FAIL:
            raise UsageError(_line(result))
        if result.status is Status.WARN:
            notify(f"warning: {_line(result)}")


def _line(result: CheckResult) -> str:
    return f"{result.name}: {result.detail}" + (f"; {result.remedy}" if result.remedy else "")


def attempt(
    name: str, check: Callable[[], CheckResult | str], *, otherwise: Status = Status.FAIL
) -> CheckResult:
    """The result of a check; a string is the detail of one that passed, a UsageError fails it."""
    try:
        found = check()
    except UsageError as error:
        return CheckResult.of(name, str(error), ok=False, otherwise=otherwise)
    return found if isinstance(found, CheckResult) else CheckResult.of(name, found)


def _writable(folder: Path, option: str) -> str:
    usable_folder(folder, option)
    return f"{absolute(folder)} can be written"


def _disk(folder: Path) -> CheckResult:
    path = absolute(folder)
    nearest = next(each for each in (path, *path.parents) if each.exists())
    free_gb = shutil.disk_usage(nearest).free / 1e9
    return CheckResult.of(
        "disk",
        f"{free_gb:.1f} GB free in {nearest}",
        ok=free_gb >= _LOW_DISK_GB,
        remedy="free some space, give another --output-dir, or --video none",
        otherwise=Status.WARN if free_gb >= _NO_DISK_GB else Status.FAIL,
    )


def _encoder() -> CheckResult:
    problem = encoder_problem()
    return CheckResult.of(
        "videos",
        "H.264 can be written" if problem is None else f"none can be recorded ({problem})",
        ok=problem is None,
        remedy=f"{REMEDY}, or give --video none",
        otherwise=Status.WARN,
    )


def _memory(num_envs: int) -> str:
    check_memory(num_envs)
    return f"{available_mb() / 1e3:.1f} GB available, room for {int(available_mb() // WORLD_MB)} worlds"
