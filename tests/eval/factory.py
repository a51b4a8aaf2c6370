"""Builds run folders by hand, as a run would leave them."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from contracts.episode import EpisodeKey, EpisodeResult, Outcome, RequestCounts, TextScores
from contracts.truth import Narration, Phase
from eval.metrics.rows import RunRows
from eval.records.reader import RunRecords, require_runs
from eval.records.schema import RunFolder
from eval.report import comparison
from eval.report.comparison import Comparison
from eval.report.pages import run_report
from sim_envs.truth.wording import narrate

RIGHT, WRONG = (narrate(Narration(phase=phase, object="milk")) for phase in (Phase.APPROACH, Phase.GRASP))
"""Narrations that are right and wrong while the robot approaches the milk."""


def key(init_id: int = 0, task_id: int = 0, suite: str = "libero_object", seed: int = 7) -> EpisodeKey:
    return EpisodeKey(suite=suite, task_id=task_id, init_id=init_id, seed=seed)


def episode(at: EpisodeKey, outcome: str = "success", **changes: Any) -> EpisodeResult:
    failed = Outcome(outcome).has_traceback
    made = EpisodeResult(
        key=at,
        task=f"do_task_{at.task_id}",
        instruction=f"do task {at.task_id}",
        language=f"do task {at.task_id}",
        outcome=Outcome(outcome),
        steps=100,
        queries=20,
        latency_ms={},
        tokens=30,
        requests=RequestCounts(),
        policy_s=2.0,
        wall_s=10.0,
        error="ValueError: broken" if failed else None,
        traceback="Traceback: broken" if failed else None,
    )
    return dataclasses.replace(made, **changes)


def apart(episodes: Sequence[EpisodeResult]) -> list[EpisodeResult]:
    """The episodes, each of an initial state of its own."""
    keys = [dataclasses.replace(each.key, init_id=number) for number, each in enumerate(episodes)]
    return [dataclasses.replace(each, key=key) for each, key in zip(episodes, keys, strict=True)]


def scores(**changes: Any) -> TextScores:
    """The scores of one text of an episode, of which nothing is known but the changes."""
    whole = TextScores(texts=1, not_graded=0, oracle=0, at_request={}, on_delivery={}, staleness_s=0.0)
    return dataclasses.replace(whole, **changes)


@dataclasses.dataclass
class RunBuilder:
    """A run's folder under construction; every method returns the builder."""

    folder: RunFolder

    @classmethod
    def at(cls, path: Path, **manifest: Any) -> "RunBuilder":
        """A complete run of `tiny` in mode `unified`, unless `manifest` says otherwise."""
        whole = {
            "run_id": path.name,
            "policy": "tiny",
            "mode": "unified",
            "assets": {"name": "real", "digest": "d1ge57000000"},
            "protocol_hash": "aaaa1111",
            "suite_hashes": {"libero_object": "bbbb2222", "libero_goal": "cccc3333"},
            "status": "complete",
            "n_planned": 0,
            "started": "2026-01-01T00:00:00+00:00",
            "finished": "2026-01-01T01:00:00+00:00",
        }
        builder = cls(RunFolder(path))
        path.mkdir(parents=True)
        builder.folder.write_manifest({**whole, **manifest})
        return builder

    @property
    def path(self) -> Path:
        return self.folder.path

    def add(self, result: EpisodeResult, *queries: Mapping[str, Any]) -> "RunBuilder":
        """One episode, with its query file if there are queries."""
        self.folder.append(result)
        if queries:
            path = self.folder.queries_path(result.key)
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(json.dumps(line) + "\n" for line in queries))
        return self

    def add_all(
        self,
        outcomes: str,
        *,
        suite: str = "libero_object",
        latency: float = 60.0,
        chunks: Sequence[Any] = (0.5,),
        **changes: Any,
    ) -> "RunBuilder":
        """One episode per letter (`s`uccess, `t`imeout, `i`nvalid action, `e`rror), on states 0, 1, 2 …

        Its queries have these chunks, as `query` takes them.
        """
        words = {"s": "success", "t": "timeout", "i": "invalid_action", "e": "error"}
        lines = [query(at, chunk, action=latency, frame=latency) for at, chunk in enumerate(chunks)]
        for init_id, letter in enumerate(outcomes):
            self.add(episode(key(init_id, suite=suite), words[letter], **changes), *lines)
        return self


def run_rows(folder: RunFolder) -> RunRows:
    """The results of a run, from its files."""
    return RunRows(RunRecords(folder))


def compare(a: RunFolder, b: RunFolder, **how: Any) -> Comparison:
    """The comparison of two runs, from their files."""
    return comparison.compare(RunRecords(a), RunRecords(b), **how)


def write_report(paths: Sequence[Path], folder: Path) -> Path:
    """The page of the runs in some folders, as the command writes it."""
    return run_report.write_report(require_runs(paths), folder)


def said(query: int, text: str, *, task: str = "narration", request: int | None = None) -> dict[str, Any]:
    """A finished text that was asked for in a query, as a query file has it."""
    request_id = query if request is None else request
    return {
        "task": task,
        "request_id": request_id,
        "requested_query": query,
        "finished_query": query,
        "text": text,
        "tokens": 3,
        "reason": "stop",
        "latency_ms": 5.0,
        "times": None,
    }


def asked(query: int, *, task: str = "narration", request: int | None = None) -> dict[str, Any]:
    """A text that was asked for in a query, as a query file has it."""
    return {"task": task, "request_id": query if request is None else request, "query": query}


def query(
    index: int = 0, actions: Any = 0.5, *, texts: Mapping[str, Any] | None = None, **timings_ms: float
) -> dict[str, Any]:
    """One line of a query file; a single number stands for a chunk [10, 7] of it.

    `texts` may hold what was `requested`, `finished` and `dropped` in the query, and its `truth`.
    """
    chunk = np.broadcast_to(actions, (10, 7)) if np.ndim(actions) == 0 else actions
    rows = np.asarray(chunk, dtype=object).tolist()
    line = {"query": index, "step": 5 * index, "timings_ms": timings_ms, "tokens": 2, "actions": rows}
    return {**line, **(texts or {})}


def truth(phase: Phase = Phase.APPROACH) -> dict[str, Any]:
    """The ground truth of a query."""
    return {"narration": dataclasses.asdict(Narration(phase=phase, object="milk")), "done": [], "facts": []}


def narrated(index: int, text: str | None, actions: Any = 0.5, **timings_ms: float) -> dict[str, Any]:
    """A query that asks for a narration and finishes it; without a text, the episode ends before that."""
    finished = [] if text is None else [said(index, text)]
    texts = {"requested": [asked(index)], "finished": finished, "truth": truth()}
    return query(index, actions, texts=texts, **timings_ms)
