"""Builds the report of one run or several: the result, episodes, tasks, and statistics in full."""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from markupsafe import Markup

from configs.assets import STANDINS, badged
from contracts.clock import PAUSED
from contracts.episode import EpisodeKey, EpisodeResult, Outcome, graded_only, solved
from contracts.errors import UsageError, pluralize
from contracts.perturbation import format_perturbations
from contracts.query import QueryRecord
from eval.metrics.language import HEADLINES, ORACLE, true_text
from eval.metrics.rows import QueryTimes, Row, kinds_of, rate_of, row_of, times_of
from eval.metrics.simulated_time import success_curve
from eval.metrics.statistics import Rate, quantiles
from eval.records.reader import RunRecords
from eval.report import result_tables as results
from eval.report.comparison import headline_share, requested_texts
from eval.report.comparison_verdict import format_between, format_points
from eval.report.conclusion import Conclusion, Judged, conclude_runs
from eval.report.figures import Chart, Line, success_curve_chart
from eval.report.labels import named_policy, protocol_label
from eval.report.pages.reported_runs import ReportedRun, facts, merit, read_runs
from eval.report.pages.site import (
    chart_group,
    link,
    page_file,
    page_files,
    script,
    swatch,
    whisker,
    write_files,
)
from eval.report.perturbations import perturbations_table, perturbed_rows
from eval.report.table import Column, Table, clock_label, differ

REPORT = "report"
"""Name of the report's folder within a run's folder."""


def write_report(runs: Sequence[RunRecords], folder: Path, conclusion: Conclusion | None = None) -> Path:
    """Write the report of some runs, the first of which is the reference; returns the page.

    Their conclusion, if it is known, is not drawn again.

    Raises:
        UsageError: No run can be read, or the folder cannot be written.
    """
    return write_files(folder, report_files(*read_runs(runs), conclusion=conclusion))


def report_files(
    runs: Sequence[ReportedRun],
    refused: Mapping[str, str],
    *,
    conclusion: Conclusion | None = None,
    live: str | None = None,
) -> Iterator[tuple[str, bytes | Path]]:
    """Name and content of each file of a report, or the file it is a copy of.

    The first run is the reference of comparisons. `refused` says by folder why other runs cannot be read;
    `live` is the version of a report that follows its runs.
    """
    keys = sorted({key for run in runs for key in run.episodes})
    plays = [_Plays(number=number, run=run) for number, run in enumerate(runs)]
    for key in keys:
        sides = [play.side(key) for play in plays]
        yield f"episodes/{key}.js", script("showEpisode", {"key": str(key), "sides": sides})
    videos = sorted((video for play in plays for video in play.videos), key=lambda video: video[1].key)
    yield from ((name, run.folder.path / str(episode.video)) for run, episode, name in videos)
    yield from page_files(
        "report.html.j2", _content(keys, plays, conclusion, videos=videos, live=live, refused=refused)
    )
    if live is not None:
        yield "live.js", page_file("live.js")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Plays:
    """A run whose episodes are being read, and what the page needs of their queries."""

    number: int
    run: ReportedRun
    times: dict[EpisodeKey, QueryTimes] = dataclasses.field(default_factory=dict)
    samples: defaultdict[str, list[float]] = dataclasses.field(default_factory=lambda: defaultdict(list))
    # Of episodes with a video, the path of its copy.
    videos: list[tuple[ReportedRun, EpisodeResult, str]] = dataclasses.field(default_factory=list)

    def side(self, key: EpisodeKey) -> dict[str, Any] | None:
        """What the page shows of an episode; None if the run has not played it."""
        run = self.run
        if (episode := run.episodes.get(key)) is None:
            return None
        queries: Sequence[QueryRecord] = ()
        problem = None
        try:
            queries = run.records.queries(key)
        except UsageError as error:
            problem = str(error)
        self.times[key] = times_of(queries)
        if episode.outcome is not Outcome.ERROR:
            _sample(self.samples, episode, queries, run.identity.deadline_ms)
        name, no_video = None, episode.video_error or "no video was recorded"
        if episode.video is not None:
            no_video = f"the video {episode.video} is missing from the run's folder"
            if (run.folder.path / episode.video).is_file():
                name, no_video = f"videos/{self.number}/{episode.video.removeprefix('videos/')}", None
                self.videos.append((run, episode, name))
        data = _episode_data(episode, queries, deadline_ms=run.identity.deadline_ms)
        return {**data, "video": name, "no_video": no_video, "problem": problem}


def _content(
    keys: Sequence[EpisodeKey],
    plays: Sequence[_Plays],
    conclusion: Conclusion | None,
    *,
    videos: Sequence[tuple[ReportedRun, EpisodeResult, str]],
    **given: Any,
) -> dict[str, Any]:
    """What the template of the page shows; `given` is what the caller knows."""
    runs = [play.run for play in plays]
    rows = [
        row_of(list(play.run.episodes.values()), play.times, play.run.identity.limits_s) for play in plays
    ]
    policies = ", ".join(dict.fromkeys(named_policy(run.identity) for run in runs))
    names = dict.fromkeys(key.suite for key in keys)
    assets = [run.identity.assets.name for run in runs]
    suites = {
        suite: _rates(runs, [key for key in keys if key.suite == suite]) for suite in names if len(names) > 1
    }
    labels = [run.label for run in runs]
    conclusion = conclusion or conclude_runs(labels, [run.records for run in runs])
    distributions, quantile_table = _distributions(runs, [play.samples for play in plays])
    curves = {(run.label, run.colour): success_curve(list(run.episodes.values())) for run in runs}
    curve = success_curve_chart(curves)
    summary, texts, tasks = run_tables(runs, rows)
    perturbed = perturbed_rows(conclusion.judged)
    return {
        **given,
        "title": badged(f"{policies} on {', '.join(names)}" if names else policies, *assets),
        "times": "Latency" if any(run.identity.clock != PAUSED for run in runs) else "Times",
        "runs": runs,
        "facts": _shared_facts(runs),
        "conclusion": conclusion.sentence,
        "remarks": conclusion.remarks,
        "badges": list(dict.fromkeys(badge for run in runs for badge in _badges(run))),
        "rates": _rates(runs, keys),
        "clips": _clips(videos),
        "statistics": _sentences(labels[0], conclusion.judged),
        "errors": [(run, episode) for run in runs for episode in run.episodes.values() if episode.error],
        "summary": summary,
        "perturbed": perturbations_table(perturbed) if perturbed else None,
        "texts": texts if len(texts.columns) > 1 else None,
        "suites": suites,
        "kinds": _kinds_table(runs),
        "differing": _differing(runs, keys),
        "tasks": tasks,
        "episodes": _episodes_table(runs, keys),
        "plots": {"curve": chart_group("Success", curve), "quantity": distributions},
        "quantiles": quantile_table,
        "variants": [{"label": run.label, "colour": run.colour} for run in runs],
    }


_POINTS = 101  # points of a distribution: its percentiles


def _distributions(
    runs: Sequence[ReportedRun], samples: Sequence[Mapping[str, Sequence[float]]]
) -> tuple[list[dict[str, Any]], Table]:
    """The cumulative distribution of every quantity, by run, and a table of its quantiles."""
    charts: list[dict[str, Any]] = []
    rows: list[tuple[str, ReportedRun, Sequence[float]]] = []
    for name in dict.fromkeys(name for of_run in samples for name in of_run):
        known = [(run, of_run[name]) for run, of_run in zip(runs, samples, strict=True) if of_run.get(name)]
        rows += [(name, run, values) for run, values in known]
        lines = []
        for run, values in known:
            xs = np.quantile(values, np.linspace(0, 1, _POINTS)).round(4).tolist()
            places = enumerate([min(0.0, xs[0]), *xs], start=-1)
            shares = [(x, max(0.0, 100 * place / (_POINTS - 1))) for place, x in places]
            points = [(x, share, share, share) for x, share in shares]
            lines.append(Line(label=run.label, colour=run.colour, points=points))
        what: Any = {"x": name, "y": "cumulative share (%)", "look": "plain", "is_percent": True}
        charts += chart_group(name, Chart(lines=lines, **what))

    def quantile(name: str) -> Column:
        return Column(name, lambda row: getattr(quantiles(row[2]), name), form=".2f")

    columns = [
        Column("quantity", lambda row: row[0], align="left"),
        Column("run", lambda row: row[1].label, align="left"),
        Column("n", lambda row: len(row[2])),
        *map(quantile, ("p50", "p95", "p99")),
    ]
    return charts, Table(columns=columns, groups=[rows])


def _sample(
    samples: defaultdict[str, list[float]],
    episode: EpisodeResult,
    queries: Sequence[QueryRecord],
    deadline_ms: float | None,
) -> None:
    if episode.success_s is not None:
        samples["time to success (s)"].append(episode.success_s)
    for query in queries:
        if query.latency is not None:
            samples["simulated latency: actions (ms)"].append(query.latency.actions_ms)
            samples["simulated latency: until the next query (ms)"].append(query.latency.busy_ms)
        for stage, milliseconds in query.timings_ms.items():
            samples[f"this machine: {stage} (ms)"].append(milliseconds)
        if _missed(query, deadline_ms):
            samples["deadline misses: query (ms)"].append(query.timings_ms["frame"])
    if episode.simulated_s:
        for each in requested_texts(queries):
            if each.text is not None:
                steps = each.text.delivery_step - each.asked.step
                late_ms = 1e3 * steps * episode.simulated_s / episode.steps
                samples[f"staleness: {each.text.task} (ms)"].append(late_ms)


def _sentences(reference: str, judged: Mapping[str, Judged]) -> list[str]:
    """The verdicts and measures on which the conclusion rests."""
    sentences = []
    for label, (comparison, judgements) in judged.items():
        sentences += judgements.sentences
        parts = []
        for heading, difference in comparison.measures.items():
            between = "" if difference.ci95 is None else f" ({format_between(difference.ci95, digits=2)})"
            parts.append(f"{heading} {format_points(difference.difference, digits=2)}{between}")
        if parts:
            sentences.append(f"{label} minus {reference}: {'; '.join(parts)}.")
    return sentences


def _rates(runs: Sequence[ReportedRun], keys: Sequence[EpisodeKey]) -> list[dict[str, Any]]:
    """The success rate of each run in some episodes, for bars; runs without a graded one are left out."""
    rates = [(run, rate_of([run.episodes[key] for key in keys if key in run.episodes])) for run in runs]
    return [{**vars(rate), "label": run.label, "colour": run.colour} for run, rate in rates if rate]


def _badges(run: ReportedRun) -> list[str]:
    """What a reader of the success rate of a run must know."""
    changes = run.identity.protocol_changes
    return [
        *(["stand-in assets"] if run.identity.assets.name == STANDINS else []),
        *([f"imported from {run.identity.imported.runner}"] if run.identity.imported else []),
        *([f"clock {clock_label(run.identity)}"] if run.identity.clock != PAUSED else []),
        *(
            [", ".join([f"perturbed: {format_perturbations(run.identity.perturb)}", *changes])]
            if run.identity.perturb
            else filter(None, [protocol_label(run.identity)])
        ),
        *([f"{run.label}: {run.note}"] if run.note else []),
    ]


def _clips(videos: Sequence[tuple[ReportedRun, EpisodeResult, str]]) -> list[dict[str, str]]:
    """The best and the worst video of graded episodes; the best alone if all were solved, or none."""

    def clip(which: str, run: ReportedRun, episode: EpisodeResult, video: str) -> dict[str, str]:
        lasted = f"{episode.steps} steps" if episode.simulated_s is None else f"{episode.simulated_s:.1f} s"
        outcome = episode.outcome.value.replace("_", " ")
        return {
            "which": which,
            "run": swatch(run.label, run.colour),
            "css": episode.outcome.value,
            "outcome": f"{outcome} after {lasted}",
            "task": _link(episode),
            "video": video,
            "name": f"{which} video: {run.label}, {outcome}: {episode.language}",
        }

    graded = sorted((each for each in videos if graded_only([each[1]])), key=lambda each: merit(each[1]))
    if graded and solved(graded[0][1]) == solved(graded[-1][1]):  # one outcome: the best shows it
        return [clip("Success" if solved(graded[0][1]) else "Failure", *graded[-1])]
    return [clip("Best", *graded[-1]), clip("Worst", *graded[0])] if graded else []


def _link(episode: EpisodeResult) -> Markup:
    return link(f"#episode={quote(str(episode.key))}", episode.language)


def _shared_facts(runs: Sequence[ReportedRun]) -> dict[str, list[tuple[str | None, str]]]:
    """Facts by name: once if all runs agree, else with each run's label."""
    rows = [facts(run) for run in runs]
    shared: dict[str, list[tuple[str | None, str]]] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [(run.label, row.get(name, "–")) for run, row in zip(runs, rows, strict=True)]
        agree = len({value for _, value in values}) == 1
        shared[name] = [(None, values[0][1])] if agree else [*values]
    return shared


def run_tables(runs: Sequence[ReportedRun], rows: Sequence[Row]) -> tuple[Table, Table, Table]:
    """A row per run with its results, and one with its texts; a row per task."""
    shown: Any = {"html": lambda run: swatch(run.label, run.colour), "align": "left"}
    name = Column("run", lambda run: run, lambda run: run.label, **shown)
    of_runs = list(zip(runs, rows, strict=True))
    details = results.details(run.identity.clock for run in runs)
    summary = results.labelled(name, [*results.MAIN, *details], of_runs)
    texts = results.labelled(name, results.TEXTS, of_runs)
    return summary, texts, _tasks_table(runs)


def _rates_table(
    runs: Sequence[ReportedRun],
    rows: Iterable[tuple[Any, Sequence[Sequence[EpisodeResult]]]],
    first: Column,
    *others: Column,
) -> Table:
    """Success with intervals; a row is a subject, which the other columns show, and each run's episodes."""

    def rate_column(number: int, run: ReportedRun) -> Column:
        def html(rate: Rate) -> Any:
            text = f"{rate.hits} of {rate.of}, {rate.low:.0f} – {rate.high:.0f} %"
            return whisker(rate.percent, rate.interval, text, run.colour)

        return Column(
            run.label,
            lambda row: rate_of(row[1][number]),
            form=lambda rate: f"{rate.hits}/{rate.of}",
            when=lambda _: True,
            html=html,
            css=lambda _: "",
        )

    rates = [rate_column(number, run) for number, run in enumerate(runs)]
    before, *after = (column.of(lambda row: row[0]) for column in (first, *others))
    return Table(columns=[before, *rates, *after], groups=[list(rows)])


def _kinds_table(runs: Sequence[ReportedRun]) -> Table:
    """A row per category and difficulty."""
    of_runs = [kinds_of(run.episodes.values()) for run in runs]
    found = [{name: each for kinds in of_run for name, each in kinds.items()} for of_run in of_runs]
    names = dict.fromkeys(name for of_run in found for name in of_run)
    rows = [(name, [of_run.get(name, []) for of_run in found]) for name in names]
    return _rates_table(runs, rows, Column("kind", str, align="left"))


def _tasks_table(runs: Sequence[ReportedRun]) -> Table:
    """A row per task."""
    tasks = defaultdict[tuple[str, int], list[list[EpisodeResult]]](lambda: [[] for _ in runs])
    for number, run in enumerate(runs):
        for episode in run.episodes.values():
            tasks[episode.key.suite, episode.key.task_id][number].append(episode)
    rows = [(next(e for of_run in task for e in of_run), task) for _, task in sorted(tasks.items())]

    def text(heading: str, value: Callable[[EpisodeResult], str | None]) -> Column:
        return Column(heading, value, align="left", choices=True, when=differ)

    return _rates_table(
        runs,
        rows,
        Column("instruction", lambda episode: episode.instruction, align="left"),
        text("suite", lambda episode: episode.key.suite),
        text("category", lambda episode: episode.category or None),
        Column("difficulty", lambda episode: episode.difficulty),
        Column("task", lambda episode: episode.key.task_id),
    )


def _differ(runs: Sequence[ReportedRun], key: EpisodeKey) -> bool:
    return _paired(runs) and len({solved(each) for each in _graded(runs, key)}) > 1


def _graded(runs: Sequence[ReportedRun], key: EpisodeKey) -> list[EpisodeResult]:
    return graded_only([run.episodes[key] for run in runs if key in run.episodes])


def _paired(runs: Sequence[ReportedRun]) -> bool:
    """Whether the same episode of several runs began in the same initial state."""
    return all(run.identity.names_states for run in runs)


def _differing(runs: Sequence[ReportedRun], keys: Sequence[EpisodeKey]) -> str:
    """In how many episodes runs differ, in a sentence; of two, also which of them solved these."""
    if not _paired(runs):
        return "Initial states of imported episodes are unknown, so rows are not pairs of episodes."
    graded = [key for key in keys if len(_graded(runs, key)) > 1]
    differing = [key for key in graded if _differ(runs, key)]
    of = pluralize(len(graded), "episode")
    of += "" if len(graded) == len(keys) else f" (of {len(keys)}) that are graded in several runs"
    if not differing:
        return f"The runs agree in all {of}." if graded else "No episode is graded in several runs."
    sentence = f"The runs differ in {len(differing)} of {of}"
    if len(runs) == 2:
        alone = (
            f"{sum(solved(r.episodes[key]) for key in differing)} solved by {r.label} alone" for r in runs
        )
        sentence += f": {', '.join(alone)}"
    return f"{sentence}. These come first."


def _episodes_table(runs: Sequence[ReportedRun], keys: Sequence[EpisodeKey]) -> Table:
    """A row per episode, with its result in each run; discordant ones first."""

    def played(key: EpisodeKey) -> list[EpisodeResult]:
        return [run.episodes[key] for run in runs if key in run.episodes]

    def outcome_column(run: ReportedRun) -> Column:
        def outcome(key: EpisodeKey) -> str:
            return run.episodes[key].outcome.value if key in run.episodes else ""

        return Column(
            run.label,
            outcome,
            form=lambda outcome: outcome.replace("_", " ") or "not played",
            align="left",
            css=str,
            choices=True,
        )

    def seconds_column(run: ReportedRun) -> Column:
        def seconds(key: EpisodeKey) -> float | None:
            return run.episodes[key].simulated_s if key in run.episodes else None

        return Column(run.label, seconds, ".2f", unit="s")

    def agreement(key: EpisodeKey) -> str | None:
        if _differ(runs, key):
            return "differ"
        return "agree" if _paired(runs) and len(_graded(runs, key)) > 1 else None

    columns = [
        Column("instruction", lambda key: played(key)[0], lambda e: e.language, html=_link, align="left"),
        *map(outcome_column, runs),
        *map(seconds_column, runs),
        Column("suite", lambda key: key.suite, align="left", choices=True, when=differ),
        Column("task", lambda key: key.task_id),
        Column("init", lambda key: key.init_id),
        Column("seed", lambda key: key.seed, when=differ),
        Column("outcomes", agreement, align="left", choices=True),
    ]
    return Table(columns=columns, groups=[sorted(keys, key=lambda key: not _differ(runs, key))])


def _episode_data(
    episode: EpisodeResult, queries: Sequence[QueryRecord], *, deadline_ms: float | None
) -> dict[str, Any]:
    """One variant of an episode. Times are control steps; `deadline_ms` is the latency budget of a query."""
    texts, truths = _texts(queries), []
    tasks = [task for task in HEADLINES if any(each["task"] == task for each in texts)]
    for query in queries if tasks else ():
        if query.truth is not None:
            told = [(task.replace("_", " "), true_text(task, query.truth)) for task in tasks]
            words = [f"{task.capitalize()}: “{text}”" for task, text in told if text is not None]
            truths.append([query.step, " ".join(words)])
    return {
        "outcome": episode.outcome.value,
        "steps": episode.steps,
        "hz": episode.steps / episode.simulated_s if episode.simulated_s else None,
        "error": episode.error,
        "traceback": episode.traceback,
        "queries": [
            {
                "issued": query.step,
                "actions": query.actions_step,
                "free": query.free_step,
                "skipped": query.skipped,
                "late": _missed(query, deadline_ms),
            }
            for query in queries
        ],
        "spans": [span for query in queries for span in query.executed_spans()],
        "texts": texts,
        "truths": truths,
    }


def _missed(query: QueryRecord, deadline_ms: float | None) -> bool:
    return deadline_ms is not None and query.timings_ms.get("frame", 0.0) > deadline_ms


def _texts(queries: Sequence[QueryRecord]) -> list[dict[str, Any]]:
    found = []
    for each in requested_texts(queries):
        shown: dict[str, Any] = {"task": each.request.task, "requested": each.asked.step}
        if each.text is None:
            state, until = ("cancelled", None) if each.ended is None else ("dropped", each.ended.step)
            found.append({**shown, "state": state, "until": until})
            continue
        shown |= {"state": "finished", "until": each.text.step, "text": each.text.text}
        shown |= {"oracle": each.text.reason == ORACLE}
        for when, truth in zip(("at_request", "on_delivery"), each.truths, strict=True):
            shown[when] = None
            if truth is not None and each.text.task in HEADLINES:
                score = headline_share(each.text.task, each.text.text, truth)
                # None if it cannot be read; an empty text is right if the truth is empty.
                percent = score and (100 * score.hits / score.of if score.of else 100.0)
                shown[when] = {"truth": true_text(each.text.task, truth), "score": percent}
        found.append(shown)
    return found
