"""A log holds success, latency and videos of a run, also of a resumed one, and never costs an episode."""

import functools
import json
import sys
from types import SimpleNamespace

import pytest

from configs.exits import INPUT_ERROR, exit_code_of
from contracts.errors import UsageError
from contracts.mode import Mode
from contracts.monitor import Monitor
from eval import run as run_command
from eval.monitors.console import EvaluationConsole
from eval.monitors.loggers import LoggingMonitor, log_id, with_log
from eval.records.run_folders import find_unfinished, new_run
from eval.rollout.evaluation import run_evaluation
from eval.rollout.prepare import prepare
from tests.commands import call
from tests.eval.conftest import CONFIG
from tests.oxygen.training.test_run import records

CONFIG = CONFIG.model_copy(update={"suites": ("libero_goal",), "task_ids": (0,), "num_trials_per_task": 3})
WITH_VIDEO = CONFIG.model_copy(update={"num_trials_per_task": 1, "video": "all"})
MINIMAL = {"success/rate", "success/low", "success/high", "episode/errors", "episode/steps"}
MORE = {
    "episode/time_to_success_s",
    *(f"latency_ms/{s}_{q}" for s in ("action", "frame") for q in ("p50", "p95")),
}


class Log:
    """A logger that keeps what it is told."""

    where = "in memory"
    logs: list["Log"]

    def __init__(self, run, group, fails=()):
        self.run, self.group, self.fails = run, group, fails
        self.entries, self.closed = [], False
        self._fail("open")
        self.logs.append(self)

    def log(self, values, videos, *, step):
        self._fail("log")
        self.entries.append((step, dict(values), dict(videos)))

    def close(self):
        self._fail("close")
        self.closed = True

    def _fail(self, where):
        if where in self.fails:
            raise ConnectionError(f"no\nserver to {where}")


@pytest.fixture
def logs(monkeypatch):
    monkeypatch.setattr(Log, "logs", [], raising=False)
    return Log.logs


def evaluate(*runs, opens=Log):
    def monitor(of, plan):
        log = LoggingMonitor(of, plan, name="memory", open_logger=opens)
        return Monitor(log, EvaluationConsole(of, plan))

    return run_evaluation(prepare(runs), monitor=monitor, max_errors=9)


def in_two_modes(folder, config):
    return [
        new_run(folder, config.model_copy(update={"mode": Mode(mode)})) for mode in ("isolated", "unified")
    ]


def test_every_episode_is_logged_with_the_rates_so_far(tmp_path, policy, logs, capsys):
    runs = in_two_modes(tmp_path, CONFIG)
    (of, _) = evaluate(*runs)
    assert capsys.readouterr().out.count("Log: in memory\n") == 1
    assert [log.group for log in logs] == [runs[0].folder.run_id] * 2
    for log in logs:
        assert log.closed
        assert [step for step, *_ in log.entries] == [1, 2, 3]
        assert all(values.keys() >= MINIMAL | MORE for _, values, _ in log.entries)
        last = log.entries[-1][1]
        assert last["success/rate"] == of.overall.pc_success == 100.0
        assert [last["success/low"], last["success/high"]] == list(of.overall.pc_success_ci95)
        assert (last["latency_ms/action_p50"], last["latency_ms/frame_p95"]) == (2.0, 5.0)


def test_errors_are_counted_and_are_in_no_rate(tmp_path, policy, logs):
    policy.fails_at = 0
    evaluate(new_run(tmp_path, CONFIG))
    (log,) = logs
    assert [values["episode/errors"] for _, values, _ in log.entries] == [1, 2, 3]
    assert not any("success/rate" in values for _, values, _ in log.entries)


def test_a_resumed_run_continues_its_log(tmp_path, policy, logs):
    policy.interrupted_at = 1
    with pytest.raises(KeyboardInterrupt):
        evaluate(new_run(tmp_path, CONFIG))
    assert logs[0].closed
    evaluate(*find_unfinished(tmp_path, {}))
    first, second = logs
    assert log_id(first.run) == log_id(second.run)
    assert [step for log in logs for step, *_ in log.entries] == [1, 2, 3]
    other = new_run(tmp_path, CONFIG.model_copy(update={"seeds": (8,)}))
    evaluate(other)
    one, another = (log_id(run).removeprefix(run.folder.run_id) for run in (first.run, other))
    assert one != another


@pytest.mark.parametrize("fails", ["open", "log", "close"])
def test_a_logger_that_fails_loses_no_episode_and_is_reported_once(tmp_path, policy, logs, capsys, fails):
    run = new_run(tmp_path, CONFIG)
    (results,) = evaluate(run, opens=functools.partial(Log, fails=(fails,)))
    assert results.overall.n_success == len(run.folder.episodes()) == 3
    assert run.folder.read_manifest()["status"] == "complete"
    said = capsys.readouterr().err
    assert said.count("\n") == said.count("memory failed") == 1
    assert f"ConnectionError: no server to {fails}" in said


@pytest.mark.parametrize(
    ("name", "package"), [("wandb", "wandb"), ("trackio", "trackio"), ("tensorboard", "tensorboardX")]
)
def test_a_missing_package_is_named_with_the_extra_that_installs_it(name, package, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, package, None)
    assert exit_code_of(lambda: with_log(EvaluationConsole, [name])) == INPUT_ERROR
    assert f"{package}, which is not installed: run uv pip install -e '.[{name}]'" in capsys.readouterr().err


class Tracker:
    """A stand-in for the modules wandb and trackio, with the functions that loggers call."""

    def __init__(self, *, mode):
        self.runs, self.mode = [], mode
        self.has_key = self.key_is_stale = False
        self.errors = SimpleNamespace(Error=type("AuthenticationError", (Exception,), {}))

    def login(self, *, prompt):
        assert not prompt
        if self.key_is_stale:
            raise self.errors.Error("API key verification failed:\ninvalid key")
        return self.has_key

    def setup(self):
        return SimpleNamespace(settings=SimpleNamespace(mode=self.mode))

    def init(self, **options):
        run = SimpleNamespace(
            options=options, entries=[], url="https://example.org/run", define_metric=lambda *_, **__: None
        )
        run.log = lambda values, step=None: run.entries.append((values.pop("episode", step), values))
        run.finish = lambda: run.entries.append("finished")
        self.runs.append(run)
        return run

    def Settings(self, **_):  # noqa: N802 - wandb's name
        return None

    def Video(self, path, format):  # noqa: A002, N802 - their names
        return path, format


def test_several_loggers_are_given_by_name(started):
    options = ["--suite", "libero_goal", "--policy", "noop", "--log"]
    assert call(run_command.app, *options, "tensorboard", "wand") == INPUT_ERROR
    assert call(run_command.app, *options, "tensorboard,tensorboard") == 0


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_both_trackers_are_told_the_same_also_beside_tensorboard(name, monkeypatch, tmp_path, policy):
    module = Tracker(mode="offline")
    monkeypatch.setitem(sys.modules, name, module)
    run = new_run(tmp_path, WITH_VIDEO)
    run_evaluation(prepare([run]), monitor=with_log(EvaluationConsole, ["tensorboard", name]))
    assert "success/rate" in scalars(run.folder.path)
    (told,) = module.runs
    options = told.options
    assert log_id(run) in (options.get("id"), options["name"])
    assert (options["project"], options["group"]) == ("oxygen-eval", run.folder.run_id)
    assert options["resume"] == "allow"
    assert json.dumps(options["config"]["config"])
    (step, values), finished = told.entries
    assert (step, finished) == (1, "finished")
    assert values.keys() >= MINIMAL | MORE | {"video/libero_goal/task00"}
    path, form = values["video/libero_goal/task00"]
    assert form == "mp4"
    assert path.endswith(".mp4")


def test_wandb_without_a_key_is_refused_before_anything_runs(monkeypatch):
    module = Tracker(mode="online")
    monkeypatch.setitem(sys.modules, "wandb", module)
    with pytest.raises(UsageError, match="WANDB_MODE=offline"):
        with_log(EvaluationConsole, ["wandb"])
    module.has_key = module.key_is_stale = True
    with pytest.raises(UsageError, match="verification failed: invalid key; run wandb login --relogin"):
        with_log(EvaluationConsole, ["wandb"])
    module.key_is_stale = False
    assert with_log(EvaluationConsole, ["wandb"])


def scalars(folder):
    """Tag to steps and values in the event files of a run."""
    found = {}
    for file in sorted((folder / "events").iterdir()):
        for event in records(file):
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value, value.image))
    return found


def interrupted_and_resumed(runs, policy, logger):
    """The run of two episodes with videos that was interrupted in between."""
    policy.interrupted_at = 1
    config = WITH_VIDEO.model_copy(update={"num_trials_per_task": 2})
    monitor = with_log(EvaluationConsole, [logger])
    with pytest.raises(KeyboardInterrupt):
        run_evaluation(prepare([new_run(runs, config)]), monitor=monitor)
    (run,) = find_unfinished(runs, {})
    run_evaluation(prepare([run]), monitor=monitor)
    return run


def test_tensorboard_reads_back_what_was_logged(tmp_path, policy, capsys):
    runs = tmp_path / "my runs"
    run = interrupted_and_resumed(runs, policy, "tensorboard")
    assert len(list((run.folder.path / "events").iterdir())) == 2
    assert f"tensorboard --logdir '{runs}'\n" in capsys.readouterr().out, "as a shell takes it"
    found = scalars(run.folder.path)
    assert [(step, value) for step, value, _ in found["success/rate"]] == [(1, 100.0), (2, 100.0)]
    films = [image for *_, image in found["video/libero_goal/task00"]]
    assert [film.encoded_image_string[:6] for film in films] == [b"GIF89a"] * 2
    assert len(found["run/text_summary"]) == 1


@pytest.mark.filterwarnings("default")
def test_wandb_itself_takes_it_offline(tmp_path, policy, monkeypatch):
    pytest.importorskip("wandb", reason="uv pip install -e '.[wandb]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(sys, "argv", ["eval.run", "--policy=ws://me:S3CRET@host"])
    runs = in_two_modes(tmp_path, WITH_VIDEO)
    run_evaluation(prepare(runs), monitor=with_log(EvaluationConsole, ["wandb"]))
    for run in runs:
        (file,) = run.folder.path.rglob("*.wandb")
        content = file.read_bytes()
        for logged in ("success/rate", log_id(run), runs[0].folder.run_id):
            assert logged.encode() in content
        assert b"S3CRET" not in content, "W&B's own record of the command line"
        assert list(file.parent.rglob("*.mp4"))


@pytest.mark.filterwarnings("default")
def test_trackio_itself_takes_it(tmp_path, policy, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio", reason="uv pip install -e '.[trackio]'")
    from trackio.sqlite_storage import SQLiteStorage

    run = interrupted_and_resumed(tmp_path / "runs", policy, "trackio")
    logged = SQLiteStorage.get_logs("oxygen-eval", log_id(run))
    assert [(entry["step"], entry["success/rate"]) for entry in logged] == [(1, 100.0), (2, 100.0)]
    assert len(list((tmp_path / "trackio").rglob("*.mp4"))) == 2
