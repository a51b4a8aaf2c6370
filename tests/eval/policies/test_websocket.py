"""A policy behind a socket, openpi's or RoboArena's, acts as one in process; a mishap is one clear error."""

import contextlib
import dataclasses
import re
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from websockets.utils import accept_key

from contracts.errors import UsageError
from contracts.interface import compare
from contracts.observation import Observation
from eval.policies import handshake
from eval.policies.base import BadAnswerError
from eval.policies.remote import PolicyClient, PolicyServerError, ServerOptions
from eval.policies.websocket import open_websocket
from oxygen.server.msgpack_numpy import pack
from sim_envs.droid.control import Control, interface
from sim_envs.fake import FakeWorld
from tests.commands import printed
from tests.eval.policies.servers import ACTIONS, KEY, OpenpiServer

LIBERO = {"embodiment": "libero"}


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


def test_observations_go_out_in_openpis_keys_and_actions_come_back(monkeypatch):
    monkeypatch.setenv("MY_KEY", "K3Y")
    with OpenpiServer() as server, acting(server, api_key_env="MY_KEY") as policy:
        assert server.headers[0]["Authorization"] == "Api-Key K3Y"
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
        server.connections[0].close()
        policy.reset(KEY)
        assert (query(policy) == ACTIONS).all(), "a connection closed between episodes is reopened"


def test_a_server_that_asks_is_told_what_the_robot_executes_until_its_answer():
    seen = dataclasses.replace(FakeWorld().observe(), delay_steps=3, executing=np.ones((2, 7)))
    with OpenpiServer(metadata={"action_prefix": True}) as server, acting(server) as policy:
        policy.act(seen)
        assert server.queries[0]["observation/delay_steps"] == 3
        assert np.array_equal(server.queries[0]["observation/action_prefix"], seen.executing)


def test_the_round_trip_is_told_apart_into_server_and_wire():
    """The server's time is what it says, if that is a number; else it has none."""
    told = [
        ({}, None),
        ({"server_timing": {}, "policy_timing": {"infer_ms": 0.03125}}, 0.03125),
        ({"server_timing": {"infer_ms": np.float32(0.0625)}, "policy_timing": {"infer_ms": 3.0}}, 0.0625),
        ({"server_timing": {"infer_ms": "fast"}}, None),
    ]
    answers = iter(told)

    def answer(query):
        time.sleep(0.05)
        return {"actions": ACTIONS, **next(answers)[0]}

    with OpenpiServer(answer) as server, acting(server) as policy:
        for said, server_ms in told:
            query(policy)
            timings = policy.complete().timings_ms
            assert timings["frame"] == timings["action"] >= 50
            if said and server_ms is None:
                assert not {"server", "wire"} & timings.keys()
                continue
            assert timings["server"] == server_ms or (not said and timings["server"] >= 50)
            assert timings["wire"] > 0
            parts = timings["preprocess"] + timings["server"] + timings["wire"]
            assert parts == pytest.approx(timings["action"])


def test_a_servers_traceback_is_in_the_error_and_the_next_episode_goes_on():
    failures = iter([False, True, False])

    def answer(query):
        if next(failures):
            raise FloatingPointError("diverged")
        return {"actions": ACTIONS}

    with OpenpiServer(answer) as server, acting(server) as policy:
        query(policy)
        with pytest.raises(PolicyServerError, match=r"Traceback[\s\S]*FloatingPointError: diverged"):
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
        ({"actions": {b"__ndarray__": True, b"dtype": "|O"}}, BadAnswerError, r"an array of '\|O'"),
        ({"actions": bytes(2**20)}, PolicyServerError, "more than 1 MiB"),
    ],
)
def test_an_answer_without_actions_is_one_clear_error(answer, error, why, monkeypatch):
    monkeypatch.setattr(handshake, "MAX_ANSWER_MIB", 1)
    with OpenpiServer(lambda _: answer) as server, acting(server) as policy, pytest.raises(error, match=why):
        query(policy)


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
        client = PolicyClient(url, ServerOptions(timeout_s=0.3, connect_timeout_s=5.0), notify=pytest.fail)
        client.reset()
        with stopped.result(), pytest.raises(PolicyServerError, match="broke off the connection"):
            client.infer({"observation/image": np.zeros(2**21)})


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


def test_an_address_without_a_server_is_one_line_after_the_timeout():
    """Nothing listens; something listens and is silent; a server sends no metadata; one refuses the key."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, told = listener.getsockname()[1], []
        lines = [refusal_of(f"ws://127.0.0.1:{port}", told)]
    lines.append(refusal_of(f"ws://127.0.0.1:{port}", told))
    for how in ({"metadata": ...}, {"process_request": lambda connection, _: connection.respond(401, "no")}):
        with OpenpiServer(**how) as server:
            lines.append(refusal_of(server.url, told))
    reasons = ("timed out", "refused", "sends no metadata", "HTTP status 401")
    for line, why in zip(lines, reasons, strict=True):
        assert re.search(rf"ws://127.0.0.1:\d+ .*{why}", line)
    assert ["waiting up to" in line for line in told] == [True], "a refused key is not retried"


def refusal_of(url, told):
    with pytest.raises(UsageError) as caught:
        open_websocket(url, {"connect_timeout_s": 0.3}, notify=told.append)
    return str(caught.value)


def responds(status, **headers):
    """Answers every handshake with an HTTP status."""

    def process_request(connection, request):
        response = connection.respond(status, "no")
        response.headers.update(headers)
        return response

    return process_request


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"process_request": responds(301)}, r"has moved \(HTTP status 301\); give its new address"),
        ({"process_request": responds(302, Location="/again")}, "127.0.0.1"),
        ({"process_request": responds(200)}, "status 200, not as a WebSocket; give the URL"),
        ({"process_request": responds(403)}, "status 403; give a key with --policy-kwargs api_key_env=NAME"),
        ({"process_request": responds(404)}, "status 404; give a path"),
        ({"closes": (1008, "no robots left")}, "closed the connection .*no robots left"),
        ({"closes": (4001, "bad token")}, "closed the connection .*bad token"),
    ],
)
def test_a_refusal_ends_at_once_with_its_reason(how, why):
    with OpenpiServer(**how) as server, pytest.raises(UsageError, match=why):
        open_websocket(server.url, {}, notify=pytest.fail)


@pytest.mark.parametrize("how", [{"process_request": responds(503)}, {"closes": (1013, "try later")}])
def test_a_server_that_is_not_ready_is_waited_for(how):
    with OpenpiServer(**how) as server:
        assert "has not answered within 0.3 s" in refusal_of(server.url, told := [])
    assert len(told) == 1


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for localhost."""
    folder = tmp_path_factory.mktemp("tls")
    files = ["-keyout", folder / "key.pem", "-out", folder / "certificate.pem"]
    about = ["-days", 2, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    printed("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files, *about)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context, folder / "certificate.pem"


def test_a_certificate_is_checked_and_the_other_scheme_suggested(certificate, monkeypatch):
    context, file = certificate
    with OpenpiServer(ssl=context) as secure, OpenpiServer() as plain:
        refused = "not accepted: self-signed certificate. .*SSL_CERT_FILE"
        for scheme, host, port, why in [
            ("wss", "localhost", secure.port, refused),
            ("ws", "localhost", secure.port, f"needs TLS: give wss://localhost:{secure.port}"),
            (
                "wss",
                "localhost",
                plain.port,
                f"does not answer with TLS .*: give ws://localhost:{plain.port}",
            ),
        ]:
            with pytest.raises(UsageError, match=why):
                open_websocket(f"{scheme}://{host}:{port}", {}, notify=pytest.fail)
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        open_websocket(f"wss://localhost:{secure.port}", LIBERO, notify=pytest.fail).close()
        with pytest.raises(UsageError, match=r"not accepted: .*127\.0\.0\.1.*Give the name"):
            open_websocket(f"wss://127.0.0.1:{secure.port}", {}, notify=pytest.fail)


def test_a_missing_port_is_remarked_on():
    assert "has no port; openpi's servers listen at ws://127.0.0.3:8000" in refusal_of("ws://127.0.0.3", [])


ROBOARENA = {
    "image_resolution": [224, 224],
    "needs_wrist_camera": True,
    "n_external_cameras": 1,
    "needs_stereo_camera": False,
    "needs_session_id": False,
    "action_space": "joint_position",
}


@pytest.mark.parametrize(
    ("metadata", "kwargs", "why"),
    [
        ("Traceback: no checkpoint", {}, "begins with a text, not with metadata: Traceback: no checkpoint"),
        (b"\xc1", {}, "begins with something else than metadata"),
        ([1], {}, "begins with something else than metadata"),
        ({"embodiment": "franka"}, {}, r"metadata of ws://.*'franka'; did you mean.*embodiment=NAME"),
        ({"embodiment": "droid"}, LIBERO, "serves embodiment 'droid'; leave out embodiment=libero"),
        ({"horizon": 0}, {}, "horizon is 0"),
        ({"action_prefix": 3}, {}, "action_prefix is 3; give true or false"),
        (ROBOARENA | {"action_space": "cartesian_velocity"}, {}, "space of a RoboArena server: 'cartesian_v"),
        (ROBOARENA | {"image_resolution": "large"}, {}, "image_resolution is 'large'"),
        (ROBOARENA | {"n_external_cameras": 0, "needs_wrist_camera": False}, {}, "name at least one"),
        (ROBOARENA, LIBERO, "for DROID; leave out embodiment=libero"),
    ],
)
def test_invalid_metadata_are_one_line(metadata, kwargs, why):
    with OpenpiServer(metadata=metadata) as server, pytest.raises(UsageError, match=why):
        server.opened(**kwargs)


@pytest.mark.parametrize(
    ("metadata", "kwargs", "cameras", "remark"),
    [
        ({"embodiment": "droid"}, {}, ("exterior_image_1_left", "wrist_image_left"), None),
        ({"reset_pose": np.zeros(2)}, {}, ("image", "wrist_image"), "wrist_image.*embodiment=NAME"),
        ({"embodiment": "franka"}, LIBERO, ("image", "wrist_image"), None),
    ],
)
def test_the_robot_is_named_by_the_server_or_the_user_or_assumed_to_be_liberos(
    metadata, kwargs, cameras, remark
):
    with OpenpiServer(metadata={**metadata, "horizon": 15}) as server, server.opened(**kwargs) as policy:
        assert policy.interface.observation.camera_names == cameras
        assert policy.interface.horizon == 15
        assert policy.remark == remark or re.search(remark, policy.remark)
        recorded = {name: value if isinstance(value, str) else str(value) for name, value in metadata.items()}
        assert policy.inputs["server_metadata"] == {**recorded, "horizon": 15}


@pytest.mark.parametrize(
    ("url", "kwargs", "why"),
    [
        ("ws://host:port", {}, "not a policy-server URL"),
        ("ws://::1:8000", {}, r"or ws://\[::1\]:port"),
        ("ws://a..b:8000", {}, "not a policy-server URL"),
        ("ws:// host", {}, "not a policy-server URL"),
        ("ws://host:0", {}, "not a policy-server URL"),
        ("http://host:8000", {}, "did you mean 'ws://host:8000'"),
        ("ws://host", {"embodyment": "libero"}, "did you mean 'embodiment'"),
        ("ws://host", {"timeout_s": 0}, "timeout_s is 0"),
        ("ws://host", {"connect_timeout_s": float("inf")}, "connect_timeout_s is inf"),
        ("ws://host", {"api_key_env": "NO_SUCH_KEY"}, "the environment has no NO_SUCH_KEY"),
    ],
)
def test_bad_arguments_are_refused_before_connecting(url, kwargs, why):
    with pytest.raises(UsageError, match=why):
        open_websocket(url, kwargs, notify=pytest.fail)


DROID_ACTIONS = np.linspace(-2, 2, 80).reshape(10, 8)


def roboarena(answer="reset successful", **metadata):
    """A server as robo-arena/roboarena's, which acknowledges a reset with a text."""
    return OpenpiServer(
        lambda query: answer if query["endpoint"] == "reset" else {"actions": DROID_ACTIONS},
        metadata={**ROBOARENA, **metadata},
    )


def seen_by_droid():
    image = np.full((180, 320, 3), 200, np.uint8)
    images = {"exterior_image_1_left": image, "wrist_image_left": image}
    return Observation(images=images, state=np.arange(8.0), language="put the cube in the bowl")


def acted(server, seen):
    """The actions of an episode with one query."""
    ((((actions, _),), _),) = server.play(1, observation=seen)
    return actions


def asked(server):
    """The requests of such an episode."""
    acted(server, seen_by_droid())
    return server.queries


def test_an_episode_is_a_reset_and_queries_with_cameras_numbered_from_0():
    with roboarena() as server:
        reset, query = asked(server)
    assert reset == {"endpoint": "reset"}
    assert {key: np.shape(value) for key, value in query.items()} == {
        "endpoint": (),
        "observation/exterior_image_0_left": (224, 224, 3),
        "observation/wrist_image_left": (224, 224, 3),
        "observation/joint_position": (7,),
        "observation/gripper_position": (1,),
        "prompt": (),
    }
    assert query["endpoint"] == "infer"


def test_actions_may_come_without_a_map_around_them():
    with OpenpiServer(lambda _: pack(DROID_ACTIONS[:, :7]), metadata={"embodiment": "libero"}) as server:
        assert (acted(server, FakeWorld().observe()) == DROID_ACTIONS[:, :7]).all()


@pytest.mark.parametrize(("resolution", "size"), [([90, 320], (90, 320)), (None, (180, 320))])
def test_images_have_the_size_that_the_server_wants(resolution, size):
    with roboarena(image_resolution=resolution, needs_wrist_camera=False) as server:
        _, query = asked(server)
    image = query["observation/exterior_image_0_left"]
    assert image.shape == (*size, 3)
    assert image[:, 160].any()
    assert "observation/wrist_image_left" not in query


@pytest.mark.parametrize(("resolution", "size"), [([128, 128], 128), (None, 256)])
def test_a_server_with_openpis_keys_may_declare_the_size_of_its_images(resolution, size):
    metadata = {"embodiment": "libero", "image_resolution": resolution}
    with OpenpiServer(lambda _: pack(DROID_ACTIONS[:, :7]), metadata=metadata) as server:
        acted(server, FakeWorld(image_size=256).observe())
        assert server.queries[-1]["observation/image"].shape == (size, size, 3)
        with server.opened() as policy:
            assert list(policy.image_sizes.values()) == [(size, size)] * 2 * (resolution is not None)


@pytest.mark.parametrize(("control", "largest"), [*zip(Control, (1.0, 2.0), strict=True)])
def test_each_action_space_fits_one_suite_of_droid_and_velocities_are_clipped_as_in_its_loop(
    control, largest
):
    suites = {each: interface(each, image_height=180) for each in Control}
    with roboarena(action_space=control.value) as server, server.opened() as policy:
        compare(policy.interface, suites.pop(control))
        (other,) = suites.values()
        with pytest.raises(UsageError, match="action: policy"):
            compare(policy.interface, other)
        assert acted(server, seen_by_droid()).max() == largest


def test_a_session_id_names_the_episode_and_a_reset_that_fails_is_its_error():
    with roboarena(needs_session_id=True) as server, server.opened(embodiment="droid_jointpos"):
        assert {query["session_id"] for query in asked(server)} == {str(KEY)}
    failing = roboarena("Traceback (most recent call last): no session")
    with failing as server, pytest.raises(PolicyServerError, match="no session"):
        asked(server)
