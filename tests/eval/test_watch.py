"""A page of a run that is going on: it follows the files, serves nothing else, and shows text as text."""

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request

import numpy as np
import pytest
from PIL import Image

from configs.cli import run_app
from configs.schema import RunConfig
from eval.records.following import FollowedRun
from eval.records.run_folders import find_unfinished, new_run
from eval.report.console import EvaluationConsole
from eval.report.pages.run_report import write_report
from eval.report.watching import WatchedEvaluation
from eval.rollout.evaluation import run_evaluation
from eval.rollout.executors.processes import Processes
from eval.rollout.live_picture import LivePicture
from eval.watch import app
from tests.eval.conftest import CONFIG, evaluate
from tests.eval.factory import RunBuilder, episode, key
from tests.eval.report.watched import Watching, going_on, picture
from tests.eval.rollout.scaled import suite_file
from tests.eval.rollout.worker_worlds import AwaitingSuite

HOSTILE = "<img src=x onerror=alert(1)> \x1b[31mred\x1b[0m </script>"


@pytest.fixture(autouse=True)
def read_often(monkeypatch) -> None:
    monkeypatch.setattr("eval.report.watch_server._POLL_S", 0.05)


@pytest.mark.slow
def test_two_worlds_are_shown_while_they_play(tmp_path, monkeypatch):
    mark = tmp_path / "seen"
    monkeypatch.setenv("SEEN_MARK", str(mark))
    words = {"instructions": ["put it there"]}
    suite = suite_file(tmp_path, "fake", AwaitingSuite, environment=words, camera_size=16)
    run = new_run(
        tmp_path / "runs", RunConfig(suites=(suite,), init_ids=(0, 1, 2), policy="noop", video="none")
    )
    sizes = []

    def fetch(watching, state):
        if len(state["playing"]) == 2 and not mark.exists():  # until then, both wait
            for each in state["playing"]:
                status, headers, body = watching.get(f"/{each['picture']}")
                assert (status, headers["Content-Type"]) == (200, "image/jpeg")
                sizes.append(_size(body))
            mark.touch()

    with contextlib.ExitStack() as stack:
        watching = []

        def monitor(runs, plan):
            watching.append(stack.enter_context(Watching(runs[0].folder.path, fetch)))
            return EvaluationConsole(runs, plan)

        run_evaluation(run, monitor=monitor, executor=Processes(num_envs=2))
        end = watching[0].until(lambda state: state["status"] == "complete")
        states = watching[0].events
    recorded = [state["recorded"] for state in states]
    assert recorded == sorted(recorded)
    assert {0, 3} <= set(recorded)
    assert sizes == [(32, 16)] * 2
    played = [each for state in states for each in state["playing"]]
    assert (5, 20) in {(each["step"], each["max_steps"]) for each in played}
    (row,) = end["runs"]
    assert row["solved"]["hits"] == row["solved"]["of"] == 3
    assert 0 < row["solved"]["low"] < 100
    assert row["latency_ms"]["action"]["p50"] >= 0
    assert end["plots"]["success"]["series"][0]["y"] == [100.0] * 3
    assert end["playing"] == []
    assert not list(run.folder.path.rglob("*.jpg"))


def test_the_page_survives_the_interruption_of_a_run_and_follows_it_when_it_is_resumed(tmp_path, policy):
    policy.interrupted_at = 5
    run = new_run(tmp_path, CONFIG)
    with pytest.raises(KeyboardInterrupt):
        evaluate(run)
    with Watching(run.folder.path) as watching:
        assert (watching.events[0]["status"], watching.events[0]["recorded"]) == ("interrupted", 2)
        evaluate(*find_unfinished(tmp_path, {}))
        end = watching.until(lambda state: state["status"] == "complete")
        assert (end["recorded"], end["planned"]) == (8, 8)
        assert not end["has_report"]
        write_report([run.folder.path], run.folder.path / "report")
        assert watching.until(lambda state: state["has_report"])
        status, headers, page = watching.get("/report/")
        assert (status, headers["Content-Type"]) == (200, "text/html")
        assert b"Success per task" in page
        assert watching.get("/report")[1]["Location"] == "/report/"


def test_variants_are_shown_together(tmp_path):
    names = ["actions", "unified", "gone"]
    for name in names[:2]:
        going_on(tmp_path / name, mode=name, variants=names).add_all("s")
    state = WatchedEvaluation(tmp_path / "unified").state()
    assert [row["label"] for row in state["runs"]] == ["actions", "unified"]
    assert [each["label"] for each in state["ended"]] == ["actions", "unified"]
    assert (state["recorded"], state["planned"]) == (2, 4)
    assert "variant gone is not shown" in state["problems"][0]


@pytest.mark.parametrize("name", ["../other", "..", "/etc", "link", "alone"])
def test_only_a_run_beside_it_that_says_the_same_is_a_variant(tmp_path, name):
    runs = tmp_path / "runs"
    going_on(runs / "run", variants=["run", name])
    RunBuilder.at(tmp_path / "other", variants=["run", name])
    RunBuilder.at(runs / "alone")
    (runs / "link").symlink_to(tmp_path / "other")
    watched = WatchedEvaluation(runs / "run")
    assert len(watched.runs) == 1
    assert "is not shown" in watched.state()["problems"][0]


def test_an_error_is_shown_with_its_traceback_and_all_text_as_text(tmp_path):
    run = going_on(tmp_path / "run", policy=HOSTILE, mode=HOSTILE)
    run.add(episode(key(), "error", error=HOSTILE, traceback=f"Traceback: {HOSTILE}", language=HOSTILE))
    picture(run.path, key(1))
    hostile = {"step": HOSTILE, "steps": float("nan"), "timings_ms": {"action": 10**400, "frame": [HOSTILE]}}
    run.folder.queries_path(key(1)).write_text(json.dumps(hostile) + "\n")
    with Watching(run.path) as watching:
        (error,) = watching.events[0]["errors"]
        assert error["traceback"] == f"Traceback: {HOSTILE}".replace("\x1b", "␛")
        (playing,) = watching.events[0]["playing"]
        assert (playing["step"], playing["latency_ms"]) == (None, {"action": None, "frame": None})
        assert "\x1b" not in json.dumps(watching.events[0], ensure_ascii=False)
        status, headers, page = watching.get("/")
        assert status == 200
        assert b"<img" not in page
        assert b"\x1b" not in page
        assert "default-src 'self'" in headers["Content-Security-Policy"]


def test_what_is_damaged_is_said_in_place(tmp_path):
    run = going_on(tmp_path / "run", n_planned=4).add_all("s")
    watched = FollowedRun(run.path)
    with run.folder.episodes_path.open("ab") as lines:
        lines.write(b"not JSON\n" + b'{"key": 7}\n' + b'{"torn')
    watched.refresh()
    assert [line.partition(":")[0] for line in watched.problems] == [
        "episodes.jsonl, line 2",
        "episodes.jsonl, line 3",
    ]
    run.add(episode(key(1), "timeout"))  # which replaces the torn line
    watched.refresh()
    assert list(watched.episodes) == [key(0), key(1)]
    manifest = run.folder.manifest_path.read_text()
    run.folder.manifest_path.write_text("nothing")
    watched.refresh()
    assert "manifest.json" in watched.problems[0]
    run.folder.manifest_path.write_text(manifest)
    watched.refresh()
    assert len(watched.problems) == 2


def test_a_retried_episode_counts_once_and_a_new_file_from_its_start(tmp_path):
    run = going_on(tmp_path / "run").add(episode(key(), "error")).add(episode(key(1)))
    watched = FollowedRun(run.path)
    run.add(episode(key()))
    assert watched.refresh()
    assert [result.outcome.value for result in watched.episodes.values()] == ["success", "success"]
    assert not watched.refresh()
    run.folder.episodes_path.unlink()
    run.add(episode(key(2)))
    watched.refresh()
    assert list(watched.episodes) == [key(2)]


def test_a_run_without_a_process_is_stopped_and_its_old_pictures_are_not_shown(tmp_path, monkeypatch):
    monkeypatch.setattr("eval.records.following._SILENT_S", 0.0)
    monkeypatch.setattr("eval.records.following._PROBED_EVERY_S", 0.0)
    run = going_on(tmp_path / "run")
    picture(run.path)
    with run.folder.locked():
        watched = FollowedRun(run.path)
        assert (watched.status, [each.key for each in watched.playing]) == ("running", [key()])
    watched.refresh()
    assert (watched.status, watched.playing) == ("stopped", ())
    run.folder.write_manifest({**run.folder.read_manifest(), "started": "2100-01-01T00:00:00+00:00"})
    with run.folder.locked():
        watched.refresh()
    assert (watched.status, watched.playing) == ("running", ())


def test_the_remaining_time_is_that_of_the_pace(tmp_path):
    run = going_on(
        tmp_path / "run", n_planned=4, attempts=[{"started": "2026-01-01T00:00:00Z", "finished": None}]
    )
    watched = WatchedEvaluation(run.path)
    assert watched.state()["left_s"] is None
    began = 1767225600
    run.add(episode(key()))
    os.utime(run.folder.episodes_path, (began + 60, began + 60))
    assert watched.state()["left_s"] == 180.0


def call(*arguments) -> int:
    with pytest.raises(SystemExit) as stopped:
        run_app(app, [str(each) for each in arguments])
    return stopped.value.code


def test_bad_input_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = RunBuilder.at(tmp_path / "runs" / "run").path
    (tmp_path / "empty").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        for arguments, said in {
            ("nowhere",): "no folder 'nowhere'",
            ("empty",): "empty is not a run: cannot read manifest.json",
            ("runs",): "give one of them, such as runs/run",
            (run, "--port", 70000): "--port is 70000: give 0 to 65535",
            (run, "--port", port): f"cannot listen at 127.0.0.1, port {port}",
            (run, "--prot", 1): "did you mean '--port'",
        }.items():
            assert call(*arguments) == 2
            out, err = capsys.readouterr()
            assert (out, err.count("\n")) == ("", 1)
            assert said in err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it(tmp_path, number):
    run = going_on(tmp_path / "run").path
    program = [sys.executable, "-m", "eval.watch", str(run), "--port", "0"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said = process.stdout.readline()
        assert "http://127.0.0.1:" in said
        url = said[said.index("http") :].split()[0]
        with urllib.request.urlopen(f"{url}events") as events:  # an open page does not hold it up
            assert events.readline().startswith(b"data: ")
            process.send_signal(number)
            assert process.wait(60) == 0
        assert process.stderr.read() == ""


def test_an_episode_shows_a_picture_a_second_and_leaves_none(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("eval.rollout.live_picture.time.monotonic", lambda: now[0])
    live = LivePicture(tmp_path / "one.jpg")
    tall, wide = np.zeros((512, 64, 3), np.uint8), np.full((32, 64, 3), 200, np.uint8)
    assert live.show({"tall": tall, "wide": wide})
    assert _size(live.path.read_bytes()) == (32 + 512, 256)
    now[0] = 0.9
    assert not live.show({"wide": wide})
    now[0] = 1.0
    assert live.show({"wide": wide})
    assert _size(live.path.read_bytes()) == (64, 32)
    live.remove()
    assert list(tmp_path.iterdir()) == []
    now[0] = 2.0
    assert LivePicture(tmp_path / "no" / "folder.jpg").show({"wide": wide})  # left out, and nothing raised


def _size(jpeg: bytes) -> tuple[int, int]:
    with Image.open(io.BytesIO(jpeg)) as picture:
        return picture.size
