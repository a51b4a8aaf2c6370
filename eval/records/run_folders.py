"""Finds and names runs: a new folder for a new run, or those of the unfinished evaluation to go on with."""

import contextlib
import dataclasses
import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.arms import ArmsConfig
from configs.errors import UsageError
from configs.load import check
from configs.schema import RunConfig
from eval.records.reader import read_episodes
from eval.records.schema import Outcome, RunFolder

Manifest = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """What to run, and where its records go: an arm of an evaluation, which may be its only one.

    Attributes:
        config: Everything the run is a function of.
        folder: Its folder. A new run's is made when the run is claimed; it is another one if somebody else
            was faster.
        resumed: Whether records may be there from before.
    """

    config: RunConfig
    folder: RunFolder
    resumed: bool = False


def new_run(output_dir: Path, config: RunConfig) -> Run:
    """A run to be, in a folder named by time, policy and mode that nobody has yet. Nothing is written."""
    now = dt.datetime.now().astimezone()
    policy = config.policy if "/" not in config.policy else Path(config.policy).stem
    name = f"{now:%Y%m%d-%H%M%S}-{policy}-{config.mode}"
    taken = {path.name for path in output_dir.iterdir()} if output_dir.is_dir() else set()
    number = next(n for n in range(1, len(taken) + 2) if _numbered(name, n) not in taken)
    return Run(config=config, folder=RunFolder(output_dir / _numbered(name, number)))


@contextlib.contextmanager
def claimed(run: Run) -> Iterator[Run]:
    """The run with its folder, which is this process's own until the end; a new run's is made now.

    Raises:
        UsageError: The run is resumed, and another process is at it.
    """
    own = run if run.resumed else _made(run)
    with own.folder.claimed():
        yield own


def _made(run: Run) -> Run:
    """The new run in a folder that no other process has: making one is what decides between them."""
    while True:
        try:
            run.folder.path.mkdir(parents=True)
        except FileExistsError:
            run = new_run(run.folder.path.parent, run.config)
        else:
            return run


def find_unfinished(output_dir: Path, given: Mapping[str, Any]) -> tuple[Run, ...]:
    """The arms of the newest unfinished evaluation in `output_dir` that agrees with every option given.

    One that came to its end is unfinished, too, while an episode of it is an error. The modes given may be
    some of its modes: `--mode unified --resume` goes on with the demo.

    Raises:
        UsageError: There is none, or the records of one cannot be read.
    """
    asked = check(ArmsConfig, given, source="the command line")
    modes = asked.modes if given.keys() & {"mode", "against"} else ()
    others = {option: value for option, value in given.items() if option not in {"mode", "against"}}
    finished = []
    for folders, manifests in _evaluations_newest_first(output_dir):
        arms = [check(RunConfig, manifest["config"], source=folders[0].run_id) for manifest in manifests]
        if not set(modes) <= {arm.mode for arm in arms} or not _agrees(arms, others):
            continue
        if any(map(_is_unfinished, folders, manifests)):
            return tuple(
                Run(config=arm, folder=folder, resumed=True)
                for arm, folder in zip(arms, folders, strict=True)
            )
        finished.append(folders[0].run_id)
    if finished:
        raise UsageError(
            f"nothing to resume: {finished[0]} is complete and without errors; start another without --resume"
        )
    raise UsageError(
        f"nothing to resume: no unfinished run in {output_dir} has these options; start one without --resume"
    )


def _agrees(arms: Sequence[RunConfig], given: Mapping[str, Any]) -> bool:
    before = ArmsConfig.of(arms)
    return check(ArmsConfig, {**before.model_dump(), **given}, source="the command line") == before


def _is_unfinished(folder: RunFolder, manifest: Manifest) -> bool:
    if manifest["status"] != "complete":
        return True
    return any(result.outcome is Outcome.ERROR for result in read_episodes(folder).values())


def _evaluations_newest_first(output_dir: Path) -> list[tuple[list[RunFolder], list[Manifest]]]:
    """Every evaluation all of whose arms are there, with their manifests, the arm to compare with first."""
    found = {path.parent.name: _read_manifest(path) for path in output_dir.glob("*/manifest.json")}
    manifests = {name: manifest for name, manifest in found.items() if manifest is not None}
    groups = {_arms(name, manifest) for name, manifest in manifests.items()}
    whole = [names for names in groups if manifests.keys() >= set(names)]
    whole.sort(key=lambda names: (manifests[names[0]]["started"], names), reverse=True)
    return [([RunFolder(output_dir / n) for n in names], [manifests[n] for n in names]) for names in whole]


def _arms(name: str, manifest: Manifest) -> tuple[str, ...]:
    """The folders of the run's evaluation; itself alone if it has been renamed since."""
    arms = tuple(manifest.get("arms", ()))
    return arms if name in arms else (name,)


def _read_manifest(path: Path) -> Manifest | None:
    try:
        return RunFolder(path.parent).read_manifest()
    except json.JSONDecodeError:
        return None


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"
