"""The error rate up to which verdicts and rankings are given."""

ERROR_BUDGET = 2.0
"""Percent of a run's episodes. If all errors were failures, the success rate would be this much lower, which
must be small beside the differences to be detected."""


def exceeds(n_errors: int, n_episodes: int, *, budget: float = ERROR_BUDGET) -> bool:
    """Whether more than `budget` percent of the episodes ended in an error."""
    return 100 * n_errors > budget * n_episodes
