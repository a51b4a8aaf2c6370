"""After `kill -9` at random moments, a resumed run has no lost, doubled or different records."""

import collections
import contextlib
import functools
import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest
import safetensors.numpy

from configs.cli import run_app
from contracts.episode import EpisodeKey
from eval.metrics.results_file import results_of
from eval.records.run_folders import Run
from eval.records.schema import RunFolder
from oxygen.training import checkpoint, layout
from oxygen.training.run_folder import read_log
from tests.eval.collect import collecting
from tests.eval.factory import run_rows
from tests.eval.rollout.scaled import suite_file, timeless
from tests.eval.rollout.worker_worlds import Unhurried, UnhurriedSuite
from tests.eval.train import test_train_cli

pytestmark = pytest.mark.timeout(3600)

Command = Callable[[Path], object]
"""Starts in a folder, or resumes there."""
Records = Sequence[tuple[str, object]]
"""Contents of a finished folder, by name: episodes, files, steps."""

EPISODES = 8


class SlowWorld(Unhurried):
    pause_s = 0.02


class SlowSuite(UnhurriedSuite):
    world = SlowWorld


def evaluate(suite: str, worlds: int, folder: Path) -> None:
    """`eval.run` in two modes."""
    from eval.run import app

    statuses = [json.loads(file.read_text())["status"] for file in folder.glob("[!.]*/manifest.json")]
    if statuses and set(statuses) == {"complete"}:  # killed after its end
        return
    given = f"--suite {suite} --init-ids 0-{EPISODES - 1} --policy noop --mode actions unified --video none"
    given = f"{given} --num-envs {worlds}"
    resume = ["--resume"] if statuses else []
    run_app(app, [*given.split(), "--no-report", "--output-dir", str(folder), *resume])


def collect(folder: Path, image_size: int = 8) -> None:
    """`eval.collect`, resumed by the same command."""
    assert collecting.collect(folder, pause_s=0.02, image_size=image_size) == 0


def train(arguments: tuple[str, ...], folder: Path) -> None:
    """`eval.train`."""
    resume = ["--resume"] if (folder / "run.json").is_file() else []
    with test_train_cli.in_a_world_without_physics():
        assert test_train_cli.call([*arguments, "--output-dir", str(folder), *resume]) == 0


_FORKING = multiprocessing.get_context("forkserver")
_PRELOADED = "eval.run eval.rollout.evaluation eval.monitors.console scipy.stats matplotlib.figure cv2"
_FORKING.set_forkserver_preload([__name__, *_PRELOADED.split()])
"""Commands are killed in forked processes: a kill every second leaves no time for imports."""


def killed(command: Command, folder: Path, after_s: float | None = None) -> bool:
    """Run the command, logging its output; returns whether it was killed. It may not end in any other way."""
    process = _FORKING.Process(target=_logged, args=(command, folder))
    process.start()
    process.join(after_s)
    workers = []
    with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
        workers = psutil.Process(process.pid).children()
    process.kill()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    assert not psutil.wait_procs(workers, timeout=120)[1], "its workers outlive it"
    return process.exitcode != 0


def _logged(command: Command, folder: Path) -> None:
    log = folder.with_suffix(".log").open("a")
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    command(folder)


def resumed_equals_uninterrupted(
    command: Command, folder: Path, least: int, records: Callable[[Path], Records]
) -> None:
    """Kill the command at random moments, at least so often, and compare every folder that it completes.

    Prints the numbers of kills and of records lost, doubled and different (`pytest -rP` shows them).
    """
    assert not killed(command, folder / "first")  # imports
    began = time.monotonic()
    assert not killed(command, folder / "whole")
    seconds = time.monotonic() - began
    assert seconds > 0.3, "it lasts long enough to be killed in the middle"
    expected, wrong = dict(records(folder / "whole")), collections.Counter()
    rng, kills, folders = random.Random(7), 0, 0
    while kills < least:
        again, limit = folder / str(folders), seconds
        while killed(command, again, rng.uniform(0, limit)):
            kills, limit = kills + 1, 1.05 * limit  # it ends on a machine that has become busy, too
        folders += 1
        found = records(again)
        names = {name for name, _ in found}
        wrong["lost"] += len(expected.keys() - names)
        wrong["doubled"] += len(found) - len(names)
        wrong["different"] += sum(name not in expected or each != expected[name] for name, each in found)
    sys.stdout.write(f"{kills} kills, {folders} folders of {len(expected)} records: {dict(wrong)}\n")
    assert not wrong.total()


def episodes_of(folder: Path) -> Records:
    """The episodes of both variants of the only evaluation in a folder."""
    runs = {run.read_manifest()["mode"]: run for run in map(RunFolder, folder.glob("[!.]*"))}
    assert sorted(runs) == ["actions", "unified"]
    assert len(list(folder.glob("[!.]*"))) == 2
    found = []
    for mode, run in runs.items():
        assert run.read_manifest()["status"] == "complete"
        assert json.loads(run.results_path.read_text()) == json.loads(json.dumps(results_of(run_rows(run))))
        played = timeless(Run(config=None, folder=run))
        for line in run.episodes_path.read_text().splitlines():
            key = str(EpisodeKey(**json.loads(line)["key"]))
            found.append((f"{mode} {key}", played[key]))
    assert len(found) >= 2 * EPISODES
    return found


@pytest.mark.parametrize(
    ("worlds", "least"),
    [(1, 3), pytest.param(1, 40, marks=pytest.mark.slow), pytest.param(2, 20, marks=pytest.mark.slow)],
)
def test_evaluations_are_resumed(tmp_path, worlds, least):
    suite = suite_file(tmp_path, "fake", SlowSuite, environment={"success_at": 12})
    command = functools.partial(evaluate, suite, worlds)
    resumed_equals_uninterrupted(command, tmp_path, least, episodes_of)


def evaluate_perturbed(folder: Path) -> None:
    """`eval.run` of a dimension of each medium, with two seeds."""
    from eval.run import app

    statuses = [json.loads(file.read_text())["status"] for file in folder.glob("[!.]*/manifest.json")]
    if len(statuses) == 2 and set(statuses) == {"complete"}:
        return
    given = "--suite droid_tabletop --task-ids 12 --init-ids 0 1 --seeds 7 8 --policy random --video none"
    given = f"{given} --max-steps 20 --perturb swap:2 light:3@0.5s noise:1 wording:3 --camera-size 32"
    resume = ["--resume"] if statuses else []
    run_app(app, [*given.split(), "--no-report", "--output-dir", str(folder), *resume])


def perturbed_episodes_of(folder: Path) -> Records:
    """The episodes of a control and of the perturbed run beside it."""
    runs = {run.read_manifest()["config"]["perturb"]: run for run in map(RunFolder, folder.glob("[!.]*"))}
    assert len(runs) == len(list(folder.glob("[!.]*"))) == 2
    return [
        (f"{perturb} {key}", episode)
        for perturb, run in runs.items()
        for key, episode in timeless(Run(config=None, folder=run)).items()
    ]


@pytest.mark.slow
def test_perturbed_evaluations_are_resumed(tmp_path):
    resumed_equals_uninterrupted(evaluate_perturbed, tmp_path, 4, perturbed_episodes_of)


def files_of(folder: Path) -> Records:
    """The demonstrations and the files of a dataset."""
    assert not list(folder.rglob("*.partial"))
    assert not (folder / ".assembling").exists()
    kept = json.loads((folder / layout.MANIFEST).read_text())["demonstrations"]
    return [*((key, "kept") for key in kept), *collecting.contents(folder).items()]


@pytest.mark.parametrize("least", [2, pytest.param(30, marks=pytest.mark.slow)])
def test_collections_are_resumed(tmp_path, least):
    resumed_equals_uninterrupted(collect, tmp_path, least, files_of)


def steps_of(folder: Path) -> Records:
    """The steps of a training, its checkpoints and the arrays of the last."""
    saved = sorted((folder / "checkpoints").iterdir())
    arrays = safetensors.numpy.load_file(saved[-1] / checkpoint.STATE_FILE)
    steps = [(f"step {line['step']}", line["loss"]) for line in read_log(folder) if "loss" in line]
    values = [(name, (array.shape, array.tobytes())) for name, array in arrays.items()]
    return [*steps, *((each.name, "saved") for each in saved), *values]


@pytest.mark.slow
def test_trainings_are_resumed(tmp_path):
    data, model = tmp_path / "data", test_train_cli.MODEL
    collect(data, image_size=model.image_size)
    given = f"--data {data} --model {model.name} --language-tasks narration --steps 6 --batch 2"
    arguments = (*given.split(), "--save-every", "2", "--log-every", "1")
    resumed_equals_uninterrupted(functools.partial(train, arguments), tmp_path, 30, steps_of)
