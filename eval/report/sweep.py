"""Summarizes a sweep from the records of its runs: a row per cell, with verdicts; writes and shows it."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from configs.console import TextConsole
from configs.errors import check
from configs.paths import shown
from configs.schema import AXES, CONDITIONS, SCHEDULE, SweepConfig
from contracts.episode import EpisodeResult, MotionQuality, Outcome, graded_only, states_of
from contracts.motion import Static
from contracts.perturbation import UNPERTURBED, format_perturbations
from eval.metrics.language import HEADLINES, currency_differences
from eval.metrics.motion_quality import motion_differences
from eval.metrics.noninferiority import Verdict
from eval.metrics.results_file import fields_of
from eval.metrics.rows import RunRows
from eval.metrics.simulated_time import RestrictedTimes, TimeRatio, restricted_times, time_ratio
from eval.metrics.statistics import mean_95
from eval.metrics.sweep_rows import (
    CELL_FIELDS,
    Cell,
    SuccessVerdict,
    SweepRecord,
    TimeVerdict,
)
from eval.records.reader import RunRecords
from eval.records.run_folders import Run, SweepFolder
from eval.report.comparison import is_graded, outcomes_of
from eval.report.comparison_verdict import Judgement, judge, judge_time
from eval.report.pages.run_report import REPORT
from eval.report.sweep_plots import draw_sweep, write_sweep_page
from eval.report.sweep_table import format_value, sweep_table


def conclude(folder: SweepFolder, results: Sequence[RunRows]) -> SweepRecord:
    """Write `sweep.json`, which is returned, the figures and the page of a sweep that was played."""
    failed = any(each.overall.n_errors for each in results)
    config = folder.config()
    summary = summarize_sweep(config, folder.runs(), results)
    folder.write(config, status="errors" if failed else "complete", **summary)
    record = check(SweepRecord, folder.read(), source=str(folder.record_path))
    draw_sweep(record, folder.path)
    write_sweep_page(folder, record)
    return record


def show_sweep(folder: SweepFolder, record: SweepRecord) -> None:
    """Print the table of a finished sweep and the paths of its files."""
    rich = TextConsole()
    rich.print(sweep_table(record, width=rich.width), crop=False)
    if record.status == "errors":
        rich.print("The same command with --resume retries the episodes that were errors.")
    page = folder.path / REPORT / "index.html"
    for path in (folder.record_path, *sorted(folder.path.glob("*.png")), *([page] if page.is_file() else [])):
        rich.print(shown(path), soft_wrap=True, markup=False)


_OUTCOMES = {Outcome.SUCCESS: "1", Outcome.ERROR: "-"}
_PROVENANCE = ("command", "policy", "weights_sha256", "assets", "git", "versions", "hardware")


def summarize_sweep(config: SweepConfig, runs: Sequence[Run], results: Sequence[RunRows]) -> dict[str, Any]:
    """Summarize a sweep for `sweep.json`.

    A perturbed cell is compared with its control; others with the one in mode `actions` under the same
    conditions: that with the same schedule, or the only one.
    A cell of `actions` with another overlap is compared with the same one with `skip`.

    Returns:
        The fields of `SweepRecord` beside status and configuration, as JSON types.
    """
    cells = [_cell(run, of) for run, of in zip(runs, results, strict=True)]
    records = {cell.run: of.records for cell, of in zip(cells, results, strict=True)}
    judged = [
        cell
        if (reference := _reference(cell, cells)) is None
        else dataclasses.replace(cell, **_verdicts(cell, reference, records, config))
        for cell in cells
    ]
    labels = {axis: {format_value(axis, cell.options) for cell in cells} - {""} for axis in AXES}
    manifest = runs[0].folder.read_manifest()
    return {
        "varied": [axis for axis, values in labels.items() if len(values) > 1],
        "cells": [fields_of(cell, CELL_FIELDS) for cell in judged],
        "provenance": {part: manifest.get(part) for part in _PROVENANCE},
        "finished": manifest.get("finished"),
    }


def _agree(one: Cell, other: Cell, axes: Sequence[str]) -> bool:
    return all(one.options.get(axis) == other.options.get(axis) for axis in axes)


def _reference(cell: Cell, cells: Sequence[Cell]) -> Cell | None:
    control = {**cell.options, "perturb": format_perturbations(UNPERTURBED)}
    if control != cell.options and (found := [each for each in cells if each.options == control]):
        return found[0]
    under = [each for each in cells if each.mode == "actions" and _agree(each, cell, CONDITIONS)]
    if cell in under:
        plain = {**cell.options, "overlap": "skip"}
        return next((each for each in under if each is not cell and each.options == plain), None)
    alike = [each for each in under if _agree(each, cell, [a for a in SCHEDULE if a != "tokens_per_frame"])]
    return alike[0] if alike else under[0] if len(under) == 1 else None


def _cell(run: Run, rows: RunRows) -> Cell:
    """A cell without verdicts."""
    recorded, identity, overall = run.config.model_dump(mode="json"), rows.records.identity, rows.overall
    options = {axis: recorded[axis] for axis in AXES}
    options["motion"] = options["motion"] or str(Static())  # a grid may leave it out
    episodes = [episode for _, episode in sorted(rows.records.episodes.items())]
    timed = [(episode, s) for episode in episodes if (s := episode.success_s) is not None]
    simulated_s = sum(episode.simulated_s or 0.0 for episode in graded_only(episodes))
    texts = sum(episode.requests.finished for episode in graded_only(episodes))
    return Cell(
        **vars(overall),
        run=identity.run_id,
        options=options,
        device=identity.clock_device,
        texts_per_simulated_s=texts / simulated_s if simulated_s else None,
        pc_right_on_delivery={
            task: right.pc if (right := texts.on_delivery.get(HEADLINES[task])) else None
            for task, texts in overall.texts.items()
        },
        outcomes="".join(_OUTCOMES.get(episode.outcome, "0") for episode in episodes),
        current={task: texts.current for task, texts in overall.texts.items() if texts.current},
        time_to_success_ci95=mean_95([s for _, s in timed], states_of(each for each, _ in timed)),
    )


def trajectory_signature(episode: EpisodeResult) -> tuple[Any, ...]:
    """The fields that two episodes with the same actions at the same times share."""
    waiting = episode.idle_steps, episode.continued_steps, episode.skipped_actions
    return episode.outcome, episode.steps, episode.queries, *waiting, episode.motion


def _time(success: Judgement, times: TimeRatio | RestrictedTimes | None, margin: float) -> TimeVerdict:
    """The verdict on a ratio of times; too many errors allow none."""
    judged, verdict = judge_time(times, margin), success.verdict
    if verdict is not Verdict.TOO_MANY_ERRORS:
        verdict = Verdict.INCONCLUSIVE if judged is None else judged.verdict
    if times is None:
        return TimeVerdict(verdict=verdict)
    seconds = times.seconds if isinstance(times, RestrictedTimes) else None
    return TimeVerdict(verdict=verdict, ratio=times.ratio, ci95=times.ci95, seconds=seconds)


def _verdicts(
    cell: Cell, reference: Cell, records: Mapping[str, RunRecords], config: SweepConfig
) -> dict[str, Any]:
    """The fields of a cell that compare it with its reference."""
    episodes, others = records[cell.run].episodes, records[reference.run].episodes
    pairs = [(each, episodes[key]) for key, each in sorted(others.items()) if key in episodes]
    graded, outcomes = [pair for pair in pairs if is_graded(pair)], outcomes_of(pairs)
    restricted = restricted_times(graded, records[cell.run].identity.limits_s)
    success, counts_suffice = judge(outcomes, config.margin), _agree(cell, reference, ["overlap"])
    same_trajectory = all(
        trajectory_signature(a) == trajectory_signature(b) and (counts_suffice or a.motion != MotionQuality())
        for a, b in pairs
    )
    return {
        "against": reference.run,
        "success": SuccessVerdict(
            verdict=success.verdict,
            identical=outcomes.graded == len(pairs) > 0 and same_trajectory,
            only_reference=outcomes.only_a,
            only_cell=outcomes.only_b,
            difference=outcomes.difference,
            ci95=outcomes.ci95,
            episodes_needed=success.episodes_needed,
        ),
        "time": _time(success, time_ratio(graded), config.time_margin),
        "restricted": _time(success, restricted, config.time_margin),
        "motion_differences": motion_differences(graded),
        "current_differences": currency_differences(graded),
    }
