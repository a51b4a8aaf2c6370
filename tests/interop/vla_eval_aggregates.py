"""Run by vla-eval's Python: its own collector makes the exported aggregate of the exported episodes."""

import json
import sys
from pathlib import Path

from rich.console import Console
from vla_eval.results.collector import ResultCollector, print_task_table

exported = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
collector = ResultCollector(exported["benchmark"], exported["mode"], exported["metric_keys"])
for task in exported["tasks"]:
    for episode in task["episodes"]:
        collector.record(task["task"], episode)
theirs = collector.get_benchmark_result(exported["config"])
assert theirs["tasks"] == exported["tasks"]
for field in set(theirs) - {"harness_version", "created_at", "tasks"}:
    assert theirs[field] == exported[field], (field, theirs[field], exported[field])
print_task_table(Console(stderr=True), exported["tasks"], exported["mean_success"], "green")
sys.stdout.write(f"{len(theirs['tasks'])}\n")
