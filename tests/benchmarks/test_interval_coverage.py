"""The kept rates are those that the benchmark simulates, and as good as the documents say."""

import json
from pathlib import Path

from benchmarks.interval_coverage import simulate

KEPT = json.loads((Path(__file__).parents[2] / "benchmarks/results/interval_coverage.json").read_text())
RATES = KEPT["coverage"]


def test_recorded_rates_are_those_that_are_simulated():
    what = ("what", "of", "episodes")
    assert [[rate[name] for name in what] for rate in simulate(0.0)] == [
        [rate[name] for name in what] for rate in RATES
    ]


def test_intervals_have_about_nominal_coverage():
    intervals = [rate for rate in RATES if rate["what"].endswith(")")]
    assert len(intervals) > 80
    poor = {(rate["what"], rate["of"], rate["episodes"]) for rate in intervals if rate["percent"] < 89}
    assert poor == {  # of what happens once in twenty episodes, ten say little
        ("currency of texts (bootstrap)", "rate 0.05", 10),
        ("restricted mean time (bootstrap)", "rate 0.05 and 0.04", 10),
    }
    assert all(rate["percent"] >= 90.5 for rate in intervals if rate["episodes"] >= 50)


def test_wrong_verdicts_are_rare():
    called = [rate for rate in RATES if not rate["what"].endswith(")") and rate["episodes"] >= 50]
    apart = [rate for rate in called if "inferior or superior" in rate["what"] and "non-" not in rate["what"]]
    at_margin = [rate for rate in called if "non-inferior" in rate["what"]]
    assert len(apart) + len(at_margin) == len(called)
    assert all(rate["percent"] <= 3.5 for rate in apart)
    assert all(rate["percent"] <= 3.5 for rate in at_margin)
