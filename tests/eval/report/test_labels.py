"""Shortened instructions fit, and rows that differ still do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.report.table import shortened
from sim_envs.libero.tasks import list_tasks


@pytest.mark.parametrize("suite", ["libero_object", "libero_spatial", "libero_goal", "libero_10"])
@pytest.mark.parametrize("width", [16, 22, 30])
def test_the_tasks_of_a_suite_can_be_told_apart_in_few_characters(suite, width):
    labels = shortened([task.language for task in list_tasks(suite)], width)
    assert len(set(labels)) == 10
    assert max(map(len, labels)) <= width


def test_what_all_share_is_left_out_and_what_is_too_long_loses_its_middle():
    assert shortened(["pick up the milk now", "pick up the ketchup now"], 10) == ["…milk…", "…ketchup…"]
    assert shortened(["open the top drawer of the cabinet"], 20) == ["open the…the cabinet"]


@given(st.lists(st.text("ab ", max_size=30), max_size=5), st.integers(2, 40))
def test_any_labels_fit(labels, width):
    short = shortened(labels, width)
    assert len(short) == len(labels)
    assert all(len(label) <= width for label in short)
    if all(len(label) <= width for label in labels):
        assert short == labels
