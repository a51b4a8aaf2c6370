"""Damaged and foreign files: one line that names the file, and whatever lies beside them still works."""

import itertools
import json
import shutil
from pathlib import Path

import pytest

from eval.records.schema import RunFolder
from oxygen.weights.source import bundled
from tests.attack.commands import call
from tests.attack.table import thinned

WHOLE_FILES = {
    "empty": b"",
    "blank": b"\n\n\n",
    "nul": b"\0" * 64,
    "not_utf8": b"\xff\xfe{}\n",
    "garbage": b"%PDF-1.7 nonsense\n",
    "list": b"[]\n",
    "object": b"{}\n",
    "null": b"null\n",
    "number": b"7\n",
    "text": b'"text"\n',
    "nested_lists": b"[" * 100_000 + b"]" * 100_000 + b"\n",
    "nested_objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n",
    "long_integer": b'{"schema_version": ' + b"9" * 5000 + b"}\n",
    "long_line": b"x" * 1_000_000 + b"\n",
    "byte_order_mark": b"\xef\xbb\xbf{}\n",
    "surrogate": b'{"run_id": "\\ud800"}\n',
}
"""Contents that no record has."""

VALUES = {
    "missing": ...,
    "null": None,
    "list": [],
    "object": {"\x1b[31m": []},
    "text": "\x1b[31mtext\n",
    "long": "x" * 10_000,
    "negative": -1,
    "huge": 10**400,
    "not_a_number": float("nan"),
}
"""What a field of a record may hold instead of its value."""

RUN_FILES = ("manifest.json", "episodes.jsonl", "results.json", "queries")
READERS = (
    "eval.compare runs/run_a runs/run_b",
    "eval.compare --partial runs/run_b runs/run_a",
    "eval.leaderboard runs",
    "eval.media runs/run_a",
    "eval.merge runs/run_a runs/run_b",
    "eval.libero --suite libero_object --policy noop --mode actions --output-dir runs --resume",
    "eval.libero --suite libero_object --policy noop --task-ids 0 --init-ids 0 --clock replay:runs/run_a",
    "eval.bundle --results runs/run_a",
    "eval.export runs/run_a --format lerobot",
    "eval.report runs/run_a runs/run_b --output-dir page",
    "eval.watch runs/run_a",
)


def damaged(run: Path, name: str) -> Path:
    """A file of a run; of the query logs the first."""
    return sorted((run / name).iterdir())[0] if name == "queries" else run / name


@pytest.mark.parametrize(
    ("line", "name", "content"), thinned([*itertools.product(READERS, RUN_FILES, WHOLE_FILES)], keep=9)
)
@pytest.mark.timeout(60, func_only=True)
def test_a_damaged_file_of_a_run_is_told_in_one_line(line, name, content, place):
    damaged(place / "runs/run_a", name).write_bytes(WHOLE_FILES[content])
    command, *arguments = line.split()
    assert not call(command, arguments, place).broken_rules()


@pytest.mark.parametrize(
    ("name", "content"), thinned([*itertools.product(RUN_FILES[:2], WHOLE_FILES)], keep=5)
)
@pytest.mark.timeout(60, func_only=True)
def test_a_damaged_run_beside_others_changes_nothing_of_them(name, content, place):
    before = call("eval.leaderboard", ["runs/run_b", "runs/shard_1"], place)
    shutil.copytree(place / "runs/run_a", place / "runs/other")
    damaged(place / "runs/other", name).write_bytes(WHOLE_FILES[content])
    for folder in ("run_a", "shard_2"):
        shutil.rmtree(place / "runs" / folder)
    answer = call("eval.leaderboard", ["runs"], place)
    assert not answer.broken_rules(refused=False)
    assert [row for row in before.out.splitlines() if "| noop" in row] == [
        row for row in answer.out.splitlines() if "| noop" in row
    ]


def fields() -> list[tuple[str, tuple[str, ...]]]:
    """File and path of the fields that are damaged in turn."""
    manifest = [
        "schema_version",
        "run_id",
        "policy",
        "mode",
        "assets",
        "protocol_hash",
        "status",
        "n_planned",
        "variants",
        "policy_inputs",
        "config",
        "protocol",
        "attempts",
        "started",
        "finished",
        "weights_sha256",
        "hardware",
        "git",
        "suite_hashes",
    ]
    episode = [
        "key",
        "task",
        "instruction",
        "language",
        "outcome",
        "steps",
        "queries",
        "latency_ms",
        "tokens",
        "requests",
        "policy_s",
        "wall_s",
        "simulated_s",
        "progress",
        "texts",
        "video",
        "error",
        "traceback",
        "held_steps",
    ]
    query = [
        "query",
        "step",
        "steps",
        "timings_ms",
        "tokens",
        "actions",
        "requested",
        "finished",
        "dropped",
        "truth",
        "latency",
    ]
    nested = [
        ("manifest.json", ("assets", "digest")),
        ("manifest.json", ("config", "margin")),
        ("manifest.json", ("config", "clock")),
        ("manifest.json", ("config", "seed")),
        ("manifest.json", ("protocol", "libero_object")),
        ("manifest.json", ("protocol", "libero_object", "assets")),
        ("episodes.jsonl", ("key", "task_id")),
        ("episodes.jsonl", ("key", "suite")),
        ("episodes.jsonl", ("requests", "finished")),
    ]
    return [
        *(("manifest.json", (name,)) for name in manifest),
        *(("episodes.jsonl", (name,)) for name in episode),
        *(("queries", (name,)) for name in query),
        *nested,
    ]


def change(file: Path, path: tuple[str, ...], value: object) -> None:
    """Put a value into the first record of a file, or remove the field."""
    first, *rest = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
    record = json.loads(first)
    holder = record
    for key in path[:-1]:
        holder = holder[key]
    if value is ...:
        holder.pop(path[-1], None)
    else:
        holder[path[-1]] = value
    file.write_text("\n".join([json.dumps(record), *rest]) + "\n")


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(("name", "path"), fields(), ids=[f"{n}-{'.'.join(p)}" for n, p in fields()])
@pytest.mark.parametrize("line", [*READERS[:4], READERS[-1]])
@pytest.mark.timeout(60, func_only=True)
@pytest.mark.slow
def test_a_damaged_field_of_a_run_is_told_in_one_line(line, name, path, value, place):
    change(damaged(place / "runs/run_a", name), path, VALUES[value])
    command, *arguments = line.split()
    assert not call(command, arguments, place).broken_rules()


OTHERS = {
    "checkpoint/training.json": ["eval.libero --policy ./checkpoint", "eval.bundle checkpoint --output out"],
    "checkpoint/policy.yaml": ["eval.libero --policy ./checkpoint", "eval.bundle checkpoint --output out"],
    "checkpoint/results.json": ["eval.bundle --results runs/run_a --output checkpoint"],
    "checkpoint/manifest.json": ["eval.bundle --results runs/run_a --output checkpoint"],
    "checkpoint/model.safetensors": ["oxygen.tools.convert checkpoint out"],
    "sweeps/one/sweep.json": [
        "eval.results sweeps/one",
        "eval.sweep --resume --output-dir sweeps",
    ],
    "training/run.json": ["eval.train --resume --output-dir training"],
    "dataset/meta/info.json": ["eval.train --data dataset"],
    "dataset/.episodes/options.json": ["eval.collect --suite libero_object --task-ids 0 --output dataset"],
    "reference.npz": ["oxygen.tools.parity reference.npz"],
}
"""Other files that commands read, and these commands."""


@pytest.mark.parametrize(
    ("file", "line", "content"),
    thinned(
        [(file, *rest) for file in OTHERS for rest in itertools.product(OTHERS[file], WHOLE_FILES)], keep=9
    ),
)
@pytest.mark.timeout(60, func_only=True)
def test_any_other_damaged_file_is_refused(file, line, content, place):
    if file.startswith("checkpoint/"):
        shutil.copytree(bundled("tiny"), place / "checkpoint")
    (place / file).parent.mkdir(parents=True, exist_ok=True)
    (place / file).write_bytes(WHOLE_FILES[content])
    command, *arguments = line.split()
    assert not call(command, arguments, place).broken_rules(refused=True)


def test_the_leaderboard_computes_from_episodes(place):
    file = RunFolder(place / "runs/run_a").results_path
    before = call("eval.leaderboard", ["runs"], place).out
    stale = json.loads(file.read_text())
    stale["per_suite"]["libero_object"]["pc_success"] = 0.0
    file.write_text(json.dumps(stale))
    assert call("eval.leaderboard", ["runs"], place).out == before


def test_an_episode_that_the_plan_does_not_have_is_refused(place):
    file = place / "runs/run_a/episodes.jsonl"
    line = json.loads(file.read_text().splitlines()[0])
    line["key"]["init_id"] = 49
    with file.open("a") as lines:
        lines.write(json.dumps(line) + "\n")
    answer = call("eval.compare", ["--partial", "runs/run_a", "runs/run_b"], place)
    assert not answer.broken_rules(refused=True)
    assert "episodes.jsonl" in answer.err
