"""The error rate up to which verdicts and rankings are given."""

ERROR_BUDGET = 2.0
"""Percent of a run's episodes: by how much counting errors as failures could lower the success rate."""


def exceeds(n_errors: int, n_episodes: int, *, budget: float = ERROR_BUDGET) -> bool:
    """Whether more than `budget` percent of the episodes ended in an error."""
    return 100 * n_errors > budget * n_episodes
