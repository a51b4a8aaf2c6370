"""The validation of the clock: errors of a prediction, and the table of the docs."""

import json
from pathlib import Path

import numpy as np

from benchmarks.clock import RESULTS, compared, table
from configs.latency import Latency
from eval.records.query_logs import QueryRecord

_DOCS = Path(__file__).parents[2] / "docs/clocks.md"


def _episode(*busy_ms):
    return [
        QueryRecord(actions=np.zeros((1, 1)), timings_ms={}, latency=Latency(actions_ms=ms / 2, busy_ms=ms))
        for ms in busy_ms
    ]


def test_errors_are_of_medians_by_query_and_of_sums_by_episode_over_the_common_queries():
    found = compared(
        observed=[_episode(100, 200, 400), _episode(200)], predicted=[_episode(90, 220), _episode(220)]
    )
    assert found["queries"] == 3
    assert found["query"] == {"observed_ms": 200, "predicted_ms": 220, "error_percent": 10}
    assert found["actions"] == {"observed_ms": 100, "predicted_ms": 110, "error_percent": 10}
    assert found["episode"] == {"observed_ms": 250, "predicted_ms": 265, "error_percent": 6}


def test_the_docs_have_the_table_of_the_record():
    row = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert table(row) in _DOCS.read_text(encoding="utf-8")
    assert row["load_average"]
