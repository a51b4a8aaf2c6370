"""The model card: a template filled in with what a bundled checkpoint's files say, and nothing else."""

import importlib.resources
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from configs.cli import spelt
from configs.errors import UsageError
from eval.bundle.contents import Contents, read_contents
from eval.bundle.data import begun_in
from eval.bundle.history import BEFORE, gaps, stages_of, trainings_of, unknown_start, unlisted
from eval.bundle.results import Result, TaskResult, read_results
from eval.bundle.splits import TEST_STATES, is_test
from eval.bundle.targets import TARGETS, reached
from eval.metrics.statistics import wilson_95
from eval.policies.checkpoints import read_record, served_only
from eval.records.json_files import flattened
from oxygen.model.config import preset
from oxygen.weights.loading import SINGLE_FILE

CARD_FILE = "MODEL_CARD.md"

_TEMPLATE = importlib.resources.files("eval") / "bundle" / "model_card.md.j2"
_TOLD_APART = {"step", "model", "tasks", "data", "frames", "wordings", BEFORE}
"""Keys of `training.json` that have a place of their own in the card."""
_OF_ACTIONS = ("recipe.draws", "recipe.reach.actions", "recipe.reach.texts")
"""What means nothing where texts alone were trained."""


def render(folder: Path) -> str:
    """The card of the checkpoint bundled in a folder, in Markdown.

    Raises:
        UsageError: Nothing is bundled there.
    """
    contents, record = read_contents(folder), read_record(folder)
    if contents is None:
        raise UsageError(f"nothing is bundled at {folder}; give the checkpoint of a training")
    results, targets = read_results(folder), TARGETS.get(contents.name)

    def row(result: Result) -> dict[str, Any]:
        return _row(result, contents, _seen(result, contents, record))

    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"ranges": ranges, "text": _text, "percentages": _percentages}
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        contents=contents,
        suites=_suites(contents, record),
        weights_file=SINGLE_FILE,
        model=flattened({**record["model"], **served_only(record["model"]["name"])}),
        tasks=record["tasks"],
        frames=sum(each.frames for each in contents.data),
        stages={each.name: stages_of(each.name, record) for each in contents.data},
        unlisted=unlisted(record, contents.data),
        wordings=record["wordings"],
        trainings=[_training(each, contents) for each in trainings_of(record)],
        unknown_start=unknown_start(record),
        gaps=gaps(record, contents.data),
        scripted=_is_taught_by_scripts(contents, record),
        noise=preset(record["model"]["name"]).noise_scale,
        graded=list(dict.fromkeys(task for result in results for task in result.texts)),
        trials=targets.trials if targets else None,
        reached=reached(targets, results, lambda suite: begun_in(contents.data, suite)) if targets else (),
        test_states=TEST_STATES,
        test=[row(result) for result in results if is_test(result)],
        development=[row(result) for result in results if not is_test(result)],
        weakest=_weakest(results),
        unmeasured=_unmeasured(contents, results),
    )


def _is_taught_by_scripts(contents: Contents, record: Mapping[str, Any]) -> bool:
    """Whether whatever taught it actions, as far as is known, was the scripted expert."""
    acting = [each for each in trainings_of(record) if not each["recipe"].get("texts_only")]
    taught = {Path(folder).name for training in acting for folder in training["data"]}
    return {each.policy for each in contents.data if each.name in taught} == {"expert"}


def _suites(contents: Contents, record: Mapping[str, Any]) -> list[str]:
    """The suites of the last training: where it began from may have known others."""
    taught = {Path(folder).name for folder in record["data"]}
    return sorted({suite for each in contents.data if each.name in taught for suite in each.suites})


def ranges(numbers: Iterable[int]) -> str:
    """Whole numbers in short: `0–3, 7`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("–".join(map(str, run)) for run in runs)


def _training(record: Mapping[str, Any], contents: Contents) -> dict[str, Any]:
    """A training as the template shows it."""
    listed = {each.name: each.frames for each in contents.data if each.name in record["data"]}
    counted = sum(listed.values()) if listed.keys() == set(record["data"]) else record["frames"]
    recipe = flattened({key: value for key, value in record.items() if key not in _TOLD_APART})
    idle = _OF_ACTIONS if record["recipe"].get("texts_only") else ()
    return {
        "step": record["step"],
        "frames": record["frames"],
        "data": record["data"],
        "counted": counted,
        "recipe": {name: value for name, value in recipe.items() if name not in idle},
    }


def _seen(result: Result, contents: Contents, record: Mapping[str, Any]) -> str:
    """The initial states of a result that demonstrations began in, as far as it is known."""
    shown = ranges(set(result.init_ids) & begun_in(contents.data, result.suite))
    if not gaps(record, contents.data):
        return shown or "none"
    return f"{shown}, perhaps more" if shown else "none known"


def _row(result: Result, contents: Contents, seen: str) -> dict[str, Any]:
    """A result as the template shows it."""
    interval = wilson_95(result.n_success, result.n_episodes)
    return {
        "result": result,
        "rate": "–" if interval is None else f"{100 * result.n_success / result.n_episodes:.1f} %",
        "interval": "–" if interval is None else f"{100 * interval.low:.1f} – {100 * interval.high:.1f}",
        "action": _latency(result.latency_ms.get("action")),
        "query": _latency(result.latency_ms.get("frame")),
        "seen": seen,
        "options": _spelt(result.options),
        "command": _command(result, contents.name),
    }


def _latency(quantiles: Mapping[str, float] | None) -> str:
    return "–" if not quantiles else f"{quantiles['p50']:.1f} / {quantiles['p95']:.1f}"


def _percentages(scores: Mapping[str, Mapping[str, Any]]) -> str:
    """Measures with their intervals, where there are enough episodes for one."""
    told = [f"{measure} {score['pc']:.1f}{_between(score['ci95'])}" for measure, score in scores.items()]
    return ", ".join(told) or "–"


def _between(ci95: Sequence[float] | None) -> str:
    return "" if ci95 is None else f" ({ci95[0]:.1f} – {ci95[1]:.1f})"


def _weakest(results: Iterable[Result]) -> dict[tuple[str, str], list[TaskResult]]:
    """By suite and asset set: the tasks that were solved least often, every episode counted once."""
    pooled: dict[tuple[str, str], dict[int, TaskResult]] = {}
    begun: dict[tuple[str, str], set[int]] = {}
    for result in sorted(results, key=lambda result: -result.n_episodes):
        of = result.suite, result.assets.name
        if begun.setdefault(of, set()).isdisjoint(result.init_ids):
            begun[of] |= set(result.init_ids)
            for task in result.tasks:
                known = pooled.setdefault(of, {}).get(task.task_id)
                pooled[of][task.task_id] = task + known if known else task
    return {of: least for of, tasks in pooled.items() if (least := _least_solved(tasks.values()))}


def _least_solved(tasks: Iterable[TaskResult]) -> list[TaskResult]:
    rates = {task: task.n_success / task.n_episodes for task in tasks if task.n_episodes}
    least = min(rates.values(), default=1.0)
    return [task for task, rate in rates.items() if rate == least < 1]


def _spelt(options: Mapping[str, Any]) -> str:
    """Options as the command line takes them."""
    return " ".join(spelt(name, value) for name, value in sorted(options.items()))


def _command(result: Result, policy: str) -> str:
    """What measures this again. Assets that are not the package's own have to be found by whoever does."""
    ids = ranges(result.init_ids).replace("–", "-").replace(",", "")
    assets = " --assets standins" if result.assets.name == "standins" else ""
    what = f"--policy {policy} --suite {result.suite} --mode {result.mode} --init-ids {ids}{assets}"
    return f"python -m eval.run {what} {_spelt(result.options)}".rstrip()


def _unmeasured(contents: Contents, results: Iterable[Result]) -> list[str]:
    """Suites and asset sets it was trained on without a result here."""
    measured = {(result.suite, result.assets.name) for result in results}
    trained = {(suite, assets) for each in contents.data for suite in each.suites for assets in each.assets}
    return [f"{suite} on {assets}" for suite, assets in sorted(trained - measured)]


def _text(value: Any) -> str:
    """A value in a table's cell."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).replace("|", "\\|")
