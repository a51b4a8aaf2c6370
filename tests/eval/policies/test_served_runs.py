"""Whole runs against servers: what goes wrong is recorded in its episode, and the next one goes on."""

import contextlib
import itertools
import socket
import time

import numpy as np
import pytest

from configs.exits import INPUT_ERROR
from configs.serving import ServeConfig
from eval import libero
from eval.records.query_logs import read_queries
from eval.records.run_folders import new_run
from eval.records.schema import Outcome
from oxygen.presets.policies import read_model_policy
from oxygen.serve.serving import open_served
from sim_envs.fake import FakeWorld
from tests.eval.conftest import CONFIG, call, evaluate
from tests.eval.doubles import without_physics
from tests.eval.policies import oxygen_server
from tests.eval.policies.openpi_server import ACTIONS, OpenpiServer
from tests.oxygen.serve.serving import PolicyServerThread

GOOD = {"actions": ACTIONS / 100}
WITH_NAN = np.where(np.arange(70).reshape(10, 7) == 17, np.nan, ACTIONS)


@pytest.fixture(autouse=True)
def _quick_worlds(monkeypatch):
    without_physics(monkeypatch, lambda task: FakeWorld(success_at=7))


def config(server, episodes=2, **changes):
    changes = {"policy_kwargs": {"embodiment": "libero", "timeout_s": 0.5, "connect_timeout_s": 1}, **changes}
    own = {"suites": ("libero_object",), "task_ids": (0,), "num_trials_per_task": episodes}
    return CONFIG.model_copy(update={"policy": server.url, **own, **changes})


def recorded(tmp_path, server, **changes):
    """The episodes of a run, in order."""
    run = new_run(tmp_path, config(server, **changes))
    evaluate(run)
    return run.folder, list(run.folder.episodes().values())


def at_second_query(wrong):
    """An answer that is wrong in the run's second query, in mid-episode: a value, or what a call returns."""
    number = itertools.count()

    def answer(query):
        if next(number) != 1:
            return GOOD
        return wrong() if callable(wrong) else wrong

    return answer


def cut(server):
    """Break off a server's connection as its death would."""
    server.connections[-1].socket.shutdown(socket.SHUT_RDWR)
    return GOOD


@pytest.mark.parametrize(
    ("wrong", "outcome", "said"),
    [
        ({"actions": WITH_NAN}, "invalid_action", "action 2 holds nan in dimension 3"),
        ("no such endpoint", "error", "failed, with this text: no such endpoint"),
        (cut, "error", "broke off the connection"),
    ],
)
def test_a_wrong_answer_costs_one_episode(tmp_path, wrong, outcome, said):
    how = (lambda: wrong(server)) if callable(wrong) else wrong
    with OpenpiServer(at_second_query(how)) as server:
        _, (first, second) = recorded(tmp_path, server)
    assert first.outcome == outcome
    assert said in first.error
    assert second.outcome is Outcome.SUCCESS


def test_a_server_that_dies_for_good_ends_the_run_in_one_line(tmp_path, capsys):
    with OpenpiServer(at_second_query(lambda: server.stop() or cut(server))) as server:
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
        _, (episode,) = recorded(tmp_path, server, episodes=1, clock="measured")
    assert episode.outcome is Outcome.SUCCESS
    assert episode.latency_ms["action"]["p50"] > 60
    assert episode.latency_ms["wire"]["p50"] > 59
    assert episode.held_steps >= 2  # 60 ms and more of 50 ms steps before the first action


def test_texts_of_our_server_are_graded_and_delivered_when_they_arrive(tmp_path):
    def narrates(request):
        given = oxygen_server.answer(request)
        texts = [{**text, "text": "approach black bowl"} for text in given["texts"]]
        return {**given, "texts": texts, **({} if "actions" not in given else GOOD)}

    with oxygen_server.serving(narrates) as server:
        folder, (episode,) = recorded(tmp_path, server, episodes=1, policy_kwargs={"timeout_s": 5})
    assert episode.outcome is Outcome.SUCCESS
    assert episode.texts["narration"].texts == episode.requests.finished == episode.queries - 1
    assert episode.latency_ms["decode"]["p50"] == 4.0
    assert folder.read_manifest()["policy_inputs"]["server_metadata"] == oxygen_server.metadata()


@pytest.mark.slow
def test_our_server_equals_the_policy_in_process_bit_for_bit(tmp_path):
    options = ServeConfig(policy="tiny", language_tasks=("narration",))
    policy, declaration = open_served(read_model_policy("tiny"), options)
    with contextlib.closing(policy), PolicyServerThread(policy, declaration) as server:
        both = {"suites": ("libero_object",), "task_ids": (0,), "num_trials_per_task": 2, "mode": "unified"}
        url = f"ws://127.0.0.1:{server.port}"
        by_socket = new_run(tmp_path / "socket", CONFIG.model_copy(update={**both, "policy": url}))
        evaluate(by_socket)
    own = {**both, "policy": "tiny", "language_tasks": ("narration",)}
    in_process = new_run(tmp_path / "process", CONFIG.model_copy(update=own))
    evaluate(in_process)
    served, own = (
        [query for key in sorted(run.folder.episodes()) for query in read_queries(run.folder, key)]
        for run in (by_socket, in_process)
    )
    assert len(served) == len(own) > 2
    for query, expected in zip(served, own, strict=True):
        np.testing.assert_array_equal(query.actions, expected.actions)
    texts = [[each.text for each in query.delivered] for query in served]
    assert texts == [[each.text for each in query.delivered] for query in own]
    assert any(texts)
