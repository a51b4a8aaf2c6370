"""Which initial states a trained policy is tested on, and which it was developed on."""

from eval.bundle.results import Result

TEST_STATES = range(500_000, 500_050)
"""Drawn states of every task that nobody collects in, and nobody looks at before training is over."""


def is_test(result: Result) -> bool:
    """Whether a result is of reserved states alone, in wordings that training never saw."""
    return result.options.get("wordings") == "held_out" and set(result.init_ids) <= set(TEST_STATES)
