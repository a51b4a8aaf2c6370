"""How many errors of the program a verdict, or a place in a ranking, survives."""

ERROR_BUDGET = 2.0
"""Percent of a run's episodes. Errors are not drawn by lot: were they all failures, so many points would be
missing, and that must be little beside what is to be told apart."""


def exceeds(n_errors: int, n_episodes: int, *, budget: float = ERROR_BUDGET) -> bool:
    """Whether more than `budget` percent of the episodes ended in an error."""
    return 100 * n_errors > budget * n_episodes
