"""Damaged records: one line that names the file, exit code 2."""

import importlib
import shutil
from pathlib import Path

import pytest

from oxygen.weights.source import bundled
from tests.eval.factory import RunBuilder

DAMAGE = {
    "empty": b"",
    "garbage": b"\xff\xfe{}%PDF-1.7\n",
    "list": b"[]\n",
    "torn": b'{"schema_version": 1, "key": {"sui\n',
    "nested": b"[" * 100_000 + b"]" * 100_000 + b"\n",
}
MANIFEST, EPISODES = "runs/a/manifest.json", "runs/a/episodes.jsonl"
READERS = [
    (MANIFEST, "eval.compare", "runs/a runs/b"),
    (MANIFEST, "eval.merge", "runs/a runs/b"),
    (MANIFEST, "eval.media", "runs/a runs/b"),
    (MANIFEST, "eval.watch", "runs/a"),
    (MANIFEST, "eval.libero", "--policy noop --task-ids 0 --init-ids 0 --clock replay:runs/a"),
    (EPISODES, "eval.export", "runs/a --format csv"),
    ("checkpoint/policy.yaml", "eval.libero", "--policy ./checkpoint"),
    ("sweeps/one/sweep.json", "eval.sweep", "--resume --output-dir sweeps"),
    ("training/run.json", "eval.train.__main__", "--resume --output-dir training"),
    ("dataset/meta/info.json", "eval.train.__main__", "--data dataset"),
    ("dataset/.episodes/options.json", "eval.collect.__main__", "--suite libero_goal --output dataset"),
]
"""A file, and a command that reads it."""


@pytest.fixture(autouse=True)
def _two_complete_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, mode in (("a", "isolated"), ("b", "unified")):
        RunBuilder.at(tmp_path / "runs" / name, mode=mode).add_all("st")


@pytest.mark.parametrize(("file", "module", "arguments"), READERS)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_refused(file, module, arguments, damage, command):
    if (file, damage) in ((EPISODES, "empty"), ("checkpoint/policy.yaml", "nested")):
        return  # a run without episodes is not damaged, and nobody nests YAML by accident
    if file.startswith("checkpoint/"):
        shutil.copytree(bundled("tiny"), "checkpoint")
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_bytes(DAMAGE[damage])
    before = sorted(Path().rglob("*"))
    code, _, err = command(importlib.import_module(module).app, *arguments.split())
    *skipped, line = err.splitlines()
    assert (code, line[:7]) == (2, "error: ")
    assert file.split("/")[-2] in err or file.split("/")[0] in err
    assert all(each.startswith("skipped ") for each in skipped)
    assert sorted(path for path in Path().rglob("*") if path.name != ".lock") == before
