"""Renders the model card of a bundled checkpoint from its files."""

import importlib.resources
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from configs.cli import counted, ranges, spelt
from configs.errors import UsageError
from configs.load import load, names
from configs.pipeline import PipelineConfig
from eval.bundle.manifest import BundleManifest, DatasetFacts, read_bundle_manifest
from eval.bundle.provenance import trainings_of, unknowns
from eval.bundle.results import TEST_STATES, BundledResult, read_results
from eval.metrics.statistics import wilson_95
from oxygen.presets.checkpoints import read_record
from oxygen.weights.loading import SINGLE_FILE

CARD_FILE = "MODEL_CARD.md"

_TEMPLATE = importlib.resources.files("eval") / "bundle" / "model_card.md.j2"
_MEASURES = {"narration": ("phase", "object", "target"), "memory": ("f1",)}
"""Measures of graded language tasks on the card; `results.json` has the others."""
_NAMES = {"f1": "F1"}


def render(folder: Path) -> str:
    """The model card of the checkpoint bundled in a folder, in Markdown.

    Raises:
        UsageError: Nothing is bundled there.
    """
    manifest, record = read_bundle_manifest(folder), read_record(folder)
    if manifest is None:
        raise UsageError(f"nothing is bundled at {folder}; give a checkpoint")
    results, trainings = read_results(folder), trainings_of(record)
    test = [result for result in results if _is_unseen(result, manifest)]
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        manifest=manifest,
        suites=_suites(manifest, record["data"]),
        tasks=[task["name"] for task in record["tasks"]],
        weights_file=SINGLE_FILE,
        test_states=TEST_STATES,
        test=[_row(result) for result in test],
        options=any(map(_options, test)),
        graded=[task for task in _MEASURES if any(task in result.texts for result in test)],
        commands=_commands(test, manifest.name),
        development=counted(len(results) - len(test), "run") if len(results) > len(test) else "",
        trainings=trainings,
        pipeline=_stages(manifest.name),
        wordings=", ".join(ranges(map(len, record["wordings"].values()))),
        data=_by_demonstrator(manifest.data),
        init_ids={suite: ranges(manifest.init_ids_of(suite)) for suite in _suites(manifest)},
        unknowns=unknowns(record, manifest),
        scripted=_has_only_scripted_actions(manifest, trainings),
    )


def _is_unseen(result: BundledResult, manifest: BundleManifest) -> bool:
    return result.is_test and not manifest.init_ids_of(result.suite) & set(result.init_ids)


def _suites(manifest: BundleManifest, datasets: Sequence[str] | None = None) -> list[str]:
    """The suites of these datasets; of all, if None."""
    of = [each for each in manifest.data if datasets is None or each.name in datasets]
    return sorted({suite for each in of for suite in each.suites})


def _row(result: BundledResult) -> dict[str, Any]:
    """A result as the template shows it."""
    return {
        "result": result,
        "options": _options(result),
        "success": _success(result),
        "weakest": _weakest(result),
        "texts": {task: _scores(result, task) for task in _MEASURES},
        "latency": " / ".join(f"{result.latency_ms[stage]['p50']:.0f}" for stage in ("action", "frame")),
    }


def _success(result: BundledResult) -> str:
    interval = wilson_95(result.n_success, result.n_episodes)
    if interval is None:
        return "–"
    rate = 100 * result.n_success / result.n_episodes
    bounds = f"{100 * interval.low:.1f} – {100 * interval.high:.1f}"
    return f"{result.n_success} of {result.n_episodes}: {rate:.1f} % ({bounds})"


def _weakest(result: BundledResult) -> str:
    """The ids of the tasks with the lowest success rate, and that rate."""
    rates = {task: task.n_success / task.n_episodes for task in result.tasks if task.n_episodes}
    least = [task for task, rate in rates.items() if rate == min(rates.values())]
    if not least:
        return "–"
    return (
        f"{', '.join(ranges(task.task_id for task in least))}: {least[0].n_success} of {least[0].n_episodes}"
    )


def _scores(result: BundledResult, task: str) -> str:
    scores = result.texts[task].at_request if task in result.texts else {}
    shown = [
        f"{_NAMES.get(name, name)} {scores[name]['pc']:.1f}" for name in _MEASURES[task] if name in scores
    ]
    return ", ".join(shown) or "–"


def _options(result: BundledResult) -> str:
    """Options beyond the test's own, as on the command line."""
    given = {name: value for name, value in result.options.items() if name != "wordings"}
    return " ".join(spelt(name, value) for name, value in sorted(given.items()))


def _commands(results: Iterable[BundledResult], policy: str) -> list[str]:
    """Commands that repeat these results, one for several suites where possible."""
    suites = defaultdict[str, list[str]](list)
    for result in results:
        assets = "standins" if result.assets.name == "standins" else "FOLDER"
        what = [
            *([f"--assets {assets}"] if result.assets.digest else []),
            f"--mode {result.mode} --init-ids {' '.join(ranges(result.init_ids))} --wordings held_out",
            *filter(None, [_options(result)]),
        ]
        suites[" ".join(what)].append(result.suite)
    return [
        f"python -m eval.run --policy {policy} --suite {' '.join(dict.fromkeys(of))} {what}"
        for what, of in suites.items()
    ]


def _stages(name: str) -> int:
    """The number of stages of the pipeline of that name; 0 if there is none."""
    return len(load(PipelineConfig, name).stages) if name in names(PipelineConfig) else 0


def _by_demonstrator(data: Iterable[DatasetFacts]) -> list[dict[str, Any]]:
    groups = defaultdict[str, list[DatasetFacts]](list)
    for each in data:
        groups[_demonstrator(each)].append(each)
    return [
        {
            "demonstrator": demonstrator,
            "names": [each.name for each in of],
            "episodes": sum(each.demonstrations for each in of),
            "failures": sum(each.failures for each in of),
            "frames": sum(each.frames for each in of),
        }
        for demonstrator, of in sorted(groups.items())
    ]


def _demonstrator(data: DatasetFacts) -> str:
    if data.learner is not None:
        return f"{data.policy}, correcting an earlier checkpoint"
    return f"{data.policy}, for texts alone (failures are kept)" if data.keeps_failures else data.policy


def _has_only_scripted_actions(manifest: BundleManifest, trainings: Iterable[Mapping[str, Any]]) -> bool:
    """Whether all known demonstrations with target actions are the scripted expert's."""
    action_data = {
        name for each in trainings if not each["recipe"].get("texts_only") for name in each["data"]
    }
    return {each.policy for each in manifest.data if each.name in action_data} == {"expert"}
