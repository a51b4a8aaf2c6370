"""Results of a bundled policy: recorded runs of its weights, in compact form."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from configs.errors import UsageError
from configs.reading import read_json_object
from configs.schema import RunConfig
from configs.validation import invalid
from eval.metrics.success import summarize
from eval.policies.unused_options import unused_in
from eval.records.json_files import write_json
from eval.records.reader import AssetsUsed, read_episodes, read_identity, require_runs
from eval.records.schema import RunFolder

TEST_STATES = range(500_000, 500_050)
"""Sampled initial states of every task that are reserved for tests; no demonstrations start in them."""

_FILE = "results.json"
_NOT_OPTIONS = {
    *("mode", "suites", "init_ids", "num_trials_per_task", "assets"),  # fields of a result
    *("policy", "random_weights", "video", "video_every"),  # no effect on it
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BundledResult:
    """The result of one run on one suite.

    Attributes:
        run_id: The run.
        suite: The suite.
        mode: Scheduling mode.
        assets: The asset set.
        protocol: Hash of the suite's protocol.
        init_ids: Initial states of its episodes; those from 1000 on are sampled.
        options: Other options that differ from the defaults, by their names in `RunConfig`.
        tasks: Task id to successful and graded episodes.
        n_errors: Episodes with errors, which are not graded.
        latency_ms: Stage to median over all queries, milliseconds.
        texts: Language task to the grades of its texts at request (`LanguageRow.at_request`).
        machine: Processor, cores and accelerators.
        commit: Commit of the code that ran.
        finished: Time it finished.
    """

    run_id: str
    suite: str
    mode: str
    assets: AssetsUsed
    protocol: str
    init_ids: tuple[int, ...]
    options: Mapping[str, Any]
    tasks: Mapping[int, tuple[int, int]]
    n_errors: int
    latency_ms: Mapping[str, float]
    texts: Mapping[str, Mapping[str, Mapping[str, Any]]]
    machine: str
    commit: str | None
    finished: str

    @property
    def is_test(self) -> bool:
        """Whether it has only reserved initial states, and held-out wordings."""
        return self.options.get("wordings") == "held_out" and set(self.init_ids) <= set(TEST_STATES)


_RESULTS = TypeAdapter(tuple[BundledResult, ...])


def read_results(folder: Path) -> tuple[BundledResult, ...]:
    """The results of a bundled checkpoint.

    Raises:
        UsageError: They are missing or damaged.
    """
    file = folder / _FILE
    try:
        return _RESULTS.validate_python(read_json_object(file).get("results"))
    except ValidationError as error:
        raise invalid(error, f"{file} does not hold a bundle's results") from None


def write_results(folder: Path, results: Iterable[BundledResult]) -> None:
    """Write the results of a bundled checkpoint in the card's order; of the same run, the last one."""
    last = {(each.suite, each.assets, each.init_ids, each.run_id): each for each in results}
    ordered = sorted(last.values(), key=lambda each: (each.suite, each.assets.name, each.mode, each.finished))
    write_json(folder / _FILE, {"results": [dataclasses.asdict(result) for result in ordered]})


def results_of(paths: Sequence[Path], *, weights: str) -> list[BundledResult]:
    """The results of recorded runs.

    Args:
        paths: Runs, or folders of runs.
        weights: SHA-256 of the weights that they must have used.

    Raises:
        UsageError: A path has no run, or a run is incomplete, or of other weights.
    """
    folders = [folder for path in paths for folder in require_runs([path])]
    return [result for folder in folders for result in _of_run(folder, weights)]


def _of_run(folder: RunFolder, weights: str) -> list[BundledResult]:
    identity, manifest = read_identity(folder), folder.read_manifest()
    if identity.status != "complete":
        raise UsageError(f"{folder.path} is {identity.status}; complete it with --resume, or leave it out")
    if identity.weights_sha256 != weights:
        raise UsageError(
            f"{folder.path} is a run of {identity.policy} with other weights than {weights[:12]} "
            f"({identity.weights or 'unknown'}); leave it out, or repeat it with the bundled checkpoint"
        )
    results, episodes, hardware = summarize(folder.path), read_episodes(folder), manifest["hardware"]
    machine = [hardware["processor"], f"{hardware['cores']} cores", *hardware["accelerators"]]
    return [
        BundledResult(
            run_id=identity.run_id,
            suite=suite,
            mode=identity.mode,
            assets=identity.assets,
            protocol=identity.suite_hashes[suite],
            init_ids=tuple(sorted({key.init_id for key in episodes if key.suite == suite})),
            options=_options(manifest["config"]),
            tasks={
                task["task_id"]: (task["n_success"], task["n_episodes"])
                for task in results["per_task"]
                if task["task_group"] == suite
            },
            n_errors=row["n_errors"],
            latency_ms={stage: quantiles["p50"] for stage, quantiles in row["latency_ms"].items()},
            texts={task: texts["at_request"] for task, texts in row["texts"].items()},
            machine=", ".join(part for part in machine if part != "cpu: cpu"),
            commit=manifest["git"]["commit"],
            finished=manifest["finished"],
        )
        for suite, row in results["per_suite"].items()
        if row["n_episodes"]
    ]


def _options(config: Mapping[str, Any]) -> dict[str, Any]:
    defaults = RunConfig().model_dump(mode="json")
    left_out = _NOT_OPTIONS | unused_in(config["mode"])
    return {
        name: value for name, value in config.items() if name not in left_out and value != defaults.get(name)
    }
