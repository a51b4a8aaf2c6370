"""Ranks of runs over the same episodes; statistically tied runs share a rank."""

import dataclasses
from collections.abc import Mapping, Sequence

from eval.metrics.statistics import mcnemar_exact
from eval.records.schema import Outcome
from sim_envs.world import EpisodeKey

_LEVEL = 0.05

Outcomes = Mapping[EpisodeKey, Outcome]
"""Outcomes of a run's episodes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rank:
    """The ranks that the data allow for a run.

    Attributes:
        best: One plus the number of significantly better runs: the rank that is shown.
        worst: The number of runs minus that of significantly worse ones.
    """

    best: int
    worst: int

    def __str__(self) -> str:
        return str(self.best) if self.best == self.worst else f"{self.best}–{self.worst}"


def ranks(runs: Sequence[Outcomes]) -> list[Rank]:
    """The rank of each run.

    Chatbot Arena's rule with a paired test: a run is better if it solves significantly more of the common
    episodes (McNemar's exact test at 5 %).
    """
    better = [[_is_better(one, other) for other in runs] for one in runs]
    return [
        Rank(best=1 + sum(row[place] for row in better), worst=len(runs) - sum(better[place]))
        for place in range(len(runs))
    ]


def _is_better(one: Outcomes, other: Outcomes) -> bool:
    graded = [
        (outcome is Outcome.SUCCESS, other[key] is Outcome.SUCCESS)
        for key, outcome in one.items()
        if Outcome.ERROR not in (outcome, other.get(key, Outcome.ERROR))
    ]
    only_one, only_other = graded.count((True, False)), graded.count((False, True))
    return only_one > only_other and mcnemar_exact(only_one, only_other) < _LEVEL
