"""Through the socket a robot gets the same bits as in process; episodes, texts, RoboArena, vla-eval."""

import dataclasses
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from pydantic import TypeAdapter

from configs.policy_server import ServeConfig
from contracts.hashing import hash_file, seed_of
from contracts.interface import Interface
from oxygen.presets.policies import read_model_policy
from oxygen.robots import conventions
from oxygen.robots.openpi_keys import keys_of_policy
from oxygen.server import launch
from oxygen.server.msgpack_numpy import pack, unpack
from oxygen.serving.engine_config import EngineConfig
from oxygen.serving.scheduler import FixedTokens
from oxygen.weights.source import bundled
from tests.oxygen.conftest import SMALL, small_policy
from tests.oxygen.server.server_thread import EchoPolicy, PolicyServerThread, RawClient, declaration, request

KEY = {"suite": "libero_goal", "task_id": 3, "init_id": 1, "seed": 7}
QUERIES = 5


def about(**fields):
    return {"oxygen_eval": fields}


def echoed(answer):
    """Seed (of its last three digits) and query that the double was asked."""
    return tuple(answer["actions"][0, :2])


@pytest.fixture(scope="module")
def policy(compiled_soon):
    engine = EngineConfig(budget=FixedTokens(3), slots=8, rows=8, robots=2)
    return small_policy(engine)


def test_images_with_channels_first_and_prompts_in_bytes_are_read_as_openpi_does():
    keys = keys_of_policy(conventions.LIBERO)
    sent = request(0)
    turned = sent | {"observation/image": np.moveaxis(sent["observation/image"], 2, 0)}
    read = keys.read(turned | {"prompt": sent["prompt"].encode()})
    np.testing.assert_equal(read, keys.read(sent))


def in_process(policy, robot, seed):
    """Actions and texts of an episode that one robot of the batch plays alone."""
    keys = keys_of_policy(conventions.LIBERO)
    policy.reset(robot, seed)
    actions, texts = [], []
    for query in range(QUERIES):
        actions.append(policy.act({robot: keys.read(request(query))})[robot].tobytes())
        texts += [(text.task, text.requested_query, text.text) for text in policy.complete()[robot].finished]
    policy.finish(robot)
    return actions, texts


def by_socket(client: RawClient, episode, together=None):
    actions, texts = [], []
    for query in range(QUERIES):
        if together is not None:
            together.wait(60)
        answer = client.ask(request(query) | about(episode=episode, query=query))
        actions.append(answer["actions"].tobytes())
        rest = client.ask(about(poll=True))
        texts += [(text["task"], text["query"], text["text"]) for text in answer["texts"] + rest["texts"]]
    return actions, texts


def test_through_the_socket_a_robot_gets_the_same_bits_as_in_process_alone_or_together(policy):
    seeds = [seed_of("libero_goal.3.1.7"), 5]
    expected = [in_process(policy, robot, seed) for robot, seed in enumerate(seeds)]
    assert expected[0][1], "texts have finished"
    declared = declaration(horizon=SMALL.horizon, robots=2)
    with PolicyServerThread(policy, declared, robots=2, window_s=2.0) as server:
        with server.client() as client:
            assert by_socket(client, KEY) == expected[0]
        with server.client() as first, server.client() as second, ThreadPoolExecutor(2) as pool:
            both = threading.Barrier(2)
            played = [pool.submit(by_socket, *each, both) for each in ((first, 5), (second, KEY))]
            assert [each.result(120) for each in played] == expected[::-1]


def test_queries_within_the_window_share_a_batch_and_one_alone_waits_no_longer():
    policy = EchoPolicy(3)
    with PolicyServerThread(policy, robots=3, window_s=0.5) as server, ThreadPoolExecutor(3) as pool:
        clients = [server.client() for _ in range(3)]
        with clients[0], clients[1], clients[2]:
            alone = clients[0].ask(request())
            list(pool.map(lambda client: client.ask(request()), clients[1:]))
            policy.batches.clear()
            answers = list(pool.map(lambda client: client.ask(request()), clients))
            assert policy.batches == [3]
            assert all(answer["server_timing"]["queue"] < 500 for answer in answers)
            policy.batches.clear()
            late = clients[0].ask(request())
            assert policy.batches == [1]
            assert 499 <= late["server_timing"]["queue"] < 5000
            assert alone["server_timing"]["queue"] < 400, "no other robot was active"


def test_robots_in_turn_open_a_policy_each_as_they_come_and_the_lowest_free_one_again():
    opened = []

    def open_policy(number):
        assert number == len(opened)
        opened.append(EchoPolicy())
        return opened[-1]

    with PolicyServerThread(open_policy, robots=3, batch_size=1) as server:
        assert opened == []
        for _ in range(2):
            with server.client() as alone:
                assert echoed(alone.ask(request()))[1] == 0
            while server.batcher._free.qsize() < 3:  # the server notices soon that the client has left
                time.sleep(0.01)
        assert len(opened) == 1
        with server.client() as first, server.client() as second:
            first.ask(request())
            assert echoed(second.ask(request())) == (0, 0)
            assert echoed(second.ask(request())) == (0, 1)
            assert echoed(first.ask(request())) == (0, 1)
        assert [policy.batches for policy in opened] == [[1] * 4, [1] * 2]


def test_the_metadata_declare_the_interface_as_it_is():
    interface = dataclasses.replace(conventions.DROID, name="echo", horizon=10)
    declared = declaration(conventions.DROID, robots=4)
    with PolicyServerThread(EchoPolicy(), declared) as server, server.client() as client:
        declared = client.metadata["oxygen_eval"]
    assert TypeAdapter(Interface).validate_python(declared.pop("interface")) == interface
    model = {"model": "echo", "weights_sha256": None, "horizon": 10}
    served = {"mode": "unified", "language_tasks": ["narration"], "robots": 4}
    assert declared == {"version": 1, **model, **served}
    assert client.metadata["embodiment"] == "droid"


OPTIONS = {"text_every": 4, "tokens_per_frame": 2, "dtype": "bfloat16"}
DIGEST = hash_file(bundled("tiny_textual_memory") / "adapter.npz")


@pytest.mark.parametrize(
    ("name", "options", "declared"),
    [
        ("tiny", {}, None),
        ("tiny", OPTIONS, OPTIONS),
        ("tiny_textual_memory", {}, {"adapter_sha256": DIGEST, "adapter_mask": "exact"}),
        ("tiny_textual_memory", {"random_weights": True}, {"random_weights": True}),
    ],
)
def test_the_metadata_declare_options_and_adapter(name, options, declared, policy, monkeypatch):
    monkeypatch.setattr(launch, "load_policy", lambda *_, **__: policy)
    _, served = launch.open_served(read_model_policy(name), ServeConfig(policy=name, **options))
    assert served.metadata()["oxygen_eval"].get("options") == declared


def test_the_fields_of_the_prompt_are_declared_in_mode_actions_too(policy, monkeypatch):
    monkeypatch.setattr(launch, "load_policy", lambda *_, **__: policy)
    declared = [
        launch.open_served(read_model_policy("tiny_memory"), ServeConfig(policy="tiny_memory", mode=mode))[1]
        for mode in ("unified", "actions")
    ]
    assert declared[0].feedback == declared[1].feedback != {}
    assert [served.language_tasks for served in declared] == [("memory",), ()]


def test_the_noise_is_a_function_of_episode_and_query_and_else_of_the_connection():
    seed = seed_of("libero_goal.3.1.7") % 1000
    with PolicyServerThread(EchoPolicy()) as server, server.client() as client:
        assert [echoed(client.ask(request())) for _ in range(2)] == [(0, 0), (0, 1)]
        assert echoed(client.ask(request() | about(episode=KEY))) == (seed, 0)
        assert echoed(client.ask(request() | about(episode=KEY, query=1))) == (seed, 1)
        assert echoed(client.ask(request() | about(episode=KEY, query=7))) == (seed, 7)
        assert echoed(client.ask(request() | about(episode=None, query=None))) == (seed, 8)
        assert echoed(client.ask(request() | about(episode=KEY, reset=True))) == (seed, 0)
        ended = client.ask(about(reset=True))
        assert [text["query"] for text in ended["texts"]] == [0]
        assert echoed(client.ask(request() | about(episode=12))) == (12, 0)
    with PolicyServerThread(EchoPolicy()) as server, server.client() as client:
        places = [echoed(client.ask(request() | about(reset=True))) for _ in range(2)]
        assert [*places, echoed(client.ask(request()))] == [(0, 0), (1, 0), (1, 1)]


def test_texts_come_with_the_next_answer_or_a_poll_and_once():
    with PolicyServerThread(EchoPolicy()) as server, server.client() as client:
        first = client.ask(request())
        assert first["texts"] == []
        assert first["oxygen_eval"]["prompt_cut"] == 2
        assert first["policy_timing"] == {"infer_ms": 4.0}
        assert first["server_timing"].keys() == {"queue", "prefill", "denoise", "action", "infer_ms"}
        polled = client.ask(about(poll=True))
        (text,) = polled["texts"]
        assert (text["task"], text["query"], text["finished"]) == ("narration", 0, True)
        assert text["text"] == "put the mug on the plate 0"
        assert polled["server_timing"] == {"action": 4.0, "decode": 1.0, "frame": 5.0}
        assert polled["oxygen_eval"]["tokens"] == 3
        assert polled["oxygen_eval"]["requested"] == [{"task": "narration", "request_id": 0, "query": 0}]
        assert client.ask(about(poll=True))["texts"] == []
        client.ask(request())
        while not (answer := client.ask(request()))["texts"]:  # its texts are completed beside the answer
            pass
        assert answer["server_timing"]["prev_total_ms"] == 5.0


def droid_request(number_from):
    image = np.zeros((8, 8, 3), np.uint8)
    return {
        f"observation/exterior_image_{number_from}_left": image,
        "observation/wrist_image_left": image,
        "observation/joint_position": np.arange(7, dtype=np.float32),
        "observation/gripper_position": np.float32(0.5),
        "prompt": "put the cube in the bowl",
    }


def test_roboarenas_endpoints_sessions_and_camera_numbers_are_understood():
    wanted = {
        "image_resolution": [224, 224],
        "needs_wrist_camera": True,
        "n_external_cameras": 1,
        "needs_stereo_camera": False,
        "needs_session_id": True,
    }
    positions = declaration(conventions.DROID_JOINT_POSITION)
    with PolicyServerThread(EchoPolicy(), positions) as server, server.client("/roboarena") as client:
        assert client.metadata == {**wanted, "action_space": "joint_position"}
    with PolicyServerThread(EchoPolicy(), declaration(conventions.DROID)) as server:
        with server.client("/roboarena") as client:
            assert client.metadata == {**wanted, "action_space": "joint_velocity"}
            asked = droid_request(0) | {"endpoint": "infer", "session_id": "a"}
            assert [echoed(client.ask(asked)) for _ in range(2)] == [(0, 0), (0, 1)]
            assert echoed(client.ask(asked | {"session_id": "b"})) == (1, 0)
            assert client.ask({"endpoint": "reset"}) == "reset successful"
            assert echoed(client.ask(asked | {"session_id": "b"})) == (2, 0)
        with server.client() as client:
            assert echoed(client.ask(droid_request(1) | {"endpoint": "infer"})) == (0, 0)


class VlaEvalClient:
    """Speaks first, as vla-evaluation-harness does."""

    def __init__(self, connection):
        self.connection = connection
        self.seq = 0

    def send(self, kind, payload):
        self.seq += 1
        self.connection.send(pack({"type": kind, "payload": payload, "seq": self.seq, "timestamp": 0.0}))

    def ask(self, kind, payload):
        self.send(kind, payload)
        answer = unpack(self.connection.recv(timeout=30))
        assert answer["seq"] == self.seq
        return answer["type"], answer["payload"]


HELLO = {"harness_version": "0.8.0", "protocol_version": 1}
STARTED = [("hello", HELLO), ("episode_start", {})]


def vla_eval_observation():
    image = np.zeros((8, 8, 3), np.uint8)
    return {"images": {"agentview": image, "wrist": image}, "states": np.ones(8), "task_description": "go"}


def test_vla_evals_clients_get_one_action_per_observation_of_a_chunk_kept_here():
    policy = EchoPolicy()
    with PolicyServerThread(policy, replan_steps=3) as server, server.connect("/vla-eval") as connection:
        client = VlaEvalClient(connection)
        kind, hello = client.ask("hello", HELLO)
        assert (kind, hello["protocol_version"]) == ("hello", 1)
        assert hello["observation_params"]["quat_no_antipodal"]
        client.send("episode_start", {"task": {}})
        steps = [client.ask("observation", vla_eval_observation())[1]["actions"] for _ in range(4)]
        chunk = [(0, 0), (0.001, 0.001), (0.002, 0.002)]
        assert [tuple(np.round(step[:2], 3)) for step in steps] == [*chunk, (0, 1)]
        assert len(policy.batches) == 2
        client.send("episode_end", {})
        client.send("episode_start", {"task": {}})
        assert tuple(client.ask("observation", vla_eval_observation())[1]["actions"][:2]) == (1, 0)


def test_the_noise_of_an_episode_that_vla_eval_names_is_that_of_our_own_runs():
    task = {"name": "go", "suite": "libero_goal", "task_id": 3, "episode_idx": 1}
    with (
        PolicyServerThread(EchoPolicy(), replan_steps=1) as server,
        server.connect("/vla-eval") as connection,
    ):
        client = VlaEvalClient(connection)
        client.ask("hello", HELLO)
        for _ in range(2):  # a second attempt is the same episode
            client.send("episode_start", {"task": task})
            acted = [client.ask("observation", vla_eval_observation())[1]["actions"] for _ in range(2)]
            assert [tuple(step[:2]) for step in acted] == [
                (seed_of("libero_goal.3.1.7") % 1000, n) for n in (0, 1)
            ]
            client.send("episode_end", {})


def test_texts_that_fail_at_the_end_of_an_episode_do_not_reach_into_the_next():
    policy = EchoPolicy()
    with PolicyServerThread(policy, replan_steps=1) as server, server.connect("/vla-eval") as connection:
        client = VlaEvalClient(connection)
        client.ask("hello", HELLO)
        policy.fails_to_complete = ArithmeticError("no text")
        client.send("episode_start", {})
        client.ask("observation", vla_eval_observation())
        kind, payload = client.ask("episode_end", {})
        assert (kind, "ArithmeticError" in payload["error"]) == ("error", True)
        policy.fails_to_complete = None
        client.send("episode_start", {})
        _, answer = client.ask("observation", vla_eval_observation())
        assert tuple(answer["actions"][:2]) == (1, 0), "the first query of the second episode"


def test_a_query_that_failed_is_asked_again_at_its_place():
    policy = EchoPolicy()
    with PolicyServerThread(policy, replan_steps=1) as server, server.connect("/vla-eval") as connection:
        client, places = VlaEvalClient(connection), []
        client.ask("hello", HELLO)
        for fails in ((True, False, False), (False, True, False)):
            client.send("episode_start", {})
            for policy.fails in (FloatingPointError("diverged") if each else None for each in fails):
                kind, answer = client.ask("observation", vla_eval_observation())
                places.append(kind if policy.fails else tuple(answer["actions"][:2]))
            policy.fails = None
            client.send("episode_end", {})
    assert places == ["error", (0, 0), (0, 1), (1, 0), "error", (1, 1)]


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ([("observation", {})], "observation before hello"),
        ([("hello", HELLO), ("observation", {})], "observation before episode_start"),
        ([*STARTED, ("observation", {})], "has no `images`"),
        (
            [*STARTED, ("observation", {"images": {"wrist": 1}})],
            "'agentview'. Allowed: agentview, wrist.",
        ),
        ([("hello", {"protocol_version": 2})], "protocol version 2; this server has 1"),
        ([("helo", {})], "did you mean 'hello'"),
    ],
)
def test_an_error_on_vla_evals_path_is_a_message_and_ends_nothing(sent, said):
    with PolicyServerThread(EchoPolicy()) as server, server.connect("/vla-eval") as connection:
        client = VlaEvalClient(connection)
        for kind, payload in sent[:-1]:
            client.ask(kind, payload) if kind == "hello" else client.send(kind, payload)
        kind, payload = client.ask(*sent[-1])
        assert kind == "error"
        assert said in payload["error"]
        assert client.ask("hello", HELLO)[0] == "hello"
