"""The benchmark's terminal output: configurations, a progress bar, the tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from eval.bench.row import Row, WorkloadInfo
from eval.bench.table import WIDTH, print_rows
from eval.bench.workloads import plural


def open_console() -> Console:
    """A console for the terminal, or else as wide as the tables."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH)


class Terminal:
    """Terminal output of one benchmark. The bar counts runs: each configuration's repetitions and warm-up."""

    def __init__(self, info: WorkloadInfo, path: Path, *, console: Console | None = None) -> None:
        self._console = console or open_console()
        self._info = info
        self._path = path
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._bar = self._progress.add_task("", total=None)

    def announce(self, configurations: int, *, skipped: int, existing: int) -> None:
        """Print the policy and the number of configurations."""
        info = self._info
        self._print(
            f"[bold]{info.policy}[/], {info.dtype}, weights {info.weights}, on {info.device}: "
            f"{plural(configurations, 'configuration')} → {self._path}"
        )
        if skipped:
            self._print(f"Skipping {plural(skipped, 'configuration')} that the file already has.")
        elif existing:
            self._print(f"The file already has {plural(existing, 'row')}; new ones are appended.")

    def compare_commits(self, existing: Sequence[Row], commit: str | None) -> None:
        """Warn of existing rows that were measured on another commit."""
        if others := [row for row in existing if row.commit != commit]:
            commits = ", ".join(sorted({_short(row.commit) for row in others}))
            self._print(
                f"[red]{plural(len(others), 'row')} from other code ({commits}; this is {_short(commit)}); "
                "without --resume everything is measured again.[/]"
            )

    def start(self, runs: int) -> None:
        """Set the length of the bar."""
        self._progress.update(self._bar, total=runs)

    def workload(self, description: str) -> None:
        """Show the current workload."""
        self._progress.update(self._bar, description=description)

    def advance(self) -> None:
        """Count one finished run."""
        self._progress.advance(self._bar)

    def interrupted(self, rows: int) -> None:
        """Print the number of saved rows, and how to resume."""
        self._print(f"Interrupted: {plural(rows, 'row')} of this run are in {self._path}.")
        self._print("The same command with --output and --resume measures the rest.")

    def report(self, rows: Sequence[Row], pictures: Sequence[Path], *, took_s: float) -> None:
        """Print the tables, the files written, and the seconds taken."""
        self._progress.stop()
        print_rows(rows, self._console)
        self._print(f"Rows: {self._path}")
        if pictures:
            self._print(f"Page and plots: {', '.join(str(path) for path in pictures)}")
        else:
            self._print("No page and no plots: jinja2 or matplotlib is not installed.")
        self._print(f"It took {took_s:.0f} s.")

    def saved(self, profile: Path) -> None:
        """Print the path of the latency profile, and how to use it."""
        self._print(f"Profile: {profile}; `--clock profile:{profile}` charges its latencies.")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _print(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)


def _short(commit: str | None) -> str:
    return "no commit" if commit is None else commit[:10]
