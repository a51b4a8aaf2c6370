"""Renders the model card of a bundled checkpoint from its files."""

import importlib.resources
import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from configs.cli import format_option, ranges
from configs.load import names
from configs.pipeline import PipelineConfig
from eval.bundle.provenance import read_bundle_manifest, trainings_of, unknowns
from eval.bundle.results import TEST_STATES, BundledResult, read_results
from eval.metrics.statistics import bounds, wilson_95
from oxygen.presets.checkpoints import read_record
from oxygen.weights.loading import SINGLE_FILE
from oxygen.weights.safetensors import open_safetensors

CARD_FILE = "MODEL_CARD.md"

_TEMPLATE = importlib.resources.files("eval") / "bundle" / "model_card.md.j2"
_MEASURES = {"narration": ("phase", "object", "target"), "memory": ("f1",), "textual_memory": ("exact",)}
"""Measures of graded language tasks on the card; `results.json` has the others."""


def render(folder: Path) -> str:
    """The model card of the checkpoint bundled in a folder, in Markdown."""
    manifest, record, results = read_bundle_manifest(folder), read_record(folder), read_results(folder)
    demonstrated = {
        (suite, state) for each in manifest.data for suite, of in each.init_ids.items() for state in of
    }
    test = [
        result
        for result in results
        if result.is_test and not demonstrated & {(result.suite, state) for state in result.init_ids}
    ]
    tensors = open_safetensors(folder / SINGLE_FILE).tensors
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["ranges"] = ranges
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        name=folder.name,
        parameters=sum(math.prod(tensor.shape) for tensor in tensors.values()),
        weights_file=SINGLE_FILE,
        sha256=manifest.files[SINGLE_FILE],
        record=record,
        data=manifest.data,
        suites=sorted(
            {suite for each in manifest.data if each.name in record["data"] for suite in each.init_ids}
        ),
        trainings=trainings_of(record),
        has_pipeline=folder.name in names(PipelineConfig),
        unknowns=unknowns(folder),
        test_states=TEST_STATES,
        test=[_row(result) for result in test],
        machines=sorted({result.machine for result in test}),
        n_development=len(results) - len(test),
    )


def _row(result: BundledResult) -> dict[str, Any]:
    """A result as the table shows it."""
    successes = sum(solved for solved, _ in result.tasks.values())
    episodes = sum(graded for _, graded in result.tasks.values())
    low, high = bounds(wilson_95(successes, episodes), 100) or (0.0, 100.0)
    rates = {task: solved / of for task, (solved, of) in result.tasks.items() if of}
    lowest = min(rates.values())
    weakest = ", ".join(ranges(task for task, rate in rates.items() if rate == lowest))
    options = [("mode", result.mode), ("init_ids", ranges(result.init_ids)), *sorted(result.options.items())]
    return {
        "suite": result.suite,
        "assets": result.assets.name,
        "options": " ".join(format_option(name, value) for name, value in options),
        "success": f"{successes} of {episodes}: {100 * successes / episodes:.1f} % ({low:.1f} – {high:.1f})",
        "weakest": f"{weakest}: {100 * lowest:.0f} %",
        "texts": "; ".join(_scores(result, task) for task in _MEASURES if task in result.texts) or "–",
        "latency": " / ".join(f"{result.latency_ms[stage]:.0f}" for stage in ("action", "frame")),
    }


def _scores(result: BundledResult, task: str) -> str:
    scores = result.texts[task]
    return f"{task} " + ", ".join(
        f"{measure} {scores[measure]['pc']:.1f}" for measure in _MEASURES[task] if measure in scores
    )
