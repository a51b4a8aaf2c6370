"""A policy behind a socket acts as one in process; whatever goes wrong on the way is one clear error."""

import contextlib
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from websockets.utils import accept_key

from configs.errors import UsageError
from eval.policies import remote
from eval.policies.base import BadAnswerError
from eval.policies.remote import PolicyClient, PolicyServerError
from eval.policies.websocket import open_websocket
from oxygen.serve.msgpack_numpy import pack
from sim_envs.fake import FakeWorld
from sim_envs.world import EpisodeKey
from tests.eval.policies.openpi_server import ACTIONS, OpenpiServer

KEY = EpisodeKey(suite="libero_object", task_id=0, init_id=0, seed=7)
LIBERO = {"embodiment": "libero"}


def silent(line):
    pytest.fail(f"nothing was to be waited for: {line}")


@contextlib.contextmanager
def acting(server, **kwargs):
    """The policy of a server in an episode."""
    kwargs = {"embodiment": "libero", "connect_timeout_s": 5, "timeout_s": 5, **kwargs}
    with server.opened(**kwargs) as served:
        policy = served.in_world(None, None)
        policy.reset(KEY)
        yield policy


def query(policy):
    return policy.act(FakeWorld().observe())


def fails_at(number):
    """An answer that fails in one query, counted over all episodes."""
    queries = iter(range(1, 100))

    def answer(query):
        if next(queries) == number:
            raise FloatingPointError("the flow has diverged")
        return {"actions": ACTIONS}

    return answer


def test_observations_go_out_in_openpis_keys_and_actions_come_back():
    with OpenpiServer() as server, acting(server) as policy:
        acted = query(policy)
        assert policy.interface.name == server.url
        assert acted.dtype == np.float64
        assert (acted == ACTIONS).all()
        sent = server.queries[0]
        assert sorted(sent) == ["observation/image", "observation/state", "observation/wrist_image", "prompt"]
        assert sent["observation/image"].shape == (224, 224, 3)
        assert sent["prompt"] == FakeWorld().language
        policy.finish()
        policy.reset(KEY)
        query(policy)
        assert (len(server.connections), len(server.queries)) == (1, 2)


def test_the_round_trip_is_told_apart_into_server_and_wire():
    def answer(query):
        time.sleep(0.05)
        return {"actions": ACTIONS}

    with OpenpiServer(answer) as server, acting(server) as policy:
        query(policy)
        timings = policy.complete().timings_ms
        assert timings["server"] >= 50
        assert timings["wire"] > 0
        parts = timings["preprocess"] + timings["server"] + timings["wire"]
        assert parts == pytest.approx(timings["action"])
        assert timings["frame"] == timings["action"]


@pytest.mark.parametrize(
    ("told", "server_ms"),
    [
        ({"server_timing": {}, "policy_timing": {"infer_ms": 0.03125}}, 0.03125),
        ({"server_timing": {"infer_ms": np.float32(0.0625)}, "policy_timing": {"infer_ms": 3.0}}, 0.0625),
        ({"server_timing": {"infer_ms": "fast"}}, None),
    ],
)
def test_the_servers_time_is_what_it_says(told, server_ms):
    with OpenpiServer(lambda _: {"actions": ACTIONS, **told}) as server, acting(server) as policy:
        query(policy)
        timings = policy.complete().timings_ms
        assert timings.get("server") == server_ms
        assert ("wire" in timings) == (server_ms is not None)


def test_a_servers_traceback_is_in_the_error_and_the_next_episode_goes_on():
    with OpenpiServer(fails_at(2)) as server, acting(server) as policy:
        query(policy)
        with pytest.raises(
            PolicyServerError, match=r"Traceback[\s\S]*FloatingPointError: the flow has diverged"
        ):
            query(policy)
        with pytest.raises(PolicyServerError, match="was lost in this episode"):
            query(policy)
        policy.reset(KEY)
        assert (query(policy) == ACTIONS).all()
        assert len(server.connections) == 2


@pytest.mark.parametrize(
    ("answer", "error", "why"),
    [
        (b"\xc1garbage", BadAnswerError, "not msgpack"),
        (b"", BadAnswerError, "not msgpack"),
        ([1, 2], BadAnswerError, "sent list, not a map"),
        ("reset successful", PolicyServerError, "reset successful"),
        ({"actions": {b"__ndarray__": True, b"dtype": "|O"}}, BadAnswerError, "an array of '|O'"),
        ({"actions": bytes(2**20)}, PolicyServerError, "more than 1 MiB"),
    ],
)
def test_an_answer_without_actions_is_one_clear_error(answer, error, why, monkeypatch):
    monkeypatch.setattr(remote, "MAX_ANSWER_MIB", 1)
    with OpenpiServer(lambda _: answer) as server, acting(server) as policy:
        with pytest.raises(error) as caught:
            query(policy)
        assert why in str(caught.value)


@pytest.mark.parametrize("sent", [b"\x82\x7e\xff\xffonly the begin of 65535 bytes", b""])
def test_a_server_that_dies_in_mid_answer_costs_that_episode(sent):
    with OpenpiServer(lambda _: dies()) as server:

        def dies():
            server.connections[0].socket.sendall(sent)
            server.connections[0].socket.shutdown(socket.SHUT_RDWR)
            return {"actions": ACTIONS}

        with acting(server) as policy:
            with pytest.raises(PolicyServerError, match="broke off the connection"):
                query(policy)
            policy.reset(KEY)


def test_a_late_answer_is_dropped():
    late = threading.Event()

    def answer(query):
        if not late.is_set():
            late.wait(10)
            return {"actions": -ACTIONS}
        return {"actions": ACTIONS}

    with OpenpiServer(answer) as server, acting(server, timeout_s=0.2) as policy:
        with pytest.raises(PolicyServerError):
            query(policy)
        late.set()
        policy.reset(KEY)
        assert (query(policy) == ACTIONS).all()


def greets_and_reads_no_more(listener):
    """A server that has stopped after the handshake: nothing is ever taken off its socket."""
    connection, _ = listener.accept()
    request = connection.recv(4096).decode()
    key = re.search(r"Sec-WebSocket-Key: (\S+)", request)[1]
    upgrade = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    connection.sendall(f"{upgrade}Sec-WebSocket-Accept: {accept_key(key)}\r\n\r\n".encode())
    connection.sendall(b"\x82\x01" + pack({}))
    return connection


def test_a_server_that_stops_reading_does_not_stop_the_run():
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(greets_and_reads_no_more, listener)
        url = f"ws://127.0.0.1:{listener.getsockname()[1]}"
        client = PolicyClient(url, headers={}, answer_s=0.3, connect_s=5, notify=silent)
        client.reset()
        with stopped.result(), pytest.raises(PolicyServerError, match="broke off the connection"):
            client.infer({"observation/image": np.zeros(2**21)})


def test_a_connection_closed_between_episodes_is_reopened():
    with OpenpiServer() as server, acting(server) as policy:
        query(policy)
        server.connections[0].close()
        policy.reset(KEY)
        assert (query(policy) == ACTIONS).all()


def test_a_server_that_comes_back_serves_the_next_episode():
    told = []
    with OpenpiServer() as server:
        port = server.port
        served = open_websocket(server.url, LIBERO, notify=told.append)
        policy = served.in_world(None, None)
        policy.reset(KEY)
    with pytest.raises(PolicyServerError, match="closed the connection"):
        query(policy)
    back = []
    restart = threading.Timer(0.2, lambda: back.append(OpenpiServer(port=port)))
    restart.start()
    policy.reset(KEY)
    assert (query(policy) == ACTIONS).all()
    assert len(told) == 1
    served.close()
    back[0].__exit__()
    restart.join()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_a_refused_connection_is_one_line_after_the_timeout():
    told = []
    url = f"ws://127.0.0.1:{free_port()}"
    with pytest.raises(UsageError, match=rf"{url} has not answered within 0\.3 s: .*refused") as caught:
        open_websocket(url, {"connect_timeout_s": 0.3}, notify=told.append)
    assert "\n" not in str(caught.value)
    assert len(told) == 1
    assert url in told[0]


def test_a_silent_address_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"ws://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(UsageError, match=r"has not answered within 0\.3 s: timed out"):
            open_websocket(url, {"connect_timeout_s": 0.3}, notify=lambda line: None)


def test_a_server_without_metadata_is_refused():
    with OpenpiServer(metadata=...) as server, pytest.raises(UsageError, match="sends no metadata"):
        open_websocket(server.url, {"connect_timeout_s": 0.3}, notify=lambda line: None)


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ("Traceback: no checkpoint", "begins with a text, not with metadata: Traceback: no checkpoint"),
        (b"\xc1", "begins with something else than metadata"),
        ([1], "begins with something else than metadata"),
        ({"embodiment": "franka"}, "unknown embodiment 'franka'; did you mean"),
        ({"horizon": 0}, "horizon is 0"),
        ({"horizon": "ten"}, "horizon is 'ten'"),
    ],
)
def test_invalid_metadata_are_one_line(metadata, why):
    with OpenpiServer(metadata=metadata) as server:
        with pytest.raises(UsageError, match=why) as caught:
            open_websocket(server.url, {}, notify=silent)
        assert "\n" not in str(caught.value)


def test_metadata_may_name_the_robot():
    with OpenpiServer(metadata={"embodiment": "droid", "horizon": 15}) as server:
        policy = open_websocket(server.url, {}, notify=silent)
        assert policy.interface.observation.camera_names == ("exterior_image_1_left", "wrist_image_left")
        assert policy.interface.horizon == 15
        assert policy.remark is None
        assert policy.inputs["server_metadata"] == {"embodiment": "droid", "horizon": 15}


def test_an_unnamed_robot_is_assumed_to_be_liberos():
    with OpenpiServer(metadata={"reset_pose": np.zeros(2)}) as server:
        policy = open_websocket(server.url, {}, notify=silent)
        assert policy.interface.horizon is None
        assert "observation/wrist_image" in policy.remark
        assert "embodiment=NAME" in policy.remark
        assert policy.inputs["server_metadata"] == {"reset_pose": "[0. 0.]"}


def test_the_user_names_the_robot_unless_the_server_does():
    with OpenpiServer(metadata={"embodiment": "franka"}) as server:
        assert open_websocket(server.url, LIBERO, notify=silent).remark is None
    why = "serves embodiment 'droid'; leave out embodiment=libero"
    with OpenpiServer(metadata={"embodiment": "droid"}) as server, pytest.raises(UsageError, match=why):
        open_websocket(server.url, LIBERO, notify=silent)


def test_the_key_in_the_environment_is_sent(monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    with OpenpiServer() as server, acting(server, api_key_env="MY_KEY"):
        assert server.headers[0]["Authorization"] == "Api-Key secret"


def test_a_refused_key_is_not_retried():
    def refuse(connection, request):
        return connection.respond(401, "no")

    with OpenpiServer(process_request=refuse) as server, pytest.raises(UsageError, match="HTTP status 401"):
        open_websocket(server.url, {}, notify=silent)


@pytest.mark.parametrize(
    ("url", "kwargs", "why"),
    [
        ("ws://host:port", {}, "not a policy-server URL"),
        ("ws://host", {"embodyment": "libero"}, "did you mean 'embodiment'"),
        ("ws://host", {"timeout_s": 0}, "timeout_s is 0"),
        ("ws://host", {"connect_timeout_s": float("inf")}, "connect_timeout_s is inf"),
        ("ws://host", {"api_key_env": "NO_SUCH_KEY"}, "the environment has no NO_SUCH_KEY"),
    ],
)
def test_bad_arguments_are_refused_before_connecting(url, kwargs, why):
    with pytest.raises(UsageError, match=why) as caught:
        open_websocket(url, kwargs, notify=silent)
    assert "\n" not in str(caught.value)
