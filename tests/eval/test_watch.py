"""The live report of a run follows its records and serves nothing else."""

import asyncio
import contextlib
import io
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
import pytest
from aiohttp.test_utils import TestClient, TestServer
from PIL import Image

from configs.paths import locked
from configs.schema import RunConfig
from eval.monitors.console import EvaluationConsole
from eval.records.run_folders import find_unfinished, new_run
from eval.report.watch_server import LiveReport
from eval.rollout.evaluation import run_evaluation
from eval.rollout.executors.executor import Processes
from eval.rollout.prepare import prepare
from eval.rollout.recorder import LivePicture
from eval.watch import app
from tests.eval.conftest import evaluate, play_until_ctrl_c
from tests.eval.factory import RunBuilder, episode, key
from tests.eval.rollout.scaled import suite_file
from tests.eval.rollout.worker_worlds import AwaitingSuite

HOSTILE = "<img src=x onerror=alert(1)> \x1b[31mred\x1b[0m </script>"


def going_on(path, **manifest) -> RunBuilder:
    return RunBuilder.at(path, status="running", **manifest)


def picture(run, init_id=0) -> None:
    path = run.folder.picture_path(key(init_id))
    path.parent.mkdir(exist_ok=True)
    assert LivePicture(path).show({"image": np.zeros((8, 16, 3), np.uint8)})


def served(report, *paths, **headers):
    """Status, content type and body of each path, once the report has been refreshed."""

    async def ask():
        async with TestClient(TestServer(report.app())) as client:
            answers = [await client.get(path, headers=headers) for path in paths]
            assert all(each.headers["Cache-Control"] == "no-store" for each in answers), "also of refusals"
            return [(each.status, each.content_type, await each.read()) for each in answers]

    report.refresh()
    return asyncio.run(ask())


def state(report):
    """What the page asks for every second."""
    return json.loads(served(report, "/live")[0][2])


def page(report) -> str:
    return served(report, "/")[0][2].decode()


def test_the_page_is_the_report_and_follows_the_records(tmp_path):
    run = going_on(tmp_path / "run", n_planned=3).add_all("s")
    picture(run, init_id=1)
    report = LiveReport(run.path)
    before = state(report)
    assert before["words"] == "Running: 1 of 3 episodes recorded."
    ((name, where),) = [each.values() for each in before["playing"]]
    assert name == f"tiny: {key(1)}"
    assert served(report, f"/{where}")[0][:2] == (200, "image/jpeg")
    assert "tiny solved 100 % of 1 episode " in page(report)
    run.folder.picture_path(key(1)).unlink()
    run.add(episode(key(1), "timeout")).add(episode(key(2)))
    run.folder.write_manifest({**run.folder.read_manifest(), "status": "complete"})
    after = state(report)
    assert (after["words"], after["playing"]) == ("Complete: 3 of 3 episodes recorded.", [])
    assert after["version"] != before["version"]
    assert "tiny solved 67 % of 3 episodes " in page(report)
    assert state(report)["version"] == after["version"], "rebuilt without a change"
    names = re.findall(r'(?:src|href)="([^"#:]+)"', page(report))
    assert {status for status, _, _ in served(report, *names, f"episodes/{key(2)}.js")} == {200}


@pytest.mark.slow
def test_two_worlds_are_shown_while_they_play(tmp_path, monkeypatch):
    mark = tmp_path / "seen"
    monkeypatch.setenv("SEEN_MARK", str(mark))
    words = {"instructions": ["put it there"]}
    suite = suite_file(tmp_path, "fake", AwaitingSuite, environment=words, camera_size=16)
    run = new_run(tmp_path / "runs", RunConfig(suites=(suite,), init_ids=(0, 1), policy="noop", video="none"))
    sizes = []

    def watch() -> None:
        report = LiveReport(run.folder.path)
        deadline = time.monotonic() + 120
        while len(playing := state(report)["playing"]) < 2 and time.monotonic() < deadline:
            time.sleep(0.2)
        sizes.extend(
            _size(body) for _, _, body in served(report, *(f"/{each['picture']}" for each in playing))
        )
        mark.touch()  # until then, both wait

    watcher = threading.Thread(target=watch)

    def monitor(runs, plan):
        watcher.start()
        return EvaluationConsole(runs, plan)

    run_evaluation(prepare([run], executor=Processes(num_envs=2)), monitor=monitor)
    watcher.join()
    assert sizes == [(32, 16)] * 2
    assert not list(run.folder.path.rglob("*.jpg"))


def test_the_page_follows_a_run_that_is_interrupted_and_resumed(tmp_path, policy):
    policy.interrupted_at = 5
    report = LiveReport(play_until_ctrl_c(tmp_path).path)
    assert state(report)["words"].startswith("Interrupted: 2 of 8 episodes recorded; the same command with")
    evaluate(*find_unfinished(tmp_path, {}))
    assert state(report)["words"] == "Complete: 8 of 8 episodes recorded."


def test_a_killed_run_is_stopped_and_its_old_pictures_are_not_shown(tmp_path):
    run = going_on(tmp_path / "run").add_all("s")
    picture(run)
    report = LiveReport(run.path)
    with locked(run.path):
        assert [len(state(report)["playing"]), state(report)["words"][:7]] == [1, "Running"]
    killed = state(report)
    assert (killed["words"][:7], killed["playing"]) == ("Stopped", [])
    run.folder.write_manifest({**run.folder.read_manifest(), "started": "2100-01-01T00:00:00+00:00"})
    with locked(run.path):
        assert (state(report)["words"][:7], state(report)["playing"]) == ("Running", [])


def test_variants_are_shown_together(tmp_path):
    names = ["actions", "unified", "gone", "../other"]
    for name in names[:2]:
        going_on(tmp_path / "runs" / name, mode=name, variants=names, n_planned=2).add_all("s")
    RunBuilder.at(tmp_path / "other", mode="isolated")
    report = LiveReport(tmp_path / "runs" / "unified")
    assert re.findall(r"<td><span.*</span>(\w+)</span></td>", page(report)) == ["actions", "unified"]
    assert state(report)["words"] == "Running: 2 of 4 episodes recorded."


def test_a_run_is_awaited_and_damage_is_named_beside_the_last_report(tmp_path):
    report = LiveReport(tmp_path / "run")
    assert "no folder" in page(report)
    run = going_on(tmp_path / "run").add_all("s")
    assert "tiny solved 100 % of 1 episode " in page(report)
    manifest = run.folder.manifest_path.read_text()
    run.folder.manifest_path.write_text("nothing")
    assert "manifest.json" in state(report)["problem"]
    assert "tiny solved 100 % of 1 episode " in page(report)
    run.folder.manifest_path.write_text(manifest)
    assert state(report)["problem"] == ""


def test_the_remaining_time_is_that_of_the_pace(tmp_path, monkeypatch):
    now = [1767225600.0]
    monkeypatch.setattr("eval.report.watch_server.time.time", lambda: now[0])
    run = going_on(tmp_path / "run", n_planned=5).add_all("s")
    report = LiveReport(run.path)
    assert state(report)["words"] == "Running: 1 of 5 episodes recorded."
    now[0] += 60
    run.add(episode(key(1)))
    assert state(report)["words"] == "Running: 2 of 5 episodes recorded, about 0:03:00 left."


def test_nothing_but_the_report_is_served_and_only_to_this_machine(tmp_path):
    run = going_on(tmp_path / "run").add_all("s")
    (tmp_path / "run" / "queries" / "secret.txt").write_text("secret")
    report = LiveReport(run.path)
    for path in ("manifest.json", "live/0/secret.txt", "live/0/..%2f..%2fmanifest.json", "live.html"):
        assert served(report, f"/{path}")[0][0] == 404
    for host, status in {"LOCALHOST:8100": 200, "127.0.0.1.evil.example": 403}.items():
        assert [each[0] for each in served(report, "/", "/live", Host=host)] == [status] * 2


def test_bad_input_is_one_line(tmp_path, refused, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = RunBuilder.at(tmp_path / "runs" / "run").path
    (tmp_path / "empty").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        for arguments, said in {
            ("empty",): "no run in empty",
            ("runs",): "give one of them, such as runs/run",
            (run, "--port", 70000): "--port is 70000: give 0 to 65535",
            (run, "--port", port): f"cannot listen at 127.0.0.1, port {port}",
        }.items():
            assert said in refused(app, *arguments)


@contextlib.contextmanager
def watching(run):
    """The command in another process, and its address."""
    program = [sys.executable, "-m", "eval.watch", str(run), "--port", "0"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process, re.search(r"http://[\d.:]+/", process.stdout.readline())[0]
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_server(tmp_path, number):
    with watching(going_on(tmp_path / "run").path) as (process, url):
        with urllib.request.urlopen(f"{url}live") as answer:
            assert answer.status == 200
        process.send_signal(number)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


def test_an_episode_shows_a_picture_a_second_and_leaves_none(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("eval.rollout.recorder.time.monotonic", lambda: now[0])
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
    with Image.open(io.BytesIO(jpeg)) as found:
        return found.size
