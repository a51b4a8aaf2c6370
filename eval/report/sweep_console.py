"""Terminal output of a sweep: progress and errors. `run_sweep` prints the results."""

from collections.abc import Sequence
from itertools import chain

from rich.markup import escape

from configs.cli import pluralize
from eval.metrics.success import Results
from eval.report.console import EvaluationConsole, success_rate
from sim_envs.world import EpisodeKey


class SweepConsole(EvaluationConsole):
    """Shows progress and errors of a sweep."""

    def began(self, world: int, variant: int, key: EpisodeKey) -> None:
        """Show nothing: a sweep has too many cells to name the running ones."""

    def conclude(self, results: Sequence[Results]) -> None:
        """Print nothing: the results of a sweep are printed together."""

    def _heading(self) -> str:
        cells = pluralize(len(self._runs), "cell")
        episodes = pluralize(len(self._plan.keys), "episode")
        return f"{self._policy}: {cells} of {episodes} each → {escape(self._where())}"

    def _where(self) -> str:
        return str(self._runs[0].folder.path.parent)

    def _status(self) -> str:
        """Success rate over all cells so far, number of errors, episodes per hour."""
        rate = f"{success_rate(list(chain.from_iterable(self._results)))} solved"
        return ", ".join([rate, *self._errors_and_pace()])
