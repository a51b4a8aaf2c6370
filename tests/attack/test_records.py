"""Damaged records: one line that names the file, exit code 2, and no effect on the runs beside them."""

import importlib
import itertools
import os
import shutil
from pathlib import Path

import pytest

from configs.cli import run_app
from oxygen.weights.source import bundled
from tests.eval.factory import RunBuilder

DAMAGE = {
    "empty": b"",
    "nul": b"\0" * 64,
    "not_utf8": b"\xff\xfe{}\n",
    "garbage": b"%PDF-1.7 nonsense\n",
    "list": b"[]\n",
    "object": b"{}\n",
    "torn": b'{"schema_version": 1, "key": {"sui\n',
    "nested": b"[" * 100_000 + b"]" * 100_000 + b"\n",
}
"""Contents that no record has."""

READERS = {
    "eval.compare": "runs/a runs/b",
    "eval.merge": "runs/a runs/b",
    "eval.media": "runs/a",
    "eval.export": "runs/a --format csv",
    "eval.watch": "runs/a",
    "eval.bundle.__main__": "--results runs/a",
    "eval.libero": "--policy noop --task-ids 0 --init-ids 0 --clock replay:runs/a",
}
"""Commands that read a run, and their arguments."""


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch) -> Path:
    """Two complete runs in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name, mode in (("a", "isolated"), ("b", "unified")):
        RunBuilder.at(tmp_path / "runs" / name, mode=mode).add_all("st")
    return tmp_path / "runs"


def call(module: str, arguments: str, capsys) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    with pytest.raises(SystemExit) as stop:
        run_app(importlib.import_module(module).app, arguments.split())
    return stop.value.code, *capsys.readouterr()


def assert_refused(module: str, arguments: str, capsys, *, names: str) -> None:
    before = sorted(Path().rglob("*"))
    code, _, err = call(module, arguments, capsys)
    *skipped, line = err.splitlines()
    assert code == 2
    assert line.startswith("error: ")
    assert names in err
    assert all(each.startswith("skipped ") for each in skipped)
    assert sorted(path for path in Path().rglob("*") if path.name != ".lock") == before


@pytest.mark.parametrize(("module", "damage"), [*itertools.product(READERS, DAMAGE)])
def test_a_damaged_manifest_is_refused(module, damage, runs, capsys):
    (runs / "a/manifest.json").write_bytes(DAMAGE[damage])
    assert_refused(module, READERS[module], capsys, names="a")


# Neither an empty file nor an incomplete last line is damage.
@pytest.mark.parametrize("damage", [each for each in DAMAGE if each not in ("empty", "nul")])
def test_damaged_episodes_are_refused(damage, runs, capsys):
    (runs / "a/episodes.jsonl").write_bytes(DAMAGE[damage])
    assert_refused("eval.compare", READERS["eval.compare"], capsys, names="episodes.jsonl")


@pytest.mark.parametrize("name", ["manifest.json", "episodes.jsonl"])
@pytest.mark.parametrize("damage", [*DAMAGE, "pipe"])
def test_a_damaged_run_does_not_affect_the_others_of_a_leaderboard(name, damage, runs, capsys):
    _, before, _ = call("eval.leaderboard", "runs/b", capsys)
    file = runs / "a" / name
    file.unlink()
    if damage == "pipe":
        os.mkfifo(file)
    else:
        file.write_bytes(DAMAGE[damage])
    code, after, err = call("eval.leaderboard", "runs", capsys)
    assert code == 0
    assert all(line.startswith("skipped ") for line in err.splitlines())
    assert [line for line in before.splitlines() if "unified" in line] == [
        line for line in after.splitlines() if "unified" in line
    ]


OTHERS = {
    "checkpoint/policy.yaml": ("eval.libero", "--policy ./checkpoint"),
    "sweeps/one/sweep.json": ("eval.sweep", "--resume --output-dir sweeps"),
    "training/run.json": ("eval.train.__main__", "--resume --output-dir training"),
    "dataset/meta/info.json": ("eval.train.__main__", "--data dataset"),
    "dataset/.episodes/options.json": ("eval.collect.__main__", "--suite libero_object --output dataset"),
}
"""Other files, and a command that reads them."""


@pytest.mark.parametrize(
    ("file", "damage"), [*itertools.product(OTHERS, ["empty", "nul", "not_utf8", "garbage", "list", "torn"])]
)
def test_any_other_damaged_file_is_refused(file, damage, tmp_path, capsys):
    if file.startswith("checkpoint/"):
        shutil.copytree(bundled("tiny"), tmp_path / "checkpoint")
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_bytes(DAMAGE[damage])
    assert_refused(*OTHERS[file], capsys, names=file.split("/")[0])
