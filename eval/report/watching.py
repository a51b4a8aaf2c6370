"""The state of a running evaluation for its page, from the files in its runs' folders."""

import collections
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from configs.errors import UsageError
from eval.metrics.success import LATENCY_STAGES, graded_only, solved
from eval.records.following import STOPPED, FollowedRun, PlayingEpisode, attempt_began, inside
from eval.records.reader import read_identity
from eval.records.schema import EpisodeResult, Outcome, RunFolder
from eval.report.pages.reported_runs import colours_of, labels_of
from eval.report.pages.run_report import REPORT, rate, rate_of
from eval.report.plain_text import escape_control
from sim_envs.world import EpisodeKey

_POINTS = 200
"""Points of a plot."""
_SHOWN = 20
"""Maximum number of errors, ended episodes and problems on the page."""
_MAX_WORLDS = 64
_LONGEST_TEXT, _LONGEST_TRACEBACK = 500, 20_000
"""Characters."""
_LARGEST = 1e15
_PACE_CHANGES = 64
"""Changes in the number of records from which the remaining time is estimated."""


class WatchedEvaluation:
    """The runs of an evaluation; `state` reads what was added to their files.

    Attributes:
        runs: The variants, the reference first.
    """

    def __init__(self, path: Path) -> None:
        """Find the run in a folder, and the other variants of its evaluation in the same parent folder.

        Raises:
            UsageError: It is not a run.
        """
        _require_run(path)
        self.runs, self._absent = _variants(path)
        identities = [run.identity for run in self.runs]
        self._labels, self._colours = labels_of(identities), colours_of(identities)
        self._pace: collections.deque[tuple[float, int]] = collections.deque(maxlen=_PACE_CHANGES)
        self._attempt = -1.0
        self._state: dict[str, Any] = {}
        self.state()  # the first page need not wait for it

    @property
    def title(self) -> str:
        """The policy and the suites."""
        identity = self.runs[0].identity
        return f"{identity.policy} on {', '.join(identity.suite_hashes)}"

    def state(self) -> dict[str, Any]:
        """The page's data from the current files: JSON types without control characters."""
        changed = [run.refresh() for run in self.runs]
        has_report = inside(self.runs[0].folder.path, f"{REPORT}/index.html") is not None
        if any(changed) or has_report != self._state.get("has_report"):
            self._state = escape_control(self._read_state(has_report=has_report))
        return self._state

    def _read_state(self, *, has_report: bool) -> dict[str, Any]:
        recorded = sum(len(run.episodes) for run in self.runs)
        planned = sum(run.identity.n_planned for run in self.runs)
        statuses = [run.status for run in self.runs]
        unfinished = [
            each for each in (STOPPED, "running", *statuses) if each in statuses and each != "complete"
        ]
        status = unfinished[0] if unfinished else "complete"
        left_s = self._left_s(recorded, planned)
        failed = [[each for each in run.episodes.values() if each.error is not None] for run in self.runs]
        return {
            "status": status,
            "recorded": recorded,
            "planned": planned,
            "left_s": left_s if status == "running" else None,
            "has_report": has_report,
            "folders": [str(run.folder.path) for run in self.runs],
            "runs": [{**self._name(number), **_row(run)} for number, run in enumerate(self.runs)],
            "playing": [
                {**self._name(number), **_shown_playing(number, run, episode)}
                for number, run in enumerate(self.runs)
                for episode in run.playing
            ][:_MAX_WORLDS],
            "ended": self._newest([list(run.episodes.values()) for run in self.runs], _ended),
            "errors": self._newest(failed, _error),
            "n_errors": sum(map(len, failed)),
            "problems": [*self._absent, *(line for run in self.runs for line in run.problems)][:_SHOWN],
            "plots": self._plots(),
        }

    def _name(self, number: int) -> dict[str, str]:
        return {"label": self._labels[number], "colour": self._colours[number]}

    def _left_s(self, recorded: int, planned: int) -> float | None:
        """Estimated seconds from the last record to the end, at this attempt's pace; None if unknown."""
        manifest = self.runs[0].manifest
        began = attempt_began(manifest)
        if began != self._attempt:
            self._attempt = began
            self._pace.clear()
            if len(manifest.get("attempts", ())) == 1:
                self._pace.append((began, 0))
        if not self._pace or self._pace[-1][1] != recorded:
            self._pace.append((max(run.recorded_at for run in self.runs), recorded))
        (since, before), (until, now) = self._pace[0], self._pace[-1]
        if now <= before or until <= since:
            return None
        return round((planned - recorded) * (until - since) / (now - before), 1)

    def _newest(
        self, episodes: Sequence[Sequence[EpisodeResult]], shown: Callable[[EpisodeResult], dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """The last records of all variants, interleaved."""
        turns = itertools.zip_longest(*(reversed(of_run[-_SHOWN:]) for of_run in episodes))
        rows = [
            {**self._name(number), "episode": _format_episode(result.key), **shown(result)}
            for turn in turns
            for number, result in enumerate(turn)
            if result is not None
        ]
        return rows[:_SHOWN]

    def _plots(self) -> dict[str, Any]:
        """Success so far, and latency, over the graded episodes in the order of their records."""
        graded = [graded_only(list(run.episodes.values())) for run in self.runs]
        longest = max(map(len, graded))
        if not longest:
            return {"success": None, "latency": None}
        x = sorted({round(each) for each in np.linspace(1, longest, _POINTS).tolist()})
        plots = {
            "success": (_success, {"y_label": "solved so far (%)", "unit": "%", "most": 100}),
            "latency": (_latency, {"y_label": "until the actions (ms)", "unit": "ms", "most": None}),
        }
        return {
            name: {
                "x_label": "graded episodes",
                "x": x,
                "counts": True,
                **axis,
                "series": [{**self._name(at), **curve(each, x)} for at, each in enumerate(graded)],
            }
            for name, (curve, axis) in plots.items()
        }


def _require_run(path: Path) -> None:
    """Reject a path without a folder, and a folder of runs."""
    if not path.is_dir():
        raise UsageError(f"no folder {str(path)!r}; give the folder of a run, such as runs/RUN")
    if not RunFolder(path).manifest_path.exists():
        runs = [each.parent for each in sorted(path.glob("*/manifest.json")) if each.parent.name[0] != "."]
        if runs:
            raise UsageError(f"{path} is a folder of runs; give one of them, such as {runs[-1]}")


def _variants(path: Path) -> tuple[list[FollowedRun], list[str]]:
    """The variants of the run's evaluation in the same folder, and one line on each that is not shown."""
    given = FollowedRun(path)
    here = path.resolve()
    names = given.identity.variants
    if here.name not in names:
        return [given], []
    runs, absent = [], []
    for name in names:
        if name == here.name:
            runs.append(given)
            continue
        try:
            runs.append(FollowedRun(_sibling(here, name, names)))
        except UsageError as error:
            absent.append(f"variant {name} is not shown: {error}")
    return runs, absent


def _sibling(run: Path, name: str, variants: Sequence[str]) -> Path:
    """The folder of another variant.

    Raises:
        UsageError: It is not in the same parent folder, or belongs to another evaluation.
    """
    folder = run.parent / name
    if folder.parent != run.parent or name == ".." or folder.is_symlink():
        raise UsageError(f"{name!r} is not a folder in {run.parent}")
    if list(read_identity(RunFolder(folder)).variants) != list(variants):
        raise UsageError(f"{folder} belongs to another evaluation")
    return folder


def _row(run: FollowedRun) -> dict[str, Any]:
    episodes = list(run.episodes.values())
    graded = graded_only(episodes)
    return {
        "recorded": len(episodes),
        "planned": run.identity.n_planned,
        "solved": rate_of(episodes),
        "n_errors": len(episodes) - len(graded),
        "n_invalid_actions": sum(each.outcome is Outcome.INVALID_ACTION for each in graded),
        "latency_ms": {
            stage: {name: _median(_stage(each, stage, name) for each in graded) for name in ("p50", "p95")}
            for stage in LATENCY_STAGES
        },
    }


def _format_episode(key: EpisodeKey) -> str:
    return _cut(f"{key.suite}, task {key.task_id}, init {key.init_id}, seed {key.seed}")


def _ended(result: EpisodeResult) -> dict[str, Any]:
    return {
        "task": _cut(result.language),
        "outcome": result.outcome.value,
        "simulated_s": _number(result.simulated_s),
        "wall_s": _number(result.wall_s),
    }


def _error(result: EpisodeResult) -> dict[str, Any]:
    traceback = result.traceback or ""
    return {
        "outcome": result.outcome.value,
        "error": _cut(result.error or ""),
        "traceback": traceback[-_LONGEST_TRACEBACK:],
    }


def _shown_playing(number: int, run: FollowedRun, episode: PlayingEpisode) -> dict[str, Any]:
    query, key = episode.query, episode.key
    timings = _mapping(query.get("timings_ms"))
    world = _mapping(_mapping(run.manifest.get("protocol")).get(key.suite))
    steps = _number(query.get("step")), _number(query.get("steps"))
    return {
        "episode": _format_episode(key),
        "picture": f"picture/{number}/{quote(str(key), safe='')}.jpg?at={episode.pictured}",
        "step": None if None in steps else sum(each for each in steps if each is not None),
        "max_steps": _number(_mapping(world.get("suite")).get("max_steps")),
        "latency_ms": {stage: _number(timings.get(stage)) for stage in LATENCY_STAGES},
    }


def _success(graded: Sequence[EpisodeResult], x: Sequence[int]) -> dict[str, list[float | None]]:
    hits = np.cumsum([solved(each) for each in graded])
    rates = [rate(int(hits[n - 1]), n) if n <= len(graded) else None for n in x]
    return {
        name: [None if each is None else round(each[part], 2) for each in rates]
        for name, part in (("y", "percent"), ("low", "low"), ("high", "high"))
    }


def _latency(graded: Sequence[EpisodeResult], x: Sequence[int]) -> dict[str, list[float | None]]:
    """Median latency of each episode, with a band to its 95th percentile."""
    shown = [graded[count - 1] if count <= len(graded) else None for count in x]
    median = [None if each is None else _stage(each, "action", "p50") for each in shown]
    high = [None if each is None else _stage(each, "action", "p95") for each in shown]
    return {"y": median, "low": median, "high": high}


def _stage(result: EpisodeResult, stage: str, quantile: str) -> float | None:
    return _number(result.latency_ms.get(stage, {}).get(quantile))


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _number(float(np.median(known))) if known else None


def _number(value: Any) -> float | None:
    """A number that a page can show; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGEST:
        return None
    return round(value, 3)


def _mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
