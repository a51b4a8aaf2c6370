"""The manifest of a bundled checkpoint: its files, and the datasets it was trained on."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from configs.errors import UsageError
from configs.reading import read_json_object
from configs.validation import invalid
from oxygen.training import layout
from oxygen.weights.loading import SINGLE_FILE

MANIFEST = "manifest.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileDigest:
    """Digest and size of a file."""

    sha256: str
    bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuiteCoverage:
    """Tasks and initial states of a dataset's episodes in one suite; states from 1000 on are drawn."""

    tasks: tuple[int, ...]
    init_ids: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetFacts:
    """A dataset of demonstrations.

    Attributes:
        name: Name of its folder.
        policy: The demonstrator.
        demonstrations: Episodes in it.
        failures: Failed episodes; they are in it only if failures were kept.
        frames: Rows.
        noise: The demonstrator's noise levels.
        assets: Asset sets, name to digest.
        replan_steps: Control steps between two frames; None for the suite's own number.
        suites: Tasks and initial states by suite, failed episodes included.
        commit: Commit of the code that collected it.
        learner: `policy` and `weights_sha256` of the corrected learner; None without one.
        policy_sha256: SHA-256 of the demonstrator's weights; None if it has none, or they are unknown.
        keeps_failures: Whether failed episodes are in it, for their texts.
    """

    name: str
    policy: str
    demonstrations: int
    failures: int
    frames: int
    noise: tuple[float, ...]
    assets: Mapping[str, str]
    replan_steps: int | None
    suites: Mapping[str, SuiteCoverage]
    commit: str | None
    learner: Mapping[str, str | None] | None = None
    policy_sha256: str | None = None
    keeps_failures: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class BundleManifest:
    """The `manifest.json` of a bundled checkpoint.

    Attributes:
        name: The policy's name, which is the folder's.
        step: Steps of the last training.
        parameters: Number of parameters in `model.safetensors`.
        files: Digest and size of each file, by its path in the folder.
        data: The datasets it was trained on.
    """

    name: str
    step: int
    parameters: int
    files: Mapping[str, FileDigest]
    data: tuple[DatasetFacts, ...]

    @property
    def bytes(self) -> int:
        """Total size of the files."""
        return sum(file.bytes for file in self.files.values())

    @property
    def weights_sha256(self) -> str:
        """SHA-256 of the weights."""
        return self.files[SINGLE_FILE].sha256

    def init_ids_of(self, suite: str) -> set[int]:
        """The initial states of a suite that demonstrations start in."""
        return {
            init_id for each in self.data if suite in each.suites for init_id in each.suites[suite].init_ids
        }


_MANIFEST = TypeAdapter(BundleManifest)


def read_bundle_manifest(folder: Path) -> BundleManifest | None:
    """The manifest of a bundled checkpoint; None if nothing is bundled there.

    Raises:
        UsageError: It is damaged.
    """
    file = folder / MANIFEST
    if not file.is_file():
        return None
    try:
        return _MANIFEST.validate_json(file.read_bytes())
    except ValidationError as error:
        raise invalid(error, f"{file} is not a bundle's manifest") from None


def read_dataset_facts(folder: Path) -> DatasetFacts:
    """The facts about the dataset in a folder.

    Raises:
        UsageError: There is no dataset of `python -m eval.collect`.
    """
    try:
        manifest = read_json_object(folder / layout.MANIFEST)
    except UsageError as error:
        raise UsageError(
            f"no demonstrations at {folder} ({error}); name the folder of those that the policy was trained "
            "on with --data"
        ) from None
    # A key is suite, task, initial state, seed, digest of the assets, and the noise, which may have a dot.
    played = [key.split(".", 5) for key in [*manifest["demonstrations"], *manifest["failed"]]]
    return DatasetFacts(
        name=folder.name,
        policy=Path(manifest["policy"]).name,
        **manifest["counts"],
        noise=tuple(sorted({float(key[5]) for key in played})),
        assets=dict(manifest["assets"]),
        replan_steps=manifest["config"]["replan_steps"],
        suites=_suites(played),
        commit=manifest["git"]["commit"],
        policy_sha256=manifest.get("policy_weights_sha256"),
        keeps_failures=manifest["config"].get("keep_failures", False),
        learner=manifest.get("learner"),
    )


def _suites(played: Iterable[list[Any]]) -> dict[str, SuiteCoverage]:
    tasks, init_ids = defaultdict[str, set[int]](set), defaultdict[str, set[int]](set)
    for suite, task_id, init_id, *_ in played:
        tasks[suite].add(int(task_id))
        init_ids[suite].add(int(init_id))
    return {
        suite: SuiteCoverage(tasks=tuple(sorted(tasks[suite])), init_ids=tuple(sorted(init_ids[suite])))
        for suite in sorted(tasks)
    }
