"""Finds and names runs: a new folder for a new run, or the unfinished one to go on with."""

import dataclasses
import datetime as dt
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from configs.errors import UsageError
from configs.load import check
from configs.schema import RunConfig
from eval.records import RunFolder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """What to run, and where its records go.

    Attributes:
        config: Everything the run is a function of.
        folder: Its folder, which exists already exactly if the run is resumed.
        resumed: Whether records may be there from before.
    """

    config: RunConfig
    folder: RunFolder
    resumed: bool = False


def new_run(output_dir: Path, config: RunConfig) -> Run:
    """A run in a folder of its own, named by time, policy and mode. Nothing is written yet."""
    now = dt.datetime.now().astimezone()
    policy = config.policy if "/" not in config.policy else Path(config.policy).stem
    name = f"{now:%Y%m%d-%H%M%S}-{policy}-{config.mode}"
    taken = {path.name for path in output_dir.glob(f"{name}*")}
    number = next(n for n in range(1, len(taken) + 2) if _numbered(name, n) not in taken)
    return Run(config=config, folder=RunFolder(output_dir / _numbered(name, number)))


def find_unfinished(output_dir: Path, given: Mapping[str, Any]) -> Run:
    """The newest unfinished run in `output_dir` that agrees with every option given.

    Raises:
        UsageError: There is none.
    """
    check(RunConfig, given, source="the command line")
    finished = []
    for folder, manifest in _runs_newest_first(output_dir):
        config = check(RunConfig, manifest["config"], source=str(folder.manifest_path))
        if not _agrees(config, given):
            continue
        if manifest["status"] != "complete":
            return Run(config=config, folder=folder, resumed=True)
        finished.append(folder.run_id)
    if finished:
        raise UsageError(f"nothing to resume: {finished[0]} is complete; start a new run without --resume")
    raise UsageError(
        f"nothing to resume: no unfinished run in {output_dir} has these options; start one without --resume"
    )


def _agrees(config: RunConfig, given: Mapping[str, Any]) -> bool:
    merged = check(RunConfig, {**config.model_dump(), **given}, source="the command line")
    return merged == config


def _runs_newest_first(output_dir: Path) -> Iterator[tuple[RunFolder, dict[str, Any]]]:
    found = []
    for path in output_dir.glob("*/manifest.json"):
        folder = RunFolder(path.parent)
        try:
            found.append((folder, folder.read_manifest()))
        except json.JSONDecodeError:
            continue
    yield from sorted(found, key=lambda run: run[1]["started"], reverse=True)


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"
