"""Plays the episodes of `benchmarks.scale` once, and measures time and memory."""

import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from configs.schema import RunConfig
from eval.records.run_folders import new_run
from eval.records.schema import EpisodeResult, RunFolder
from eval.report.console import EvaluationConsole
from eval.rollout.evaluation import run_evaluation
from eval.rollout.executors.executor import batch_size_for, choose_executor

SUITE = "libero_object"
_LOOK_EVERY_S = 0.5
_PARTS = {"physics": "advance", "rendering": "observe", "model": "frame"}
"""Name of each part of a query to its stage in the query log."""


class _Stopwatch(EvaluationConsole):
    """Records when episodes end."""

    def __init__(self, *what: Any) -> None:
        super().__init__(*what)
        self.ended: list[tuple[float, EpisodeResult]] = []

    def episode(self, variant: int, result: EpisodeResult) -> None:
        super().episode(variant, result)
        self.ended.append((time.perf_counter(), result))


def play(player: str, *, episodes: int, steps: int, assets: str) -> dict[str, Any]:
    """Play one run by `serial:1`, `processes:N` or `ray:N`."""
    executor, _, number = player.partition(":")
    worlds = int(number)
    config = RunConfig(
        suites=(SUITE,),
        task_ids=(0,),
        init_ids=tuple(range(episodes)),
        max_steps=steps,
        assets=assets,
        batch_size=batch_size_for(worlds),
        video="none",
    )
    address = "local" if executor == "ray" else None
    playing = choose_executor(num_envs=worlds, executor=executor, ray_address=address)
    watches: list[_Stopwatch] = []

    def monitor(*what: Any) -> _Stopwatch:
        watches.append(_Stopwatch(*what))
        return watches[0]

    with tempfile.TemporaryDirectory() as folder, _memory_watched() as memory:
        run = new_run(Path(folder), config)
        run_evaluation(run, monitor=monitor, executor=playing)
        results = [result for _, result in watches[0].ended]
        assert not any(result.error for result in results), "an episode was an error"
        (played,) = (RunFolder(path.parent) for path in Path(folder).glob("*/manifest.json"))
        warm = results[worlds:]  # the first episode of each world opens it
        logs = [played.queries_path(result.key) for result in warm]
        found = shares(logs, sum(result.wall_s for result in warm))
    queries = sum(result.queries for result in results)
    return {
        **_rate([(at, result.steps) for at, result in watches[0].ended], worlds),
        "queries": queries,
        "shares": found,
        "memory_mb": memory,
    }


def _rate(ended: list[tuple[float, int]], worlds: int) -> dict[str, Any]:
    """Episodes per hour from when as many have ended as there are worlds: all have started then."""
    (began, _), after = ended[worlds - 1], ended[worlds:]
    steps_per_s = sum(steps for _, steps in after) / (after[-1][0] - began)
    steps = sum(steps for _, steps in ended) / len(ended)
    return {
        "episodes_per_hour": 3600 * steps_per_s / steps,
        "steps_per_episode": steps,
        "episodes_ended": len(ended),
    }


def shares(logs: Sequence[Path], wall_s: float) -> dict[str, float]:
    """Share of each part in a world's time, from the query logs of its episodes.

    Time outside of queries is waiting, reset and records.
    """
    totals = dict.fromkeys(_PARTS, 0.0)
    for log in logs:
        for line in log.read_text().splitlines():
            timings = json.loads(line)["timings_ms"]
            for part, name in _PARTS.items():
                totals[part] += timings.get(name, 0.0) / 1e3
    totals["waiting, reset, records"] = max(0.0, wall_s - sum(totals.values()))
    return {part: seconds / wall_s for part, seconds in totals.items()}


@contextlib.contextmanager
def _memory_watched() -> Iterator[dict[str, float]]:
    """Measure the peak resident memory of this process and of the largest worker, MB."""
    most = {"driver": 0.0, "worker": 0.0}
    over = threading.Event()

    def look() -> None:
        own = psutil.Process()
        while not over.wait(_LOOK_EVERY_S):
            most["driver"] = max(most["driver"], own.memory_info().rss / 1e6)
            for child in own.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if any("spawn_main" in word or "ray::WorldActor" in word for word in child.cmdline()):
                        most["worker"] = max(most["worker"], child.memory_info().rss / 1e6)

    watching = threading.Thread(target=look, daemon=True)
    watching.start()
    try:
        yield most
    finally:
        over.set()
        watching.join()
