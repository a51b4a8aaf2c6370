"""The user's copy of a perturbed LIBERO: where it is, its tasks and BDDL files, the base of its suites."""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import os
import re
import runpy
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from typing_extensions import override

from configs.paths import absolute, read_text, temporary_folder
from contracts.errors import UsageError
from sim_envs.libero.bddl import parse
from sim_envs.libero.suite import LiberoSuite
from sim_envs.libero.tasks import init_states
from sim_envs.suite import InitIds, Task

_TASK_LIST = Path("benchmark") / "libero_suite_task_map.py"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A perturbed LIBERO that is not installed as `libero`."""

    name: str
    variable: str  # the environment variable that names the user's copy
    setup: str  # what `oxygen-eval setup` installs it as
    distribution: str  # the distribution that this installs
    package: str  # the folder with its data, in a checkout or an installed distribution
    # Folder into which setup unpacks the distribution, in this Python's environment; None if it is installed
    # as any other.
    target: str | None = None

    @property
    def option(self) -> str:
        """The option that names the user's copy."""
        return f"--{self.setup}"

    def find(self) -> Path:
        """The folder with `bddl_files`, `init_files` and `benchmark`; a UsageError if there is none."""
        return _found(self, os.environ.get(self.variable))

    def available(self, tasks: Sequence[Task]) -> str:
        """How many of its tasks run here, in words."""
        left = sum(not task.missing for task in tasks)
        return f"{self.name}: {len(tasks)} tasks in {self.find()}; {left} run with the assets here."


@functools.cache
def _found(benchmark: Benchmark, named: str | None) -> Path:
    how = (
        f"run `oxygen-eval setup {benchmark.setup}`, or give a checkout with {benchmark.option} PATH or "
        f"{benchmark.variable}=PATH"
    )
    if named:
        path = absolute(Path(named).expanduser()).resolve()
        if not path.is_dir():
            raise UsageError(f"{benchmark.option} {named!r} is not a folder: {how}")
        places = (path, path / benchmark.package, *sorted(path.glob("*/lib*")), *sorted(path.glob("lib*")))
        found = next((inside for inside in places if (inside / _TASK_LIST).is_file()), None)
        if found is None:
            raise UsageError(f"{benchmark.option} {named!r} holds no {_TASK_LIST} of {benchmark.name}: {how}")
        return found
    folder = Path(sys.prefix, "share", "oxygen-eval", benchmark.target or "")
    if benchmark.target is None:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            folder = Path(str(importlib.metadata.distribution(benchmark.distribution).locate_file("")))
    if not (folder / benchmark.package / _TASK_LIST).is_file():
        raise UsageError(f"{benchmark.name} is not installed: {how}")
    return folder / benchmark.package


@functools.cache
def task_names(copy: Path, suite: str) -> tuple[str, ...]:
    """The names of a suite's tasks in its published order; none if the copy does not list it."""
    return tuple(runpy.run_path(str(copy / _TASK_LIST))["libero_task_map"].get(suite, ()))


@functools.cache
def mended(bddl: Path) -> Path | None:
    """A copy of a BDDL file whose goal has a parenthesis too many, without it; None if it has not."""
    text = read_text(bddl)
    if text.count(")") != text.count("(") + 1:
        return None
    head, marker, goal = re.split(r"(\(:goal)", text, flags=re.IGNORECASE)
    opened = re.sub(r"^(\s*)(?:and\b\s*)?", r"\1(And ", goal, count=1, flags=re.IGNORECASE)
    copy = temporary_folder("oxygen-eval-bddl-") / bddl.name
    copy.write_text(f"{head}{marker}{opened}")
    return copy


class CopiedSuite(LiberoSuite):
    """A suite of the user's copy, perturbed as published."""

    perturbs = ()

    @override
    def check(self, tasks: Iterable[Task]) -> None:
        """Also check the problem files."""
        played = [self._tasks[task.task_id] for task in tasks]
        for file in dict.fromkeys(task.bddl_file for task in played):
            parse(file)
        super().check(played)

    @override
    def init_ids(self, task: Task) -> InitIds:
        """Stored states."""
        return InitIds(stored=len(init_states(self._tasks[task.task_id])))

    @override
    def training_wordings(self) -> Mapping[str, tuple[str, ...]]:
        """None: instructions are the benchmark's."""
        return {}

    def _digest_of(self, contents: Mapping[str, str]) -> str:
        """A digest of the names of the tasks, in order, and of files, given their SHA-256 in any order."""
        names = [task.name for task in self._tasks]
        parts = [*names, *(f"{file} {digest}" for file, digest in sorted(contents.items()))]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
