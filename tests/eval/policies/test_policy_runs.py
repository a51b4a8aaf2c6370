"""Whole runs with classes and servers: what goes wrong is recorded in its episode, and the next one goes on.

Outcomes are those in the table of docs/evaluate.md.
"""

import contextlib
import socket
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from configs.exits import INPUT_ERROR
from configs.policy_server import ServeConfig
from contracts.episode import Outcome
from eval import libero
from eval.records.query_logs import read_queries
from eval.rollout.executors.executor import Processes
from oxygen.presets.policies import read_model_policy
from oxygen.server.launch import open_served
from sim_envs.fake import FakeSuite, FakeWorld
from tests.commands import call
from tests.eval.conftest import CONFIG, play
from tests.eval.doubles import without_physics
from tests.eval.policies.servers import ACTIONS, OpenpiServer, served_answer, served_metadata, serving
from tests.eval.rollout.scaled import suite_file
from tests.oxygen.server.server_thread import PolicyServerThread

TWO = CONFIG.model_copy(update={"suites": ("libero_object",), "task_ids": (0,)})
"""Two episodes, each of two queries."""


@pytest.fixture(autouse=True)
def quick_worlds(monkeypatch):
    without_physics(monkeypatch, lambda task: FakeWorld(success_at=7))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "policy_mine", None)


_CLASS = """
import sys, time
import numpy as np

GOOD = np.zeros((10, 7))
class Mine:
    embodiment = "libero"
    horizon = 10
    queries = resets = 0

    def infer(self, obs):
        self.queries += 1
        if self.queries != 2:
            return {{"actions": GOOD}}
        {infer}

    def reset(self):
        self.resets += 1
        {reset}
"""


def written(folder: Path, infer: str = "return {'actions': GOOD}", reset: str = "pass"):
    file = folder / "mine.py"
    file.write_text(_CLASS.format(infer=infer, reset=reset))
    return f"{file}:Mine"


def played(folder: Path, policy: str, **how):
    return list(play(folder / "runs", TWO, how, policy=policy, max_steps=10).episodes().values())


@pytest.mark.parametrize(
    ("infer", "outcome", "said"),
    [
        ("raise ValueError('no \\x1b[31mweights')", "error", "weights (mine.py, line 15)"),
        ("sys.exit(3)", "error", "SystemExit: 3"),
        ("return None", "error", "answered with NoneType, not a dict with 'actions'"),
        ("return {'actions': GOOD[:4]}", "invalid_action", "shape (4, 7); expected at least 5"),
        ("print('\\x1b[2J'); return {'actions': GOOD}", "success", None),
    ],
)
def test_one_bad_query_costs_its_episode_alone(tmp_path, infer, outcome, said):
    first, second = played(tmp_path, written(tmp_path, infer))
    assert first.outcome == outcome
    assert (said is None and first.error is None) or said in first.error
    assert second.outcome is Outcome.SUCCESS


@pytest.mark.parametrize("kind", ["class", "server"])
def test_a_policy_that_declares_no_robot_plays_the_suites(tmp_path, kind):
    file = tmp_path / "point.py"
    file.write_text(
        "import numpy as np\n\nclass Right:\n    def infer(self, obs):\n"
        "        assert obs['observation/image'].shape == (64, 64, 3)\n"
        "        return {'actions': np.ones((10, 1)) * (obs['observation/x'] < 1)}\n\n"
        "    def reset(self):\n        pass\n"
    )
    suite = str(Path(__file__).parents[3] / "examples" / "point_suite.yaml")
    how = {"suites": (suite,), "num_trials_per_task": 2, "policy_kwargs": {}}
    with OpenpiServer(lambda obs: {"actions": np.ones((10, 1)) * (obs["observation/x"] < 1)}) as server:
        policy = {"class": f"{file}:Right", "server": server.url}[kind]
        _, episodes = recorded(tmp_path, server, **how, policy=policy)
    assert [each.outcome for each in episodes] == [Outcome.SUCCESS] * 2


@pytest.mark.parametrize("hanging", ["time.sleep(60)", "while True: pass"])
def test_a_query_that_hangs_is_an_error_after_its_time(tmp_path, hanging):
    first, second = played(tmp_path, written(tmp_path, hanging), query_timeout_s=1.0)
    assert first.outcome is Outcome.ERROR
    assert "QueryTimeoutError: the policy has not answered a query within 1 s (mine.py, line" in first.error
    assert second.outcome is Outcome.SUCCESS


def test_a_reset_that_fails_is_an_error(tmp_path):
    first, second = played(tmp_path, written(tmp_path, reset="if self.resets == 1: sys.exit(1)"))
    assert (first.outcome, second.outcome) == (Outcome.ERROR, Outcome.SUCCESS)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["infer", "reset"])
def test_outcomes_are_the_same_in_worker_processes(tmp_path, wrong):
    suite = suite_file(
        tmp_path, "fake", FakeSuite, environment={"success_at": 7, "init_ids": 10}, camera_size=256
    )
    body = {"infer": "sys.exit(3)"} if wrong == "infer" else {"reset": "if self.resets == 1: sys.exit(3)"}
    own = {"policy": written(tmp_path, **body), "suites": (suite,), "num_trials_per_task": 3, "max_steps": 10}
    run = play(tmp_path / "runs", TWO, {"executor": Processes(num_envs=2)}, **own)
    outcomes = [each.outcome for each in run.episodes().values()]
    assert sorted(outcomes) == ["error", "error", "success"]


@pytest.mark.slow
def test_a_server_that_batches_has_the_queries_of_all_worlds_at_once(tmp_path):
    """Each world has its own connection, and none waits for another's answer."""
    together = threading.Barrier(2)

    def answer(query):
        together.wait(60)  # breaks if the other world's query only comes after this answer
        return {"actions": np.zeros((10, 7))}

    suite = suite_file(tmp_path, "fake", FakeSuite, environment={"init_ids": 10}, camera_size=256)
    own = {
        "suites": (suite,),
        "num_trials_per_task": 2,
        "max_steps": 10,
        "policy_kwargs": {"timeout_s": 60.0},
    }
    with OpenpiServer(answer, metadata={"embodiment": "libero"}) as server:
        run = play(tmp_path / "runs", TWO, {"executor": Processes(num_envs=2)}, policy=server.url, **own)
    assert [each.outcome for each in run.episodes().values()] == [Outcome.TIMEOUT, Outcome.TIMEOUT]


GOOD = {"actions": ACTIONS / 100}


def recorded(tmp_path, server, **changes):
    """The episodes of a run, in order."""
    kwargs = {"embodiment": "libero", "timeout_s": 0.5, "connect_timeout_s": 1}
    run = play(tmp_path, TWO, **{"policy": server.url, "policy_kwargs": kwargs, **changes})
    return run, list(run.episodes().values())


def test_a_server_that_dies_for_good_ends_the_run_in_one_line(tmp_path, capsys):
    def dies_at_the_second_query(query):
        if len(server.queries) == 2:
            server.stop()
            server.connections[-1].socket.shutdown(socket.SHUT_RDWR)
        return GOOD

    with OpenpiServer(dies_at_the_second_query) as server:
        line = "--policy-kwargs embodiment=libero connect_timeout_s=0.5 --suite libero_object --task-ids 0"
        line = f"{line} --init-ids 0-1 --max-steps 20 --policy {server.url} --output-dir {tmp_path}"
        assert call(libero.app, *line.split()) == INPUT_ERROR
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith(f"error: the policy server at {server.url} has not answered within 0.5 s")


def test_the_measured_clock_charges_the_round_trip(tmp_path):
    def slow(query):
        time.sleep(0.06)
        return {**GOOD, "server_timing": {"infer_ms": 1.0}}

    with OpenpiServer(slow) as server:
        _, (episode,) = recorded(tmp_path, server, num_trials_per_task=1, clock="measured")
    assert episode.outcome is Outcome.SUCCESS
    assert episode.latency_ms["action"].p50 > 60
    assert episode.latency_ms["wire"].p50 > 59
    assert episode.idle_steps >= 2  # 60 ms and more of 50 ms steps before the first action


def test_texts_of_our_server_are_graded_and_delivered_when_they_arrive(tmp_path):
    def narrates(request):
        given = served_answer(request)
        texts = [{**text, "text": "approach black bowl"} for text in given["texts"]]
        return {**given, "texts": texts, **({} if "actions" not in given else GOOD)}

    with serving(narrates) as server:
        folder, (episode,) = recorded(tmp_path, server, num_trials_per_task=1, policy_kwargs={"timeout_s": 5})
    assert episode.outcome is Outcome.SUCCESS
    assert episode.texts["narration"].texts == episode.requests.finished == episode.queries - 1
    assert episode.latency_ms["decode"].p50 == 4.0
    assert folder.read_manifest()["policy_inputs"]["server_metadata"] == served_metadata()


@pytest.mark.slow
def test_our_server_equals_the_policy_in_process_bit_for_bit(tmp_path):
    options = ServeConfig(policy="tiny", language_tasks=("narration",))
    policy, declaration = open_served(read_model_policy("tiny"), options)
    with contextlib.closing(policy), PolicyServerThread(policy, declaration) as server:
        url = f"ws://127.0.0.1:{server.port}"
        by_socket = play(tmp_path / "socket", TWO, policy=url)
    in_process = play(tmp_path / "process", TWO, policy="tiny", language_tasks=("narration",))
    served, own = (
        [query for key in sorted(run.episodes()) for query in read_queries(run, key)]
        for run in (by_socket, in_process)
    )
    assert len(served) == len(own) > 2
    for query, expected in zip(served, own, strict=True):
        np.testing.assert_array_equal(query.actions, expected.actions)
    texts = [[each.text for each in query.delivered] for query in served]
    assert texts == [[each.text for each in query.delivered] for query in own]
    assert any(texts)
