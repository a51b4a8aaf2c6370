"""The user's copy of a perturbed LIBERO: where it is, its tasks, and what its BDDL files say."""

import dataclasses
import functools
import hashlib
import importlib.metadata
import os
import re
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from configs.paths import absolute, read_text, temporary_folder
from contracts.errors import UsageError

_TASK_LIST = Path("benchmark") / "libero_suite_task_map.py"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A perturbed LIBERO that is not installed as `libero`.

    Attributes:
        name: Its name.
        variable: The environment variable that names the user's copy.
        setup: What `oxygen-eval setup` installs it as.
        distribution: The distribution that this installs.
        package: The folder with its data, in a checkout or an installed distribution.
        target: Folder into which setup unpacks the distribution, in this Python's environment; None if it is
            installed as any other.
    """

    name: str
    variable: str
    setup: str
    distribution: str
    package: str
    target: str | None = None

    @property
    def option(self) -> str:
        """The option that names the user's copy."""
        return f"--{self.setup}"

    def find(self) -> Path:
        """The folder with `bddl_files`, `init_files` and `benchmark`; a UsageError if there is none."""
        return _found(self, os.environ.get(self.variable))

    def unpacked(self) -> Path:
        """The folder that setup unpacks into."""
        assert self.target is not None
        return Path(sys.prefix) / "share" / "oxygen-eval" / self.target


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
        for inside in (
            path,
            path / benchmark.package,
            *sorted(path.glob("*/lib*")),
            *sorted(path.glob("lib*")),
        ):
            if (inside / _TASK_LIST).is_file():
                return inside
        raise UsageError(
            f"{benchmark.option} {named!r} holds no {_TASK_LIST}, so it is no {benchmark.name}: {how}"
        )
    if benchmark.target is not None:
        folder = benchmark.unpacked()
    else:
        try:
            folder = Path(str(importlib.metadata.distribution(benchmark.distribution).locate_file("")))
        except importlib.metadata.PackageNotFoundError:
            folder = Path()
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


def digest_of(names: Sequence[str], contents: Mapping[str, str]) -> str:
    """The first 12 digits of a SHA-256 over the names of a suite's tasks, in order, and what defines them.

    `contents` maps files to their SHA-256, both in any order.
    """
    parts = [*names, *(f"{file} {digest}" for file, digest in sorted(contents.items()))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
