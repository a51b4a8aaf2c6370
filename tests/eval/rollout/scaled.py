"""Evaluations in several processes, and their records without timings."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import yaml

from configs.load import load
from configs.schema import RunConfig, SuiteConfig
from eval.records.run_folders import Run, new_run
from eval.records.schema import RunFolder
from eval.rollout.executors.executor import Executor
from sim_envs.fake import FakeSuite
from tests.eval.conftest import evaluate


def suite_file(folder: Path, name: str, suite: type, /, **changes: Any) -> str:
    """A suite of that class as a YAML file, otherwise like another one."""
    protocol = FakeSuite.published if name == "fake" else load(SuiteConfig, name)
    file = folder / f"{name}.yaml"
    world = {"world": f"{suite.__module__}:{suite.__qualname__}"}
    file.write_text(yaml.safe_dump({**protocol.model_dump(mode="json"), **world, **changes}))
    return str(file)


def played(folder: Path, *configs: RunConfig, executor: Executor, **how: Any) -> list[Run]:
    """The runs of an evaluation, played."""
    runs = [new_run(folder, config) for config in configs]
    evaluate(*runs, executor=executor, **how)
    return runs


def timeless(run: Run) -> dict[str, tuple[dict, list[dict]]]:
    """The records of a run by episode: its line and the lines of its queries, without what was measured."""
    return {
        str(key): (
            _without(dataclasses.asdict(result), "wall_s", "policy_s", "latency_ms", "traceback"),
            [_query(line) for line in run.folder.queries_path(key).read_text().splitlines()],
        )
        for key, result in run.folder.episodes().items()
    }


def records(folder: RunFolder) -> list[dict]:
    """The same lines, one after the other, without the compilations of this process."""
    episodes = timeless(Run(config=RunConfig(), folder=folder)).values()
    return [
        record
        for line, queries in episodes
        for record in (_without(line, "compiles_after_warm_up"), *queries)
    ]


def _query(line: str) -> dict:
    query = _without(json.loads(line), "timings_ms")
    texts = [_without(text, "latency_ms", "after_ms", "times") for text in query["finished"]]
    return {**query, "finished": texts}


def _without(record: dict, *measured: str) -> dict:
    return {name: value for name, value in record.items() if name not in measured}
