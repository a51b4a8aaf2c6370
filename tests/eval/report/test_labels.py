"""A run is named after its policy, or after what else tells it apart from the runs beside it."""

import pytest

from eval.records.reader import read_identity
from eval.report.labels import labels_of
from tests.eval.factory import RunBuilder

ACTIONS, ISOLATED = {"mode": "actions"}, {"mode": "isolated"}
A, B = {"policy": "mine", **ACTIONS}, {"policy": "noop", **ACTIONS}
CLASSES = [{"policy": "P", "config": {"policy": f"{file}.py:P"}} for file in ("old", "new")]
SCALED = [{"policy": "P", "config": {"policy": "p.py:P", "policy_kwargs": {"scale": x}}} for x in (1, 2)]


@pytest.mark.parametrize(
    ("runs", "labels"),
    [
        ([A], ["mine"]),
        ([{}], ["tiny"]),
        ([A, B], ["mine", "noop"]),
        ([A, {}], ["mine", "tiny"]),  # modes differ, too, but one is not an alternative to the other
        ([ISOLATED, {}], ["isolated", "unified"]),
        ([ISOLATED, {}, B], ["tiny · isolated", "tiny · unified", "noop"]),
        (CLASSES, ["old.py:P", "new.py:P"]),
        (SCALED, ["scale=1", "scale=2"]),
        ([{"weights_sha256": "ab" * 32}, {"random_weights": True}], ["weights abababab", "random weights"]),
        (
            [
                {"weights_sha256": "ab" * 32, "config": {"dtype": None, "tokens_per_frame": 5}},
                {"weights_sha256": "ab" * 32, "config": {"dtype": "bfloat16", "tokens_per_frame": 2}},
                {"config": {"random_weights": True, "deadline_ms": 90.0}},
            ],  # no more than tells them apart
            ["weights abababab · its own dtype", "weights abababab · bfloat16", "random weights"],
        ),
        ([{"config": {"tokens_per_frame": k}} for k in (1, 5)], ["k = 1", "k = 5"]),
        ([{"config": {"clock": clock}} for clock in ("paused", "fixed:9")], ["paused", "fixed:9"]),
        ([{"config": {"seed": seed}} for seed in (7, 8)], ["seed 7", "seed 8"]),
        ([{"config": {"init_ids": ids}} for ids in ([], [1, 2])], ["init ids as by default", "init ids 1 2"]),
        ([{}, {}], ["0", "1"]),  # their folders
        ([{**A, "run_id": "x"}] * 2, ["mine (1)", "mine (2)"]),
    ],
)
def test_labels_say_what_differs(runs, labels, tmp_path):
    folders = [RunBuilder.at(tmp_path / str(number), **run).folder for number, run in enumerate(runs)]
    assert labels_of([read_identity(folder) for folder in folders]) == labels
