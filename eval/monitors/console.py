"""Terminal output of an evaluation while it goes on: heading, progress, errors."""

import datetime as dt
import functools
import time
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Self

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from configs.assets import badged
from configs.console import TextConsole
from configs.paths import shown
from contracts.clock import PAUSED
from contracts.episode import EpisodeKey, EpisodeResult, Outcome
from contracts.errors import pluralize
from contracts.monitor import Monitor
from contracts.motion import Static
from contracts.perturbation import format_perturbations
from eval.metrics.rows import RunRows, rate_of
from eval.metrics.statistics import Rate
from eval.records.reader import read_identity
from eval.records.run_folders import Run, SweepFolder, policy_name
from eval.report.labels import labels_of, protocol_label
from eval.report.table import clock_label, percentage
from eval.rollout.plan import EpisodePlan
from videos.mp4 import REMEDY, encoder_problem

_BAR = 16  # width of the bar; leaves room for three modes in 80 columns
_PACE_S = 300.0  # window of the estimate of the remaining time
_REPORT_EVERY_S = 60.0  # interval of progress lines where output is not a terminal
_FIRST_ESTIMATE = 3  # episodes after which the first of them is printed


class EvaluationConsole(Monitor[RunRows]):
    """Shows progress, errors and results of an evaluation.

    `report` asks for a page in the first run's folder, and `verbose` for details before the last screen.
    """

    def __init__(
        self, runs: Sequence[Run], plan: EpisodePlan, *, report: bool = False, verbose: bool = False
    ) -> None:
        self._rich = TextConsole()
        self._runs = runs
        self._policy = escape(policy_name(runs[0].config.policy))
        self._plan = plan
        self._assets = [suite.assets.name for suite in plan.suites.values() if suite.assets]
        self._report, self._verbose = report, verbose
        self._results: list[list[EpisodeResult]] = [[] for _ in runs]
        self._without_truth: set[str] = set()
        self._rich.print(self._heading(), soft_wrap=not self._rich.is_terminal)  # a line in a log
        self._print(f"→ {self._where()}")
        self._progress = Progress(
            BarColumn(bar_width=_BAR, table_column=Column(no_wrap=True)),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[status]}", table_column=Column()),  # wraps for many modes
            console=self._rich,
            speed_estimate_period=_PACE_S,
        )
        self._bar = self._progress.add_task("", total=len(plan.keys) * len(runs), status="")
        self._playing: dict[int, tuple[int, EpisodeKey, float]] = {}
        self._live = Live(console=self._rich, get_renderable=lambda: Group(self._progress, *self._worlds()))
        self._reported = time.monotonic()
        self._began = time.perf_counter()
        self._played = 0
        self._has_lost_video = False

    @functools.cached_property
    def _labels(self) -> list[str]:
        return labels_of([read_identity(run.folder) for run in self._runs])

    def _heading(self) -> str:
        modes = " and ".join(f"[bold]{mode}[/]" for mode in dict.fromkeys(r.config.mode for r in self._runs))
        how = f" in mode {modes}" if any(run.config.mode != "actions" for run in self._runs) else ""
        each = " each" if len(self._runs) > 1 else ""
        tasks = Counter(task.protocol.name for task in self._plan.tasks)
        covered = ", ".join(f"{pluralize(count, 'task')} of {escape(name)}" for name, count in tasks.items())
        episodes = f"{pluralize(len(self._plan.keys), 'episode')}{each} ({covered})"
        names = ", ".join(dict.fromkeys(self._assets))
        assets = f", assets [bold]{escape(badged(names, *self._assets))}[/]" if names else ""
        config = self._runs[0].config
        clock = "" if config.clock == PAUSED else f", clock {escape(clock_label(config))}"
        motion = "" if config.motion in (None, Static()) else f", motion {config.motion}"
        sets = dict.fromkeys(run.config.perturb for run in self._runs)
        changes = (format_perturbations(each) if each else "control" for each in sets)
        perturbed = f", {', '.join(changes)}" if any(sets) else ""
        protocol = protocol_label(read_identity(self._runs[0].folder))
        parts = [
            f"[bold]{self._policy}[/]{how}",
            f"{episodes}{assets}{clock}{motion}{perturbed}",
            escape(protocol),
        ]
        return ", ".join(filter(None, parts))

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        if self._rich.is_terminal:  # files get a line a minute instead
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._playing.clear()
        self._live.stop()

    def began(self, world: int, variant: int, key: EpisodeKey) -> None:
        """Show the episode of a world."""
        self._playing[world] = variant, key, time.perf_counter()

    def episode(self, variant: int, result: EpisodeResult) -> None:
        """Advance the bar, or print a line once a minute; print errors at once."""
        self._results[variant].append(result)
        self._played += 1
        for world, at in list(self._playing.items()):
            if at[:2] == (variant, result.key):
                del self._playing[world]
        self._progress.update(self._bar, advance=1, status=self._status())
        if result.error is not None:
            # A policy's message is not markup: `[/INST]` is part of a prompt.
            outcome = result.outcome.value.replace("_", " ")
            self._rich.print(f"[red]{outcome}[/] in {result.key}: {escape(result.error)}")
        if result.truth_error is not None and result.truth_error not in self._without_truth:
            self._without_truth.add(result.truth_error)
            why = escape(result.truth_error)
            line = f"[yellow]no ground truth[/] in {result.key}, so texts are not graded: {why}"
            self._rich.print(line, soft_wrap=True)
        # What is wrong with the machine was said at the start.
        if result.video_error not in (None, encoder_problem()) and not self._has_lost_video:
            self._has_lost_video = True
            self._print(
                f"warning: no video of {result.key} ({result.video_error}), and perhaps of later episodes; "
                f"they are graded all the same. If ffmpeg is at fault, {REMEDY}"
            )
        (bar,) = self._progress.tasks
        is_due = self._played == _FIRST_ESTIMATE or time.monotonic() - self._reported >= _REPORT_EVERY_S
        if is_due and not bar.finished and not self._rich.is_terminal:
            self._reported = time.monotonic()
            left = "" if bar.time_remaining is None else f", {dt.timedelta(seconds=bar.time_remaining)} left"
            self._print(
                f"{bar.completed:.0f} of {pluralize(int(bar.total or 0), 'episode')}, {self._status()}{left}"
            )

    def resumed(self, recorded: Sequence[Sequence[EpisodeResult]]) -> None:
        """Count episodes recorded earlier, which say nothing about the time left."""
        for results, earlier in zip(self._results, recorded, strict=True):
            results.extend(earlier)
        completed = sum(map(len, self._results))
        self._progress.reset(self._bar, completed=completed, status=self._status())
        if not self._rich.is_terminal:  # where the bar shows it
            self._print(self._recorded())

    def interrupted(self) -> None:
        """Print what is recorded and how to resume."""
        again = "The same command with --resume completes them."
        self._print(f"Interrupted: {self._recorded()} in {self._where()}. {again}")

    def conclude(self, results: Sequence[RunRows]) -> None:
        """Print the last screen, after the details if they are asked for."""
        from eval.report.last_screen import show_last_screen  # the first step need not wait for reports

        show_last_screen(self._rich, self._runs, results, report=self._report, verbose=self._verbose)

    def _print(self, line: str) -> None:
        self._rich.print(line, soft_wrap=True, markup=False)

    def _recorded(self) -> str:
        total = len(self._plan.keys) * len(self._runs)
        recorded = sum(map(len, self._results))
        are = "is" if recorded == 1 else "are"
        return f"{recorded} of {pluralize(total, 'episode')} {are} recorded"

    def _where(self) -> str:
        return ", ".join(shown(run.folder.path) for run in self._runs)

    def _worlds(self) -> list[Text]:
        now, lines = time.perf_counter(), []
        for world, (variant, key, began) in sorted(dict(self._playing).items()):
            run = f", {self._labels[variant]}" if len(self._runs) > 1 else ""
            lasts = dt.timedelta(seconds=int(now - began))
            lines.append(f"  world {world}: {key.suite} task {key.task_id}, init {key.init_id}{run}, {lasts}")
        return [Text(line) for line in lines]

    def _status(self) -> str:
        names = self._labels if len(self._runs) > 1 else ["success"]
        has_room = len(self._runs) == 1 or not self._rich.is_terminal
        rates = []
        for name, results in zip(names, self._results, strict=True):
            rate = rate_of(results)
            between = f" ({rate.low:.0f}–{rate.high:.0f})" if rate and has_room else ""
            rates.append(f"{name} {_percent(rate)}{between}")
        return ", ".join([*rates, *self._errors_and_pace()])

    def _errors_and_pace(self) -> list[str]:
        errors = sum(result.outcome is Outcome.ERROR for results in self._results for result in results)
        hours = max(time.perf_counter() - self._began, 1e-3) / 3600
        return [
            *([pluralize(errors, "error")] if errors else []),
            *([f"{self._played / hours:.0f} episodes/h"] if self._played else []),
        ]


class SweepConsole(EvaluationConsole):
    """Shows progress and errors of a sweep; writes and prints its results at the end."""

    def began(self, world: int, variant: int, key: EpisodeKey) -> None:
        """Show nothing: a sweep has too many cells to name the running ones."""

    def conclude(self, results: Sequence[RunRows]) -> None:
        """Write the results of the sweep, and print its table."""
        from eval.report.sweep import conclude, show_sweep  # see above

        folder = SweepFolder(self._runs[0].folder.path.parent)
        show_sweep(folder, conclude(folder, results))

    def _heading(self) -> str:
        cells = pluralize(len(self._runs), "cell")
        episodes = pluralize(len(self._plan.keys), "episode")
        return f"{self._policy}: {cells} of {episodes} each"

    def _where(self) -> str:
        return shown(self._runs[0].folder.path.parent)

    def _status(self) -> str:
        rate = rate_of(list(chain.from_iterable(self._results)))
        return ", ".join([f"{_percent(rate)} solved", *self._errors_and_pace()])


def _percent(rate: Rate | None) -> str:
    return percentage(rate.percent if rate else None, 0, " %")
