"""Builds the report of one run or several: head, verdicts, tasks, distributions, episodes."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.errors import UsageError, pluralize
from eval.metrics.language import HEADLINES
from eval.metrics.noninferiority import exceeds
from eval.metrics.statistics import MeanDifference, wilson_95
from eval.metrics.success import aggregate, timings_of
from eval.records.query_logs import QueryRecord, read_queries
from eval.records.schema import EpisodeResult, Outcome, graded_only, solved
from eval.report.comparison import compare
from eval.report.comparison_tables import MOTION_HEADINGS
from eval.report.comparison_verdict import format_between, format_points, judge_all
from eval.report.pages.charts import distributions, success_over_time
from eval.report.pages.episodes import episode_data, missed, staleness_steps
from eval.report.pages.reported_runs import ReportedRun, facts, read_runs
from eval.report.pages.site import page_file, page_files, script, write_files
from sim_envs.world import EpisodeKey

REPORT = "report"
"""Name of the report's folder within a run's folder."""


def write_report(paths: Sequence[Path], folder: Path) -> Path:
    """Write the report of the runs in `paths`; the first run is the reference of comparisons.

    Returns:
        The page.

    Raises:
        UsageError: No run can be read, or the folder cannot be written.
    """
    return write_files(folder, report_files(*read_runs(paths)))


def report_files(
    runs: Sequence[ReportedRun], refused: Mapping[str, str], *, live: str | None = None
) -> Iterator[tuple[str, bytes | Path]]:
    """Name and content of each file of a report, or the file it is a copy of.

    Args:
        runs: The runs; the first is the reference of comparisons.
        refused: Why other runs cannot be read, by folder.
        live: Version of the report, for a page that follows the runs; None for one that does not.
    """
    keys = sorted({key for run in runs for key in run.episodes})
    samples: list[defaultdict[str, list[float]]] = [defaultdict(list) for _ in runs]
    timings: list[dict[EpisodeKey, Mapping[str, Sequence[float]]]] = [{} for _ in runs]
    for key in keys:
        sides: list[dict[str, Any] | None] = []
        for number, run in enumerate(runs):
            episode = run.episodes.get(key)
            if episode is None:
                sides.append(None)
                continue
            queries, problem = list[QueryRecord](), None
            try:
                queries = read_queries(run.folder, key)
            except UsageError as error:
                problem = str(error)
            timings[number][key] = timings_of(queries)
            if episode.outcome is not Outcome.ERROR:
                _sample(samples[number], episode, queries, run.identity.deadline_ms)
            video, no_video = _video(run, episode)
            name = None
            if video is not None:
                name = f"videos/{number}/{str(episode.video).removeprefix('videos/')}"
                yield name, video
            data = episode_data(episode, queries, deadline_ms=run.identity.deadline_ms)
            sides.append({**data, "video": name, "no_video": no_video, "problem": problem})
        yield f"episodes/{key}.js", script("showEpisode", {"key": str(key), "sides": sides})
    rows = [
        aggregate(list(run.episodes.values()), of_run, run.identity.limits_s)
        for run, of_run in zip(runs, timings, strict=True)
    ]
    policies = ", ".join(dict.fromkeys(run.identity.policy for run in runs))
    suites = ", ".join(dict.fromkeys(key.suite for key in keys))
    content = {
        "title": f"{policies} on {suites}" if suites else policies,
        "live": live,
        "refused": refused,
        "runs": runs,
        "rows": rows,
        "facts": _shared_facts(runs),
        "verdicts": list(_verdicts(runs)),
        "errors": [(run, each) for run in runs for each in run.episodes.values() if each.error],
        "suites": _suites(runs, keys),
        "tasks": _tasks(runs, keys),
        "episodes": _episode_rows(runs, keys),
        "texts": {
            task: measure for task, measure in HEADLINES.items() if any(task in row["texts"] for row in rows)
        },
        "plots": {"curves": success_over_time(runs), "distributions": distributions(runs, samples)},
        "variants": [{"label": run.label, "colour": run.colour} for run in runs],
    }
    yield from page_files("report.html.j2", content)
    if live is not None:
        yield "live.js", page_file("live.js")


def _sample(
    samples: defaultdict[str, list[float]],
    episode: EpisodeResult,
    queries: Sequence[QueryRecord],
    deadline_ms: float | None,
) -> None:
    """Add an episode's values to the samples of the distributions."""
    if episode.success_s is not None:
        samples["time to success (s)"].append(episode.success_s)
    for query in queries:
        if query.latency is not None:
            samples["simulated latency: actions (ms)"].append(query.latency.actions_ms)
            samples["simulated latency: until the next query (ms)"].append(query.latency.busy_ms)
        for stage, milliseconds in query.timings_ms.items():
            samples[f"this machine: {stage} (ms)"].append(milliseconds)
        if missed(query, deadline_ms):
            samples["deadline misses: query (ms)"].append(query.timings_ms["frame"])
    if episode.simulated_s:
        for task, steps in staleness_steps(queries):
            samples[f"staleness: {task} (ms)"].append(1e3 * steps * episode.simulated_s / episode.steps)


def _video(run: ReportedRun, episode: EpisodeResult) -> tuple[Path | None, str | None]:
    """The episode's video, or why there is none."""
    if episode.video is None:
        return None, "no video was recorded"
    path = run.folder.path / episode.video
    if not path.is_file():
        return None, f"the video {episode.video} is missing from the run's folder"
    return path, None


def _verdicts(runs: Sequence[ReportedRun]) -> list[str]:
    """One sentence per comparison with the first run, or per run if there is one."""
    if len(runs) == 1:
        return [_format_rate(runs[0])]
    sentences, (reference, *others) = [], runs
    for run in others:
        try:
            done = all(each.identity.status == "complete" for each in (reference, run))
            comparison = compare(reference.folder, run.folder, partial=not done)
            judged = judge_all(comparison, reference.identity.margin, reference.identity.time_margin)
        except UsageError as error:
            sentences.append(f"{run.label} is not compared with {reference.label}: {error}.")
            continue
        found = (judged.success, judged.time, judged.restricted)
        sentences += [judgement.sentence for judgement in found if judgement is not None]
        differences = [(MOTION_HEADINGS[name], each) for name, each in comparison.motion.items()]
        differences += [(f"{task} true now (%)", each) for task, each in comparison.currency.items()]
        if differences:
            parts = [f"{heading} {_format_difference(each)}" for heading, each in differences]
            sentences.append(f"{run.label} minus {reference.label}: {'; '.join(parts)}.")
    return sentences


def _format_difference(each: MeanDifference) -> str:
    between = "" if each.ci95 is None else f" ({format_between(each.ci95, digits=2)})"
    return f"{format_points(each.difference, digits=2)}{between}"


def _format_rate(run: ReportedRun) -> str:
    solved_rate, total = rate_of(list(run.episodes.values())), len(run.episodes)
    errors = total - (solved_rate["of"] if solved_rate else 0)
    if solved_rate is None or exceeds(errors, total):
        return f"No verdict: {errors} of {pluralize(total, 'episode')} ended in an error."
    return (
        f"{run.label} solved {solved_rate['hits']} of {pluralize(solved_rate['of'], 'episode')}: "
        "{percent:.1f} %, 95 % {low:.1f} to {high:.1f}.".format(**solved_rate)
    )


def _shared_facts(runs: Sequence[ReportedRun]) -> dict[str, list[tuple[str | None, str]]]:
    """Facts by name: once if all runs agree, else with each run's label."""
    each = [facts(run) for run in runs]
    found: dict[str, list[tuple[str | None, str]]] = {}
    for name in dict.fromkeys(name for row in each for name in row):
        values = [(run.label, row.get(name, "–")) for run, row in zip(runs, each, strict=True)]
        agree = len({value for _, value in values}) == 1
        found[name] = [(None, values[0][1])] if agree else [*values]
    return found


def _suites(runs: Sequence[ReportedRun], keys: Sequence[EpisodeKey]) -> dict[str, list[dict[str, Any]]]:
    """The bars of each suite: every run's success rate."""
    found = {}
    for suite in dict.fromkeys(key.suite for key in keys):
        of_suite = [(run, [each for key, each in run.episodes.items() if key.suite == suite]) for run in runs]
        rates = [(run, rate_of(episodes)) for run, episodes in of_suite]
        found[suite] = [{**rate, "label": run.label, "colour": run.colour} for run, rate in rates if rate]
    return {suite: bars for suite, bars in found.items() if bars}


def _tasks(runs: Sequence[ReportedRun], keys: Sequence[EpisodeKey]) -> list[dict[str, Any]]:
    """Success per task with intervals, percent, for each run."""
    rows = []
    for suite, task_id in dict.fromkeys((key.suite, key.task_id) for key in keys):
        members = [
            [e for e in run.episodes.values() if (e.key.suite, e.key.task_id) == (suite, task_id)]
            for run in runs
        ]
        first = next(episode for episodes in members for episode in episodes)
        cells = [rate_of(episodes) for episodes in members]
        rows.append({"suite": suite, "task_id": task_id, "task": first.instruction, "rates": cells})
    return rows


def rate_of(episodes: Sequence[EpisodeResult]) -> dict[str, Any] | None:
    """Hits, their total and the success rate of graded episodes with its 95 % Wilson interval, percent.

    None without graded episodes.
    """
    graded = graded_only(episodes)
    hits, of = sum(map(solved, graded)), len(graded)
    interval = wilson_95(hits, of)
    if interval is None:
        return None
    return {
        "hits": hits,
        "of": of,
        "percent": 100 * hits / of,
        "low": 100 * interval.low,
        "high": 100 * interval.high,
    }


def _episode_rows(runs: Sequence[ReportedRun], keys: Sequence[EpisodeKey]) -> list[dict[str, Any]]:
    """A row per episode; discordant ones first."""
    rows = []
    for key in keys:
        sides = [run.episodes.get(key) for run in runs]
        played = [side for side in sides if side is not None]
        graded = [side for side in played if side.outcome is not Outcome.ERROR]
        discordant = len({solved(side) for side in graded}) > 1
        rows.append({"key": key, "task": played[0].language, "sides": sides, "discordant": discordant})
    return sorted(rows, key=lambda row: not row["discordant"])
