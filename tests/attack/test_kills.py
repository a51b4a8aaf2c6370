"""`kill -9` at random moments: what is resumed equals what nothing interrupted."""

import functools
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from eval.metrics.success import summarize
from eval.records.run_folders import Run
from eval.records.schema import RunFolder
from oxygen.training import checkpoint
from oxygen.training.logs import read_log
from tests.attack import killed
from tests.eval.collect.collecting import contents
from tests.eval.rollout.scaled import suite_file, timeless
from tests.eval.train.test_train_cli import MODEL, assert_same

pytestmark = pytest.mark.timeout(3600)


def kills(number: int, in_all: int) -> list:
    """So many kills in `make test`, and so many in `make test-all`."""
    return [number, pytest.param(in_all, marks=pytest.mark.slow)]


def resumed_equals_uninterrupted(
    command: killed.Command, folder: Path, least: int, check: Callable[[Path, Path], None]
) -> None:
    """Kill the command at least so often, and compare every folder that it completes."""
    rng, number, done = random.Random(7), 0, 0
    whole = folder / "whole"
    seconds = killed.seconds_of(command, whole)
    assert seconds > 0.3, "it lasts long enough to be killed in the middle"
    while done < least:
        done += killed.kill_until_it_ends(command, folder / str(number), within_s=seconds, rng=rng)
        check(folder / str(number), whole)
        number += 1


def runs_in(folder: Path) -> list[RunFolder]:
    """The variants of the only evaluation in a folder."""
    found = {run.read_manifest()["mode"]: run for run in map(RunFolder, folder.glob("[!.]*"))}
    assert sorted(found) == ["actions", "unified"]
    assert len(list(folder.glob("[!.]*"))) == 2
    return [found["actions"], found["unified"]]


def same_runs(folder: Path, whole: Path) -> None:
    for run, expected in zip(runs_in(folder), runs_in(whole), strict=True):
        assert timeless(Run(config=None, folder=run)) == timeless(Run(config=None, folder=expected))
        keys = [str(json.loads(line)["key"]) for line in run.episodes_path.read_text().splitlines()]
        assert len(set(keys)) == len(keys) == killed.EPISODES
        assert run.read_manifest()["status"] == "complete"
        assert json.loads(run.results_path.read_text()) == json.loads(json.dumps(summarize(run.path)))


@pytest.mark.parametrize("least", kills(3, 40))
def test_evaluations(tmp_path, least):
    suite = suite_file(tmp_path, "fake", killed.UnhurriedSuite, environment={"success_at": 12})
    command = functools.partial(killed.evaluate, suite)
    resumed_equals_uninterrupted(command, tmp_path, least, same_runs)


def same_datasets(folder: Path, whole: Path) -> None:
    assert contents(folder) == contents(whole)
    assert not list(folder.rglob("*.partial"))
    assert not (folder / ".assembling").exists()


@pytest.mark.parametrize("least", kills(2, 30))
def test_collections(tmp_path, least):
    resumed_equals_uninterrupted(killed.collect, tmp_path, least, same_datasets)


def same_trainings(folder: Path, whole: Path) -> None:
    assert_same(checkpoint.STATE_FILE, folder, whole)
    steps = [line["step"] for line in read_log(folder) if "loss" in line]
    assert steps == [line["step"] for line in read_log(whole) if "loss" in line]
    assert [each.name for each in sorted((folder / "checkpoints").iterdir())] == [
        each.name for each in sorted((whole / "checkpoints").iterdir())
    ]


@pytest.mark.slow
def test_trainings(tmp_path):
    data = tmp_path / "data"
    killed.seconds_of(functools.partial(killed.collect, image_size=MODEL.image_size), data)
    given = f"--data {data} --model {MODEL.name} --language-tasks narration --steps 6 --batch 2"
    arguments = (*given.split(), "--save-every", "2", "--log-every", "1")
    resumed_equals_uninterrupted(functools.partial(killed.train, arguments), tmp_path, 20, same_trainings)
