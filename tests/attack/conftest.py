"""Folders that the attacked commands find, and doubles for what is expensive once the input is accepted."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from configs.schema import RunConfig
from eval.records.run_folders import new_run
from eval.report.console import EvaluationConsole
from eval.report.pages.site import render
from eval.rollout.evaluation import run_evaluation
from sim_envs.libero.assets import AssetSet, find_assets
from tests.eval.collect import collecting
from tests.eval.doubles import FakeAssets, without_physics

SIDE = 112
"""Side of the images of policy `tiny`, pixels."""
EPISODES = {"suites": ("libero_object",), "task_ids": (0, 1), "num_trials_per_task": 1, "max_steps": 20}


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A handful of demonstrations."""
    folder = tmp_path_factory.mktemp("data")
    source = collecting.FakeDemonstrationSource(image_size=SIDE)
    assert collecting.collect(folder, source=source, image_size=SIDE) == 0
    return folder


@pytest.fixture(scope="session")
def healthy(tmp_path_factory) -> Path:
    """A folder of runs: two variants of one evaluation, and the two shards of another."""
    runs = tmp_path_factory.mktemp("healthy") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        without_physics(patch)
        for name, options in {
            "a": [{"mode": "actions"}, {"mode": "unified"}],
            "s1": [{"shard": "1/2", "mode": "actions"}],
            "s2": [{"shard": "2/2", "mode": "actions"}],
        }.items():
            configs = [RunConfig(**EPISODES, policy="noop", video="none", **each) for each in options]
            run_evaluation(*(new_run(runs / name, each) for each in configs), monitor=EvaluationConsole)
    for number, folder in enumerate(sorted((runs / "a").glob("2*"))):
        shutil.copytree(folder, runs / f"run_{'ab'[number]}")
    for shard in ("s1", "s2"):
        (folder,) = (runs / shard).glob("2*")
        shutil.copytree(folder, runs / f"shard_{shard[1]}")
    for name in ("a", "s1", "s2"):
        shutil.rmtree(runs / name)
    return runs


def _at_hand(source: str) -> AssetSet:
    """The assets at hand have no file; any other source is looked for."""
    return FakeAssets() if source in (None, "auto") else find_assets(source)


@pytest.fixture
def place(tmp_path, monkeypatch, healthy) -> Path:
    """The working directory: runs, and things that are not what their names promise."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    shutil.copytree(healthy, tmp_path / "runs")
    (tmp_path / "file").write_text("a file\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "README.md").write_text("no markers\n")
    np.savez(tmp_path / "arrays.npz", meta=np.array("{}"))
    return tmp_path


def _accepted(*_, **__):
    raise SystemExit(0)


async def _send_one_page(evaluation, *_):
    json.dumps(evaluation.state(), allow_nan=False)
    render("watch.html.j2", {"title": evaluation.title})


@pytest.fixture(autouse=True)
def nothing_plays(monkeypatch) -> None:
    """Accepted input is checked in full, but no episode, training or benchmark starts."""
    without_physics(monkeypatch, find_assets=_at_hand)
    monkeypatch.setattr("eval.rollout.evaluation._play", lambda *_: [])
    monkeypatch.setattr("eval.report.sweeping.conclude", lambda *_: {})
    monkeypatch.setattr("eval.report.sweeping.show_sweep", lambda *_: None)
    monkeypatch.setattr("eval.collect.collection._play", lambda *_: [])
    monkeypatch.setattr("eval.collect.collection._conclude", lambda *_: 0)
    monkeypatch.setattr("eval.train.training.train", lambda *_, **__: None)
    monkeypatch.setattr("eval.bench.experiment.run_experiment", lambda *_, **__: 0)
    monkeypatch.setattr("eval.bench.roofline_report.report_roofline", lambda *_: 0)
    monkeypatch.setattr("eval.pipeline.__main__._run", lambda *_: 0)
    monkeypatch.setattr("oxygen.serve.serving.load_policy", _accepted)
    monkeypatch.setattr("eval.report.watch_server.serve", _send_one_page)
    monkeypatch.setattr("eval.rollout.preflight.all_checks", lambda *_, **__: ())
    monkeypatch.setattr("oxygen.tools.train_tokenizer.train", lambda: b"model")
    monkeypatch.setattr("sim_envs.contact_sheet._tile", lambda *_: Image.new("RGB", (2, 2)))
