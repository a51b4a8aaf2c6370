"""After `kill -9` at random moments, a resumed run has no lost, doubled or different records."""

import collections
import contextlib
import functools
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest
import safetensors.numpy

from configs.cli import run_app
from configs.schema import RunConfig
from eval.metrics.success import summarize
from eval.records.run_folders import Run, SweepFolder
from eval.records.schema import EpisodeKey, RunFolder
from eval.rollout.executors.executor import SERIAL
from oxygen.training import checkpoint, layout
from oxygen.training.run_folder import read_log
from sim_envs.fake import FakeSuite
from tests.eval.collect import collecting
from tests.eval.rollout.scaled import played, suite_file, timeless
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
_PRELOADED = "eval.run eval.rollout.evaluation eval.report.console scipy.stats matplotlib.figure cv2"
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
        assert json.loads(run.results_path.read_text()) == json.loads(json.dumps(summarize(run.path)))
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


KILLS = 20
MANY = 60


def long_run(tmp_path: Path, suite: type = UnhurriedSuite) -> RunConfig:
    environment = {"init_ids": MANY, "success_at": 12}
    file = suite_file(tmp_path, "fake", suite, environment=environment)
    return RunConfig(suites=(file,), init_ids=tuple(range(MANY)), policy="noop", video="none")


def start(tmp_path: Path, *more: str) -> subprocess.Popen:
    (suite,) = long_run(tmp_path).suites
    command = [
        *(sys.executable, "-m", "eval.run", "--suite", suite, "--init-ids", f"0-{MANY - 1}"),
        *("--policy", "noop", "--video", "none", "--num-envs", "2", "--output-dir", str(tmp_path / "runs")),
    ]
    return subprocess.Popen([*command, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def workers(run: subprocess.Popen) -> list[psutil.Process]:
    try:
        children = psutil.Process(run.pid).children()
        return [each for each in children if "spawn_main" in " ".join(each.cmdline())]
    except psutil.NoSuchProcess:
        return []


def begun(tmp_path: Path, run: subprocess.Popen) -> None:
    """Wait until it plays."""
    while not (workers(run) and list((tmp_path / "runs").glob("*/manifest.json"))):
        assert run.poll() is None, "it has ended before it was killed"
        time.sleep(0.05)


def ended(tmp_path: Path) -> int:
    """Episodes that have ended so far."""
    return sum(path.read_text().count("\n") for path in (tmp_path / "runs").glob("*/episodes.jsonl"))


def kill_any(run: subprocess.Popen, rng: random.Random) -> None:
    """Kill one of its workers, as soon as it has any."""
    while not (found := workers(run)):
        assert run.poll() is None, "it has ended before its workers were killed"
    os.kill(rng.choice(found).pid, signal.SIGKILL)


def check_whole(tmp_path: Path) -> None:
    (folder,) = [RunFolder(path.parent) for path in (tmp_path / "runs").glob("*/manifest.json")]
    config = long_run(tmp_path, FakeSuite)
    (expected,) = played(tmp_path / "expected", config, executor=SERIAL)
    assert timeless(Run(config=config, folder=folder)) == timeless(expected)
    lines = [json.loads(line) for line in folder.episodes_path.read_text().splitlines()]
    graded = [str(line["key"]) for line in lines if line["outcome"] != "error"]
    assert len(set(graded)) == len(graded) == MANY
    assert folder.read_manifest()["status"] == "complete"


@pytest.mark.slow
def test_killed_workers_are_replaced(tmp_path):
    rng = random.Random(7)
    run = start(tmp_path)
    begun(tmp_path, run)
    for _ in range(KILLS):
        before = ended(tmp_path)
        time.sleep(rng.uniform(0, 2))
        kill_any(run, rng)
        while ended(tmp_path) == before:  # however slow the machine is at starting processes
            time.sleep(0.05)
    assert run.wait() == 0, "the run has come to its end"
    while start(tmp_path, "--resume").wait() == 0:  # plays again what was hit twice, and was an error
        pass
    check_whole(tmp_path)


@pytest.mark.slow
def test_a_sweep_killed_and_resumed_equals_an_uninterrupted_one(tmp_path):
    rng = random.Random(7)
    suite = suite_file(tmp_path, "fake", UnhurriedSuite)
    command = [
        *(sys.executable, "-m", "eval.sweep", "--suite", suite, "--init-ids", "0-3", "--policy", "noop"),
        *("--mode", "actions", "--clock", "fixed:0,0", "fixed:100,200", "--replan-steps", "2", "5"),
        *("--while-waiting", "continue", "hold", "--num-envs", "2"),
    ]
    once, again = (tmp_path / name for name in ("once", "again"))
    assert subprocess.run([*command, "--output-dir", once], check=False).returncode == 0
    resume: tuple[str, ...] = ()
    for _ in range(KILLS):
        run = subprocess.Popen([*command, "--output-dir", again, *resume])
        while run.poll() is None and not list(again.glob("*/*/manifest.json")):
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 4))
        run.kill()
        run.wait()
        resume = ("--resume",)
        if run.returncode == 0:
            break
    else:
        assert subprocess.run([*command, "--output-dir", again, "--resume"], check=False).returncode == 0
    (first,), (second,) = (list(map(SweepFolder, each.iterdir())) for each in (once, again))
    assert [run.config for run in first.runs()] == [run.config for run in second.runs()]
    assert [timeless(run) for run in first.runs()] == [timeless(run) for run in second.runs()]
    rows, again = (
        [{**row, "run": None, "against": None} for row in sweep.read()["cells"]] for sweep in (first, second)
    )
    assert rows == again
