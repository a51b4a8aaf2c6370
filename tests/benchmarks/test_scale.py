"""What a bigger machine would do follows from the parts of one world's time."""

import json

import pytest

from benchmarks.scale import model
from benchmarks.scale_run import shares

SERIAL = {
    "episodes_per_hour": 3600.0,
    "episodes_ended": 2,
    "queries": 20,
    "shares": {"physics": 0.4, "rendering": 0.3, "model": 0.2, "waiting, reset, records": 0.1},
}


def test_worlds_are_added_up_to_the_cores_and_up_to_what_a_gpu_serves():
    found = model(SERIAL, cores=2)
    assert (found["world_ms_per_query"], found["model_ms_per_query"]) == (80, 20)
    assert found["episodes_per_hour_here"] == {1: 3600, 2: 7200, 4: 7200}
    gpu = found["episodes_per_hour_on_16_cores_and_a_gpu"]
    assert gpu[4] == pytest.approx(4 * gpu[1], abs=4)
    assert gpu[30] == gpu[15] <= found["most_that_the_gpu_serves"]


def test_shares_are_of_the_episodes_that_count(tmp_path):
    for name, advance in (("first", 9000.0), ("second", 500.0)):
        timings = {"advance": advance, "observe": 300.0, "frame": 100.0}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"timings_ms": timings}) + "\n")
    assert shares([tmp_path / "second.jsonl"], wall_s=1.0) == pytest.approx(
        {"physics": 0.5, "rendering": 0.3, "model": 0.1, "waiting, reset, records": 0.1}
    )
