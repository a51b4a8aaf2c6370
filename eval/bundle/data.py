"""What a bundled policy was trained on: the facts that a dataset of demonstrations keeps about itself."""

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from configs.errors import UsageError
from oxygen.training import layout


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shown:
    """What the demonstrations of one suite began in.

    Attributes:
        tasks: Ids of the tasks.
        init_ids: Initial states, of any of those tasks; drawn ones from 1000 on.
    """

    tasks: tuple[int, ...]
    init_ids: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Learner:
    """Who took turns with a demonstrator, and was corrected.

    Attributes:
        policy: Its name, or that of its folder.
        weights_sha256: What tells its weights from all others; None where they are random or not ours.
    """

    policy: str
    weights_sha256: str | None


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
        learner: Whom the demonstrator corrected; None where it acted alone.
        policy_sha256: What tells the demonstrator's weights from all others; None if it has none, or they are
            not known.
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
    learner: Learner | None = None
    policy_sha256: str | None = None
    keeps_failures: bool = False


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
    learner = manifest.get("learner")
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
        learner=None if learner is None else Learner(**learner),
    )


def begun_in(data: Iterable[Demonstrated], suite: str) -> set[int]:
    """The initial states of a suite that any demonstration began in."""
    return {init_id for each in data if suite in each.suites for init_id in each.suites[suite].init_ids}


def _suites(played: Iterable[list[Any]]) -> dict[str, Shown]:
    tasks, init_ids = defaultdict[str, set[int]](set), defaultdict[str, set[int]](set)
    for suite, task_id, init_id, *_ in played:
        tasks[suite].add(int(task_id))
        init_ids[suite].add(int(init_id))
    return {
        suite: Shown(tasks=tuple(sorted(tasks[suite])), init_ids=tuple(sorted(init_ids[suite])))
        for suite in sorted(tasks)
    }
