"""`python -m benchmarks.clock`: a profile saved on this machine against clock `measured`, same episodes.

For each policy: measures a profile (`eval.bench --save-profile`), plays episodes of the fake suite with
`--clock measured` and with that profile, and compares simulated times by query and by episode. Nothing else
should run on the machine; the record has its load.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cyclopts import App

from benchmarks.record import record
from configs.cli import run_app
from contracts.query import QueryRecord
from eval.records.json_files import write_json
from eval.records.reader import find_runs

RESULTS = Path(__file__).parent / "results" / "clock.json"
_POLICIES, _MODES, _EPISODES = ("tiny", "small"), "isolated unified", 5
_SUITE = {
    "name": "counted",
    "world": "sim_envs.fake:FakeSuite",
    "max_steps": 120,
    "settle_steps": 0,
    "trials_per_task": 50,
    "control_hz": 20,
    "camera_size": 256,
    "replan_steps": 5,
}
"""Nothing succeeds, so an episode is 6 s of simulated time."""

Episodes = Sequence[Sequence[QueryRecord]]

app = App(name="python -m benchmarks.clock")


@app.default
def main(*, output: Path = RESULTS) -> None:
    """Measure, play and compare, and write the errors to a JSON file."""
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        found = {policy: _policy(policy, Path(folder)) for policy in _POLICIES}
    loads = {"at_start": load, "at_end": os.getloadavg()}
    record({"episodes": _EPISODES, "load_average": loads, "policies": found}, output)


def _policy(policy: str, folder: Path) -> dict[str, Any]:
    suite, profile = folder / "counted.yaml", folder / f"{policy}.yaml"
    write_json(suite, _SUITE)
    measured = f"--policy {policy} --modes {_MODES} --tokens-per-frame 5 --repetitions 3 --queries 6"
    _run("bench", f"{measured} --output {folder / policy}.jsonl --save-profile {profile}")
    played: dict[str, dict[str, Episodes]] = {}
    for clock, given in (("measured", "measured"), ("profile", f"profile:{profile}")):
        runs = folder / f"{policy}_runs" / clock
        what = f"--suite {suite} --policy {policy} --mode {_MODES} --clock {given} --video none"
        texts = f"--language-tasks narration memory --num-trials-per-task {_EPISODES}"
        _run("run", f"{what} {texts} --output-dir {runs}")
        for run in find_runs([runs]):
            queries = [run.queries(key) for key in sorted(run.episodes, key=str)]
            played.setdefault(run.identity.mode, {})[clock] = queries
    return {
        mode: compared(observed=each["measured"], predicted=each["profile"])
        for mode, each in sorted(played.items())
    }


def compared(*, observed: Episodes, predicted: Episodes) -> dict[str, Any]:
    """Medians of both clocks and the error of the prediction, percent.

    `episode` is the time that the policy is busy in the queries that an episode has on both clocks.
    """
    pairs = [
        (one.latency, other.latency)
        for mine, yours in zip(observed, predicted, strict=True)
        for one, other in zip(mine, yours, strict=False)
        if one.latency is not None and other.latency is not None
    ]
    busy = [
        tuple(
            sum(each.latency.busy_ms for each in side[: min(map(len, both))] if each.latency) for side in both
        )
        for both in zip(observed, predicted, strict=True)
    ]
    return {
        "queries": len(pairs),
        "actions": _error([(a.actions_ms, b.actions_ms) for a, b in pairs]),
        "query": _error([(a.busy_ms, b.busy_ms) for a, b in pairs]),
        "episode": _error([(a, b) for a, b in busy]),
    }


def _error(pairs: Sequence[tuple[float, float]]) -> Mapping[str, float]:
    observed, predicted = (statistics.median(side) for side in zip(*pairs, strict=True))
    error = 100 * (predicted / observed - 1)
    return {
        "observed_ms": round(observed, 2),
        "predicted_ms": round(predicted, 2),
        "error_percent": round(error, 1),
    }


def _run(command: str, options: str) -> None:
    """Run a command of the product, its output on stderr."""
    line = [sys.executable, "-m", f"eval.{command}", *options.split()]
    subprocess.run(line, stdout=sys.stderr, check=True)


if __name__ == "__main__":
    run_app(app)
