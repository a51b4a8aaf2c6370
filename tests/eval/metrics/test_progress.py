"""Progress is reported apart from success exactly where it says more."""

import dataclasses

import numpy as np
import pytest

from eval.metrics.success import summarize_progress
from tests.eval.factory import episode, key

NOTHING = {"pc_progress": None, "pc_progress_ci95": None}


def episodes(*pairs):
    """Episodes by whether they succeeded, and their progress."""
    return [
        dataclasses.replace(
            episode(key(number), outcome="success" if success else "timeout"),
            progress=progress,
        )
        for number, (success, progress) in enumerate(pairs)
    ]


def test_it_is_not_reported_where_it_is_success():
    assert summarize_progress(episodes((True, 1.0), (False, 0.0))) == NOTHING
    assert summarize_progress([]) == NOTHING


def test_it_is_the_mean_with_an_interval_around_it():
    shares = np.linspace(0, 1, 21)
    summary = summarize_progress(episodes(*((share == 1, float(share)) for share in shares)))
    assert summary["pc_progress"] == pytest.approx(50)
    low, high = summary["pc_progress_ci95"]
    assert 30 < low < 45
    assert 55 < high < 70
