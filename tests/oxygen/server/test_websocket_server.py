"""What clients may do to the server, and users to its command: an error is one line; when a batch is due."""

import json
import math
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import msgpack
import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from configs.policy_server import ServeConfig
from oxygen.server import websocket_server
from oxygen.server.__main__ import app
from oxygen.server.batching import BatchQueue, Query
from oxygen.server.msgpack_numpy import pack, unpack
from tests.commands import execute
from tests.oxygen.server.server_thread import EchoPolicy, PolicyServerThread, request


@pytest.fixture(scope="module")
def server():
    with PolicyServerThread(EchoPolicy()) as running:
        yield running


def closed_with(client):
    with pytest.raises(ConnectionClosed) as caught:
        client.connection.recv(timeout=30)
    return caught.value.rcvd.code


KEYS = "observation/image, observation/wrist_image, observation/state, prompt"
LACKS = f"lacks 'observation/image'. Allowed: {KEYS}. Given: "


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ("left a bit", "a text ('left a bit'); requests are msgpack"),
        (b"\xc1garbage", "not msgpack"),
        ([1, 2], "this one is list"),
        ({"type": "hello", "payload": {}, "seq": 0}, LACKS),
        (request() | {"observation/image": np.zeros((4, 4), np.uint8)}, "has shape (4, 4)"),
        (request() | {"observation/state": np.full(8, np.nan)}, "observation/state: state holds nan"),
        (request() | {"prompt": 7}, "prompt is int"),
        (request() | {"prompt": "go " * 4000}, "prompt is 12000 characters"),
        (request(endpoint="kill"), "unknown endpoint 'kill'; did you mean 'infer'"),
        (request(oxygen_eval=3), "oxygen_eval is int; give a map"),
        (request(oxygen_eval={"querry": 1}), "did you mean 'query'"),
        (request(oxygen_eval={"episode": {"suite": "s"}}), "give a seed, or a map of suite, task_id"),
        (request(oxygen_eval={"reset": 1}), "oxygen_eval.reset is 1; give true or false"),
        ({"oxygen_eval": {"query": 1}}, LACKS),
        (msgpack.packb({"a": {b"__ndarray__": True, b"dtype": "|O", b"shape": [1], b"data": b""}}), "'|O'"),
    ],
)
def test_a_bad_request_is_told_in_one_line_and_costs_its_connection_alone(server, sent, said):
    with server.client() as other, server.client() as client:
        answer = client.ask(sent)
        assert isinstance(answer, str)
        assert said in answer
        assert "\n" not in answer
        assert closed_with(client) == 1008
        assert other.ask(request())["actions"].shape == (10, 7)


def test_a_message_beyond_the_limit_closes_the_connection(monkeypatch):
    monkeypatch.setattr(websocket_server, "MAX_MESSAGE_BYTES", 100_000)
    with PolicyServerThread(EchoPolicy()) as server:
        with server.client() as client:
            with pytest.raises(ConnectionClosed) as caught:
                client.ask(request() | {"observation/image": np.zeros((200, 200, 3), np.uint8)})
            assert caught.value.rcvd.code == 1009
        with server.client() as client:
            assert "actions" in client.ask(request())


def test_broken_handshakes_and_half_messages_take_nothing_down(server):
    for sent in (b"\x16\x03\x01\x02\x00garbage\r\n\r\n", b"GET / HTTP/1.1\r\n", b""):
        with socket.create_connection(("127.0.0.1", server.port)) as raw:
            raw.sendall(sent)
    with server.connect() as connection:
        connection.socket.sendall(b"\x82\xfe\xff\xffonly the begin of 65535 bytes")
        connection.socket.shutdown(socket.SHUT_RDWR)
    with server.client() as client:
        assert "actions" in client.ask(request())


def test_there_are_no_more_connections_than_allowed_and_silent_ones_are_closed(monkeypatch):
    monkeypatch.setattr(websocket_server, "MAX_CONNECTIONS", 2)
    with PolicyServerThread(EchoPolicy()) as server:
        with server.client() as first, server.client(), pytest.raises(InvalidStatus, match="503"):
            server.connect()
        assert closed_with(first) in (1000, 1001)
        monkeypatch.setattr(websocket_server, "IDLE_S", 0.3)
        with server.client() as silent:
            assert closed_with(silent) == 1001


def test_one_robot_more_than_there_are_is_told_to_try_later():
    with PolicyServerThread(EchoPolicy(2), robots=2) as server:
        with server.client() as first, server.client() as second, server.client() as third:
            first.ask(request())
            second.ask(request())
            assert "all 2 robots are taken" in third.ask(request())
            assert closed_with(third) == 1013
        with server.client() as client:
            assert "actions" in client.ask(request()), "the rows were given back"


def test_a_policy_that_fails_is_told_and_serves_the_next_client(caplog):
    policy = EchoPolicy()
    with PolicyServerThread(policy) as server:
        policy.fails = FloatingPointError("the flow\nhas diverged")
        with server.client() as client:
            assert client.ask(request()) == "the policy failed: FloatingPointError: the flow has diverged"
            assert closed_with(client) == 1011
        policy.fails = None
        with server.client() as client:
            assert "actions" in client.ask(request())
    assert "FloatingPointError" in caplog.text, "the server's log has the traceback"


def test_a_batch_that_fails_to_open_is_opened_for_the_next_client():
    fails = iter([False, True, False])

    def open_policy(number):
        if next(fails):
            raise MemoryError(f"no memory for batch {number}")
        return EchoPolicy()

    with PolicyServerThread(open_policy, robots=2, batch_size=1) as server, server.client() as first:
        assert "actions" in first.ask(request())
        with server.client() as failed:
            assert failed.ask(request()) == "the policy failed: MemoryError: no memory for batch 1"
        with server.client() as second:
            assert "actions" in second.ask(request())
        assert "actions" in first.ask(request())


@pytest.mark.parametrize("takes_s", [2.0, pytest.param(60.0, marks=pytest.mark.slow)])
def test_a_slow_query_neither_delays_another_clients_handshake_nor_loses_its_connection(takes_s):
    with PolicyServerThread(EchoPolicy(takes_s=takes_s)) as server, server.client() as client:
        client.connection.send(pack(request()))
        time.sleep(takes_s / 4)
        with server.client() as second:
            assert second.metadata["horizon"] == 10
            with pytest.raises(TimeoutError):
                client.connection.recv(timeout=0)
        assert "actions" in unpack(client.connection.recv(timeout=takes_s + 60))


def test_queries_in_progress_are_answered_before_the_server_ends():
    running = PolicyServerThread(EchoPolicy(takes_s=0.5))
    with running as server, server.client() as client, server.client() as idle:
        threading.Timer(0.2, server.stop).start()
        assert "actions" in client.ask(request())
        assert closed_with(client) == 1001
        assert closed_with(idle) == 1001
        with pytest.raises(OSError, match="refused"):
            server.connect()


def test_health_needs_no_key_and_all_else_does():
    with PolicyServerThread(EchoPolicy(), api_key="secret") as server:
        for path, said in (("/healthz", b"OK\n"), ("/health", b'{"status": "ok"}')):
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}") as answer:
                assert (answer.status, answer.read()) == (200, said)
        for headers in ({}, {"Authorization": "Api-Key wrong"}, {"Authorization": "secret"}):
            with pytest.raises(InvalidStatus, match="401"):
                server.connect(additional_headers=headers)
        with server.client(additional_headers={"Authorization": "Api-Key secret"}) as client:
            assert "actions" in client.ask(request())


def test_another_path_is_refused_with_those_that_there_are(server):
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/vla_eval")
    assert caught.value.code == 404
    assert b"did you mean '/vla-eval'" in caught.value.read()


class Rows:
    """A policy of several rows that says what it was asked; fails in the method named in `fails`."""

    def __init__(self, fails=None, window_s=1.0):
        self.answers = []
        self.reset = []
        self.ended = set()
        self.fails = fails
        self.queue = BatchQueue(self.act, self.complete, window_s=window_s, failed=self.reset.extend)

    def ask(self, row, arrived_s=0.0):
        def said(kind):
            return lambda result: self.answers.append((row, kind, result))

        query = Query(
            observation=f"seen {row}", acted=said("acted"), replied=said("replied"), arrived_s=arrived_s
        )
        self.queue.add(row, query)

    def act(self, observations):
        if self.fails == "act":
            raise SystemExit(3)
        self.asked = observations
        return {row: f"actions {row}" for row in observations}

    def complete(self):
        if self.fails == "complete":
            raise ValueError
        return {row: f"reply {row}" for row in self.asked if row not in self.ended}


def test_a_batch_is_due_when_every_active_row_has_a_query_or_after_the_window():
    rows = Rows()
    assert rows.queue.due_s() == math.inf
    rows.queue.activate(1)
    rows.ask(0, arrived_s=5.0)
    assert rows.queue.due_s() == 6.0
    rows.ask(1, arrived_s=5.5)
    assert rows.queue.due_s() == 5.0
    rows.queue.remove(0)
    assert rows.queue.due_s() == 5.5


def test_actions_are_answered_before_replies_and_new_queries_wait_for_the_next_batch():
    rows = Rows()
    rows.ask(0)
    rows.ask(2)
    stages = rows.queue.run()
    assert next(stages)
    assert rows.answers == [(0, "acted", "actions 0"), (2, "acted", "actions 2")]
    rows.ask(0)
    assert not list(stages)
    assert rows.answers[2:] == [(0, "replied", "reply 0"), (2, "replied", "reply 2")]
    assert rows.asked == {0: "seen 0", 2: "seen 2"}
    list(rows.queue.run())
    assert rows.asked == {0: "seen 0"}


def test_an_episode_that_ends_between_actions_and_replies_costs_the_others_nothing():
    rows = Rows()
    rows.ask(0)
    rows.ask(1)
    stages = rows.queue.run()
    next(stages)
    rows.ended.add(1)
    assert not list(stages)
    _, ended = rows.answers[2:]
    assert rows.answers[2] == (0, "replied", "reply 0")
    assert isinstance(ended[2], LookupError)
    assert rows.reset == []


@pytest.mark.parametrize(
    ("fails", "kinds"), [("act", ["acted"] * 2), ("complete", ["acted", "acted", "replied", "replied"])]
)
def test_a_failure_is_answered_once_to_each_row_and_the_rows_are_reset(fails, kinds):
    rows = Rows(fails)
    rows.ask(0)
    rows.ask(1)
    list(rows.queue.run())
    assert [kind for _, kind, _ in rows.answers] == kinds
    assert all(isinstance(result, SystemExit | ValueError) for *_, result in rows.answers[-2:])
    assert rows.reset == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "--policy"),
        ("--policy tinny", "did you mean 'tiny'"),
        ("--policy expert", "of kind expert"),
        ("--policy tiny --port 70000", "port is '70000': input should be less than 65536"),
        ("--policy tiny --batch-size 4 --robots 2", "give at most that many"),
        ("--policy tiny --mode parallel --robots 2", "give --batch-size 2"),
        ("--policy tiny --api-key-env NO_SUCH_VARIABLE", "the environment has no NO_SUCH_VARIABLE"),
    ],
)
def test_bad_input_is_one_line(arguments, said, refused):
    assert said.lower() in refused(app, *arguments.split()).lower()


def test_eight_robots_are_served_by_default():
    for options, robots in (({}, 8), ({"batch_size": 16}, 16), ({"mode": "parallel"}, 1)):
        assert ServeConfig(policy="tiny", **options).most_robots == robots


@pytest.mark.slow
def test_a_server_beyond_this_machine_warns_and_ends_in_order_on_sigterm():
    options = ["-m", "oxygen.server", "--policy", "tiny", "--random-weights", "--mode", "actions"]
    program = [sys.executable, *options]
    public = [*program, "--port", "0", "--host", "0.0.0.0"]
    with subprocess.Popen(public, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        port = line.split("0.0.0.0:")[1].split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
            assert json.load(answer) == {"status": "ok"}
        again = execute(*program, "--port", port)
        assert again.returncode == 2
        assert again.stderr.splitlines()[-1].startswith(f"error: cannot listen at 127.0.0.1, port {port}")
        assert "for up to 8 robots, one after the other, at" in line
        process.terminate()
        assert process.wait(60) == 0
        said = process.stderr.read()
        assert "--api-key-env" in said
        for stage in (
            "drawing random weights: 2.4 million parameters, 0.0097 GB, about",
            "compiling prefill",
            "running every",
        ):
            assert stage in said
