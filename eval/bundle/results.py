"""Results of a bundled policy: recorded runs of its weights, in compact form."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from configs.errors import UsageError
from configs.load import names
from configs.reading import read_json_object
from configs.schema import LanguageTaskConfig, RunConfig
from configs.validation import invalid
from eval.metrics.language_results import LanguageRow
from eval.metrics.success import summarize
from eval.policies.unused_options import unused_in
from eval.records.json_files import write_json
from eval.records.reader import AssetsUsed, find_runs, read_episodes, read_identity
from eval.records.schema import RunFolder

TEST_STATES = range(500_000, 500_050)
"""Drawn initial states of every task that are reserved for tests; no demonstrations start in them."""

_FILE = "results.json"
_NOT_OPTIONS = {
    "mode",
    "suites",
    "num_trials_per_task",
    "init_ids",
    "policy",
    "random_weights",
    "assets",
    "video",
    "video_every",
}
"""Options that a result has fields for, or that do not change it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskResult:
    """Successes of one task; `task` is its name in the benchmark."""

    task_id: int
    task: str
    n_episodes: int
    n_success: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class BundledResult:
    """The result of one run on one suite.

    Attributes:
        run_id: The run.
        suite: The suite.
        mode: Scheduling mode.
        assets: The asset set.
        protocol: Hash of the suite's protocol.
        n_episodes: Graded episodes.
        n_success: Successful episodes.
        n_errors: Episodes with errors, which are not graded.
        init_ids: Their initial states; those from 1000 on are drawn.
        options: Other options that differ from the published protocol's, by their names in `RunConfig`.
        latency_ms: Stage to quantiles over all queries, milliseconds.
        texts: Language task to the grades of its texts.
        tasks: Successes by task.
        machine: Processor, cores and accelerators.
        commit: Commit of the code that ran.
        finished: Time it finished.
    """

    run_id: str
    suite: str
    mode: str
    assets: AssetsUsed
    protocol: str
    n_episodes: int
    n_success: int
    n_errors: int
    init_ids: tuple[int, ...]
    options: Mapping[str, Any]
    latency_ms: Mapping[str, Mapping[str, float]]
    texts: Mapping[str, LanguageRow]
    tasks: tuple[TaskResult, ...]
    machine: str
    commit: str | None
    finished: str

    @property
    def is_test(self) -> bool:
        """Whether it has only reserved initial states, and held-out wordings."""
        return self.options.get("wordings") == "held_out" and set(self.init_ids) <= set(TEST_STATES)


_RESULTS = TypeAdapter(tuple[BundledResult, ...])
_TEXTS = TypeAdapter(Mapping[str, LanguageRow])


def read_results(folder: Path) -> tuple[BundledResult, ...]:
    """The results of a bundled checkpoint; none if there is no such file.

    Raises:
        UsageError: It is damaged.
    """
    file = folder / _FILE
    if not file.is_file():
        return ()
    try:
        return _RESULTS.validate_python(read_json_object(file).get("results"))
    except ValidationError as error:
        raise invalid(error, f"{file} does not hold a bundle's results") from None


def write_results(folder: Path, results: Iterable[BundledResult]) -> None:
    """Write the results of a bundled checkpoint."""
    write_json(folder / _FILE, {"results": [dataclasses.asdict(result) for result in results]})


def merged(*groups: Iterable[BundledResult]) -> tuple[BundledResult, ...]:
    """All results in the card's order; of the same run and suite, the last one."""
    by_run = {
        (result.suite, result.assets, result.init_ids, result.run_id): result
        for group in groups
        for result in group
    }
    return tuple(
        sorted(by_run.values(), key=lambda r: (r.suite, r.assets.name, r.mode, r.finished, r.run_id))
    )


def of_runs(paths: Sequence[Path], *, weights: str) -> tuple[BundledResult, ...]:
    """The results of recorded runs.

    Args:
        paths: Runs, or folders of runs.
        weights: SHA-256 of the weights that they must have used.

    Raises:
        UsageError: A path has no run, or a run is incomplete, or of other weights.
    """
    folders = []
    for path in paths:
        runs = find_runs([path])
        if not runs:
            raise UsageError(f"no run in {path}; give a run's folder, or one that holds runs")
        folders += runs
    for folder in folders:
        _check(folder, weights)
    return tuple(result for folder in folders for result in _of_run(folder))


def _check(folder: RunFolder, weights: str) -> None:
    identity, used = read_identity(folder), folder.read_manifest().get("weights_sha256")
    if identity.status != "complete":
        raise UsageError(f"{folder.path} is {identity.status}; complete it with --resume, or leave it out")
    if used != weights:
        raise UsageError(
            f"{folder.path} is a run of {identity.policy} with other weights than {weights[:12]} "
            f"({used[:12] if used else 'random'}); leave it out, or repeat it with the bundled checkpoint"
        )


def _of_run(folder: RunFolder) -> list[BundledResult]:
    identity, manifest = read_identity(folder), folder.read_manifest()
    results = summarize(folder.path)
    episodes = read_episodes(folder)
    return [
        BundledResult(
            run_id=identity.run_id,
            suite=suite,
            mode=identity.mode,
            assets=identity.assets,
            protocol=identity.suite_hashes[suite],
            **{count: row[count] for count in ("n_episodes", "n_success", "n_errors")},
            init_ids=tuple(sorted({key.init_id for key in episodes if key.suite == suite})),
            options=_options(manifest["config"]),
            latency_ms=row["latency_ms"],
            texts=_TEXTS.validate_python(row["texts"]),
            tasks=tuple(_task(task) for task in results["per_task"] if task["task_group"] == suite),
            machine=_machine(manifest["hardware"]),
            commit=manifest["git"]["commit"],
            finished=manifest["finished"],
        )
        for suite, row in results["per_suite"].items()
    ]


def _options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Options that differ from the defaults and have an effect; all language tasks count as the default."""
    defaults = RunConfig().model_dump(mode="json")
    if set(config["language_tasks"] or ()) == set(names(LanguageTaskConfig)):
        config = {**config, "language_tasks": defaults["language_tasks"]}
    return {
        name: value
        for name, value in config.items()
        if name not in _NOT_OPTIONS | unused_in(config["mode"]) and value != defaults.get(name)
    }


def _task(row: Mapping[str, Any]) -> TaskResult:
    return TaskResult(**{field.name: row[field.name] for field in dataclasses.fields(TaskResult)})


def _machine(hardware: Mapping[str, Any]) -> str:
    parts = [hardware["processor"], f"{hardware['cores']} cores", *hardware["accelerators"]]
    return ", ".join(part for part in parts if part != "cpu: cpu")
