"""Ranks of runs over the same episodes; statistically tied runs share a rank."""

from collections.abc import Mapping, Sequence

from eval.metrics.statistics import mcnemar_exact
from eval.records.schema import Outcome
from sim_envs.world import EpisodeKey

_LEVEL = 0.05

Outcomes = Mapping[EpisodeKey, Outcome]
"""Outcomes of a run's episodes."""


def ranks(runs: Sequence[Outcomes]) -> list[int]:
    """One plus the number of significantly better runs, for each run.

    The rule of the large public leaderboards (Chatbot Arena's), with the test that pairs deserve: better is
    who solves more of the common episodes, by McNemar's exact test at 5 %.
    """
    return [1 + sum(_is_better(other, run) for other in runs if other is not run) for run in runs]


def _is_better(one: Outcomes, other: Outcomes) -> bool:
    graded = [
        (outcome is Outcome.SUCCESS, other[key] is Outcome.SUCCESS)
        for key, outcome in one.items()
        if Outcome.ERROR not in (outcome, other.get(key, Outcome.ERROR))
    ]
    only_one, only_other = graded.count((True, False)), graded.count((False, True))
    return only_one > only_other and mcnemar_exact(only_one, only_other) < _LEVEL
