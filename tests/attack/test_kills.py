"""After `kill -9` at random moments, a resumed run has no lost, doubled or different records."""

import collections
import functools
import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import safetensors.numpy

from eval.metrics.success import summarize
from eval.records.run_folders import Run
from eval.records.schema import EpisodeKey, RunFolder
from oxygen.training import checkpoint, layout
from oxygen.training.logs import read_log
from tests.attack import killed
from tests.eval.collect.collecting import contents
from tests.eval.rollout.scaled import suite_file, timeless
from tests.eval.train.test_train_cli import MODEL

pytestmark = pytest.mark.timeout(3600)

Records = Sequence[tuple[str, object]]
"""Contents of a finished folder, by name: episodes, files, steps."""

WRONG = ("lost", "doubled", "different")
"""Possible faults of a record."""


def kills(number: int, in_all: int) -> list:
    """So many kills in `make test`, and so many in `make test-all`."""
    return [number, pytest.param(in_all, marks=pytest.mark.slow)]


def resumed_equals_uninterrupted(
    command: killed.Command, folder: Path, least: int, records: Callable[[Path], Records]
) -> None:
    """Kill the command at least so often, and compare every folder that it completes.

    Prints the numbers of kills and of records lost, doubled and different (`pytest -rP` shows them).
    """
    rng, number, done = random.Random(7), 0, 0
    whole = folder / "whole"
    seconds = killed.seconds_of(command, whole)
    assert seconds > 0.3, "it lasts long enough to be killed in the middle"
    expected, wrong = records(whole), collections.Counter()
    while done < least:
        done += killed.kill_until_it_ends(command, folder / str(number), within_s=seconds, rng=rng)
        wrong += compare(records(folder / str(number)), expected)
        number += 1
    counts = ", ".join(f"{wrong[what]} {what}" for what in WRONG)
    sys.stdout.write(f"{done} kills, {number} folders of {len(expected)} records: {counts}\n")
    assert not wrong


def compare(found: Records, expected: Records) -> collections.Counter:
    """How many records are lost, doubled and different."""
    times, right = collections.Counter(name for name, _ in found), dict(expected)
    different = sum(name not in right or value != right[name] for name, value in found)
    lost, doubled = len(right.keys() - times.keys()), times.total() - len(times)
    return collections.Counter(dict(zip(WRONG, (lost, doubled, different), strict=True)))


def test_lost_doubled_and_different_records_are_counted():
    expected = [("a", 1), ("b", 2), ("c", 3)]
    assert not +compare(expected, expected)
    assert compare([("a", 1), ("a", 1), ("b", 7), ("d", 4)], expected) == {
        "lost": 1,
        "doubled": 1,
        "different": 2,
    }


def episodes_of(folder: Path) -> Records:
    """The episodes of both variants of the only evaluation in a folder."""
    runs = {run.read_manifest()["mode"]: run for run in map(RunFolder, folder.glob("[!.]*"))}
    assert sorted(runs) == ["actions", "unified"]
    assert len(list(folder.glob("[!.]*"))) == 2
    found = []
    for mode, run in runs.items():
        assert run.read_manifest()["status"] == "complete"
        assert json.loads(run.results_path.read_text()) == json.loads(json.dumps(summarize(run.path)))
        played = timeless(Run(config=None, folder=run))
        for line in run.episodes_path.read_text().splitlines():
            key = str(EpisodeKey(**json.loads(line)["key"]))
            found.append((f"{mode} {key}", played[key]))
    assert len(found) >= 2 * killed.EPISODES
    return found


@pytest.mark.parametrize("least", kills(3, 40))
def test_evaluations(tmp_path, least):
    suite = suite_file(tmp_path, "fake", killed.UnhurriedSuite, environment={"success_at": 12})
    command = functools.partial(killed.evaluate, suite)
    resumed_equals_uninterrupted(command, tmp_path, least, episodes_of)


def files_of(folder: Path) -> Records:
    """The demonstrations and the files of a dataset."""
    assert not list(folder.rglob("*.partial"))
    assert not (folder / ".assembling").exists()
    kept = json.loads((folder / layout.MANIFEST).read_text())["demonstrations"]
    return [*((key, "kept") for key in kept), *contents(folder).items()]


@pytest.mark.parametrize("least", kills(2, 30))
def test_collections(tmp_path, least):
    resumed_equals_uninterrupted(killed.collect, tmp_path, least, files_of)


def steps_of(folder: Path) -> Records:
    """The steps of a training, its checkpoints and the arrays of the last."""
    saved = sorted((folder / "checkpoints").iterdir())
    arrays = safetensors.numpy.load_file(saved[-1] / checkpoint.STATE_FILE)
    steps = [(f"step {line['step']}", line["loss"]) for line in read_log(folder) if "loss" in line]
    values = [(name, (array.shape, array.tobytes())) for name, array in arrays.items()]
    return [*steps, *((each.name, "saved") for each in saved), *values]


@pytest.mark.slow
def test_trainings(tmp_path):
    data = tmp_path / "data"
    killed.seconds_of(functools.partial(killed.collect, image_size=MODEL.image_size), data)
    given = f"--data {data} --model {MODEL.name} --language-tasks narration --steps 6 --batch 2"
    arguments = (*given.split(), "--save-every", "2", "--log-every", "1")
    resumed_equals_uninterrupted(functools.partial(killed.train, arguments), tmp_path, 30, steps_of)
