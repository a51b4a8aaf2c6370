"""The manifest of a bundled checkpoint: its files, and the demonstrations it was trained on."""

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from configs.errors import UsageError
from oxygen.training import layout
from oxygen.weights.loading import SINGLE_FILE

MANIFEST = "manifest.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileFacts:
    """Digest and size of a file."""

    sha256: str
    bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shown:
    """Tasks and initial states of one suite's demonstrations; drawn states are those from 1000 on."""

    tasks: tuple[int, ...]
    init_ids: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demonstrated:
    """A dataset of demonstrations.

    Attributes:
        name: Name of its folder.
        policy: Who demonstrated.
        demonstrations: Episodes in it.
        failures: Episodes that failed; they are not in it, unless failures were kept.
        frames: Rows.
        noise: How much the demonstrator was disturbed, every level once.
        assets: Asset sets, name to digest.
        replan_steps: Control steps between two frames; the suite's own number if None.
        suites: What its episodes began in, failed ones too.
        commit: Of the code that collected it.
        learner: `policy` and `weights_sha256` of whom the demonstrator corrected; None where it acted alone.
        policy_sha256: SHA-256 of the demonstrator's weights; None if it has none, or they are not known.
        keeps_failures: Whether the episodes that failed are in it, for their texts alone.
    """

    name: str
    policy: str
    demonstrations: int
    failures: int
    frames: int
    noise: tuple[float, ...]
    assets: Mapping[str, str]
    replan_steps: int | None
    suites: Mapping[str, Shown]
    commit: str | None
    learner: Mapping[str, str | None] | None = None
    policy_sha256: str | None = None
    keeps_failures: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contents:
    """The `manifest.json` of a bundled checkpoint.

    Attributes:
        name: The policy's name, which is the folder's.
        step: Training steps of the last training.
        parameters: Numbers in `model.safetensors`.
        files: Path in the folder to what the file there must be.
        data: The demonstrations it was trained on.
    """

    name: str
    step: int
    parameters: int
    files: Mapping[str, FileFacts]
    data: tuple[Demonstrated, ...]

    @property
    def bytes(self) -> int:
        """Of all files together."""
        return sum(file.bytes for file in self.files.values())

    @property
    def weights_sha256(self) -> str:
        """SHA-256 of the weights."""
        return self.files[SINGLE_FILE].sha256

    def begun_in(self, suite: str) -> set[int]:
        """The initial states of a suite that demonstrations began in."""
        return {
            init_id for each in self.data if suite in each.suites for init_id in each.suites[suite].init_ids
        }


_CONTENTS = TypeAdapter(Contents)


def read_contents(folder: Path) -> Contents | None:
    """The manifest of a bundled checkpoint; None if nothing is bundled there.

    Raises:
        UsageError: It is damaged.
    """
    file = folder / MANIFEST
    if not file.is_file():
        return None
    try:
        return _CONTENTS.validate_json(file.read_bytes())
    except ValidationError as error:
        raise UsageError(f"{file} is not what bundling writes: {error.errors()[0]['msg']}") from None


def read_demonstrated(folder: Path) -> Demonstrated:
    """The facts about the dataset in a folder.

    Raises:
        UsageError: There is none that `python -m eval.collect` wrote.
    """
    try:
        manifest = json.loads((folder / layout.MANIFEST).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"no demonstrations at {folder} ({layout.MANIFEST}: {error.strerror}); say with --data where "
            "those are that the policy was trained on"
        ) from None
    # A key is suite, task, initial state, seed, digest of the assets, and the noise, which may have a dot.
    played = [key.split(".", 5) for key in [*manifest["demonstrations"], *manifest["failed"]]]
    return Demonstrated(
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


def _suites(played: Iterable[list[Any]]) -> dict[str, Shown]:
    tasks, init_ids = defaultdict[str, set[int]](set), defaultdict[str, set[int]](set)
    for suite, task_id, init_id, *_ in played:
        tasks[suite].add(int(task_id))
        init_ids[suite].add(int(init_id))
    return {
        suite: Shown(tasks=tuple(sorted(tasks[suite])), init_ids=tuple(sorted(init_ids[suite])))
        for suite in sorted(tasks)
    }
