"""Suites of one's own tasks: BDDL files of a folder, on LIBERO's objects or on models added to them."""

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field
from typing_extensions import override

from configs.cli import Names
from configs.paths import absolute, temporary_folder
from configs.schema import Preset, SuiteConfig, Wordings
from contracts.errors import UsageError, unknown
from contracts.hashing import hash_file
from sim_envs.libero.assets import AssetSet
from sim_envs.libero.bddl import check_problem, instruction_in
from sim_envs.libero.definitions import WORKSPACE_OF, known_categories
from sim_envs.libero.suite import LiberoSuite
from sim_envs.libero.tasks import FIRST_SAMPLED, LiberoTask, init_states
from sim_envs.suite import InitIds, Task

_STATES = (".npy", ".npz", ".pruned_init")


class OwnEnvironment(Preset):
    """What the YAML of a suite names. Paths are from its folder."""

    # BDDL files, or folders of them. A task is named as its file; a folder is read in the order of names.
    bddl: Names = Field(min_length=1)
    # Files of initial states, named as the tasks, or folders of them; or `sampled:SEED`: state i is sampled
    # by LIBERO's placement, from the regions of the BDDL file, the seed and i.
    init_states: Names = ("sampled:0",)
    # Maps tasks to what the policy is told. Default: what the BDDL file says, in lower case.
    instructions: dict[str, str] = Field(default_factory=dict)
    assets: str | None = None  # folder of models to add to LIBERO's, in a tree like theirs


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnTask(LiberoTask):
    """A task in a BDDL file of the user's."""

    is_own: ClassVar[bool] = True
    bddl: Path
    states: Path | None

    @property
    @override
    def bddl_file(self) -> Path:
        return self.bddl

    @property
    @override
    def states_file(self) -> Path:
        assert self.states is not None, "the initial states are sampled"
        return self.states


class OwnSuite(LiberoSuite):
    """Tasks in BDDL files that the suite's YAML names."""

    environment_type = OwnEnvironment

    def __init__(self, protocol: SuiteConfig, *, assets: str = "auto") -> None:
        """List the tasks, and find the assets; a UsageError if a file is missing or says no instruction."""
        super().__init__(protocol, assets=assets)
        self._added = None if self._own.assets is None else self._path(self._own.assets)
        if self._added is not None and not self._added.is_dir():
            raise UsageError(f"{self._source}: assets {self._own.assets!r}: there is no folder {self._added}")

    @override
    def _list_tasks(self) -> tuple[LiberoTask, ...]:
        files = list(self._files("bddl", self._own.bddl, (".bddl",)))
        names = [file.stem for file in files]
        if repeated := [name for name, count in Counter(names).items() if count > 1]:
            raise UsageError(f"{self._source}: bddl has two files named {repeated[0]!r}; rename one")
        for name in self._own.instructions:
            if name not in names:
                raise unknown("task", name, names, remedy=f"In instructions of {self._source}.")
        seed, states = self._sampled_from(), {}
        if seed is None:
            states = {file.stem: file for file in self._files("init_states", self._own.init_states, _STATES)}
            if lacking := [name for name in names if name not in states]:
                raise UsageError(
                    f"{self._source}: init_states has no file for task {lacking[0]!r}; add "
                    f"{lacking[0]}.npy, or write `init_states: sampled:0`"
                )
        return tuple(
            OwnTask(
                suite=self.protocol.name,
                task_id=task_id,
                name=file.stem,
                language=self._own.instructions.get(file.stem) or instruction_in(file),
                bddl=file,
                states=states.get(file.stem),
                sampled_from=seed,
            )
            for task_id, file in enumerate(files)
        )

    @override
    def init_ids(self, task: Task) -> InitIds:
        """Those of the files, or sampled ones; from 1000 on, states sampled from the episode's seed."""
        own = self._tasks[task.task_id]
        stored = len(init_states(own)) if own.sampled_from is None else FIRST_SAMPLED
        return InitIds(stored=stored, sampled_from=FIRST_SAMPLED)

    @override
    def training_wordings(self) -> Mapping[str, tuple[str, ...]]:
        """None: instructions are the user's."""
        return {}

    @override
    def check(self, tasks: Iterable[Task]) -> None:
        """Also check the problem files and files of initial states."""
        played = [self._tasks[task.task_id] for task in tasks]
        categories = known_categories(self._assets_of_worlds().path)
        for task in played:
            check_problem(task.bddl_file, workspaces=WORKSPACE_OF, categories=categories)
            self.init_ids(task)
        super().check(played)

    @override
    def describe(self, wordings: Wordings) -> Mapping[str, Any]:
        """Also digests of the files that define the tasks."""
        files = {f"{task.name}.bddl": task.bddl_file for task in self._tasks}
        stored = [task for task in self._tasks if task.sampled_from is None]
        files |= {f"{task.name} states": task.states_file for task in stored}
        if self._added is not None:
            files |= {str(file.relative_to(self._added)): file for file in _files_in(self._added)}
        digests = {name: hash_file(files[name]) for name in sorted(files)}
        return {**super().describe(wordings), "tasks": digests}

    @override
    def _assets_of_worlds(self) -> AssetSet:
        if self._added is None:
            return self._asset_set
        return dataclasses.replace(
            self._asset_set, path=_merged(self._asset_set.path, self._added, tuple(_files_in(self._added)))
        )

    @property
    def _own(self) -> OwnEnvironment:
        assert isinstance(self.environment, OwnEnvironment)
        return self.environment

    @property
    def _source(self) -> str:
        return f"environment of suite {self.protocol.name}"

    def _sampled_from(self) -> int | None:
        """The seed of sampled states; None if they are in files."""
        first = self._own.init_states[0]
        if not first.startswith("sampled"):
            return None
        match = re.fullmatch(r"sampled:(\d{1,9})", first)
        if match is None or len(self._own.init_states) > 1:
            raise UsageError(
                f"{self._source}: init_states is {', '.join(self._own.init_states)}: write "
                "sampled:SEED, such as sampled:0, or files"
            )
        return int(match[1])

    def _path(self, name: str) -> Path:
        return (self.protocol.folder or absolute("")) / Path(name).expanduser()

    def _files(self, key: str, names: Iterable[str], suffixes: tuple[str, ...]) -> Iterator[Path]:
        for name in names:
            path = self._path(name)
            found = sorted(each for each in path.glob("*") if each.suffix in suffixes)
            if not found and not (path.is_file() and path.suffix in suffixes):
                wanted = " or ".join(f"*{suffix}" for suffix in suffixes)
                what = f"no {wanted} is in {path}" if path.is_dir() else f"there is no {wanted} at {path}"
                raise UsageError(f"{self._source}: {key} {name!r}: {what}")
            yield from found or [path]


def _files_in(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(".")]


@functools.cache
def _merged(base: Path, added: Path, files: tuple[Path, ...]) -> Path:
    """A tree of links to the files of both; a UsageError if a file is in both."""
    del files  # for the cache: a folder may change
    tree = temporary_folder("oxygen-eval-assets-") / "assets"

    def merge(into: Path, one: Path, other: Path) -> None:
        into.mkdir()
        for name in {each.name for folder in (one, other) for each in folder.iterdir()}:
            both = [folder / name for folder in (one, other) if (folder / name).exists()]
            if len(both) == 1:
                (into / name).symlink_to(both[0])
            elif all(each.is_dir() for each in both):
                merge(into / name, *both)
            else:
                raise UsageError(f"assets: {both[1]} would replace {both[0]}; give it another name")

    merge(tree, base.resolve(), added.resolve())
    return tree
