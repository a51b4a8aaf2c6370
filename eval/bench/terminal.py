"""What a person sees while the benchmark runs: what there is to do, a bar, the tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from eval.bench.row import Row, Setting
from eval.bench.table import WIDTH, print_rows


def open_console() -> Console:
    """The terminal; where there is none, as wide as the tables are."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH)


class Terminal:
    """One run's terminal. Its bar counts turns: of every configuration its repetitions, and the warm-up."""

    def __init__(self, setting: Setting, path: Path, *, console: Console | None = None) -> None:
        self._console = console or open_console()
        self._setting = setting
        self._path = path
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._bar = self._progress.add_task("", total=None)

    def announce(self, configurations: int, *, skipped: int, there: int) -> None:
        """Say what will be done, before it takes its time."""
        what = self._setting
        self._say(
            f"[bold]{what.policy}[/], {what.dtype}, weights {what.weights}, on {what.device}: "
            f"{_counted(configurations, 'configuration')} → {self._path}"
        )
        if skipped:
            self._say(f"{_counted(skipped, 'configuration')} of the same settings are there and left out.")
        elif there:
            self._say(f"{_counted(there, 'row')} are there already; new ones are appended.")

    def compare_commits(self, there: Sequence[Row], commit: str | None) -> None:
        """Say if rows that are there already are of other code than this."""
        if others := [row for row in there if row.commit != commit]:
            which = ", ".join(sorted({_short(row.commit) for row in others}))
            self._say(
                f"[red]Of other code ({which}; this is {_short(commit)}): {_counted(len(others), 'row')}; "
                "without --resume all are measured anew.[/]"
            )

    def expect(self, turns: int) -> None:
        """How many turns there are altogether."""
        self._progress.update(self._bar, total=turns)

    def workload(self, description: str) -> None:
        """What is under way."""
        self._progress.update(self._bar, description=description)

    def turn(self) -> None:
        """One turn is over."""
        self._progress.advance(self._bar)

    def interrupted(self, rows: int) -> None:
        """Say what is safe and how to go on."""
        self._say(f"Interrupted: {_counted(rows, 'row')} of this run are in {self._path}.")
        self._say("The same command with --output and --resume measures the rest.")

    def report(self, rows: Sequence[Row], written: Sequence[Path], *, took_s: float) -> None:
        """The tables, where everything is, and how many seconds it took."""
        self._progress.stop()
        print_rows(rows, self._console)
        self._say(f"Rows: {self._path}")
        if written:
            self._say(f"Plots: {', '.join(str(path) for path in written)}")
        else:
            self._say("No plots: that takes matplotlib, which is not installed.")
        self._say(f"It took {took_s:.0f} s.")

    def saved(self, profile: Path) -> None:
        """Where the latency profile is, and what it is for."""
        self._say(f"Profile: {profile}; `--clock profile:{profile}` charges its latencies.")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)


def _short(commit: str | None) -> str:
    return "no commit" if commit is None else commit[:10]


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
