"""Our server is told the episode and the query; its texts, its timings and its interface are used."""

import dataclasses

import numpy as np
import pytest

from contracts.errors import UsageError
from contracts.interface import Camera, compare
from contracts.text import TextRequest
from eval.policies.base import BadAnswerError, PolicyLostError
from oxygen.robots.conventions import DROID, LIBERO
from sim_envs.fake import FakeWorld
from sim_envs.libero.tasks import LIBERO_INTERFACE
from tests.eval.policies.servers import (
    KEY,
    SERVED_ACTIONS,
    OpenpiServer,
    served_answer,
    served_metadata,
    served_text,
    serving,
)


def played(server, queries, **how):
    """Actions and reply of each query of an episode."""
    ((answers, _),) = server.play(queries, **how)
    return answers


def test_queries_keep_every_bit_say_their_place_in_the_episode_and_are_polled_for_texts():
    with serving() as server:
        (actions, _), _ = played(server, 2, observation=FakeWorld(image_size=256).observe())
    assert actions.tobytes() == SERVED_ACTIONS.tobytes()
    assert server.queries[0]["observation/image"].shape == (256, 256, 3)
    assert server.queries[0]["observation/state"].dtype == np.float64
    episode = dataclasses.asdict(KEY)
    assert [request["oxygen_eval"] for request in server.queries] == [
        {"episode": episode, "query": 0, "reset": True},
        {"episode": episode, "query": 0, "poll": True},
        {"episode": episode, "query": 1, "reset": False},
        {"episode": episode, "query": 1, "poll": True},
    ]


def test_a_server_without_texts_is_not_polled():
    for silent in ({"mode": "actions"}, {"language_tasks": []}):
        with serving(**silent) as server:
            ((_, reply),) = played(server, 1, modes=[silent.get("mode", "unified")])
            assert (reply.finished, len(server.queries)) == ((), 1)


def test_what_is_cut_from_a_prompt_is_told_with_the_actions_of_its_query():
    def cuts(request):
        given, about = served_answer(request), request["oxygen_eval"]
        if about.get("poll"):
            return given
        return {**given, "oxygen_eval": {"tokens": 0, "prompt_cut": 7 + about["query"]}}

    with serving(cuts) as server:
        assert [reply.prompt_cut for _, reply in played(server, 2)] == [7, 8]


def test_the_declared_interface_is_the_policys():
    with serving() as server, server.opened(embodiment="libero") as policy:  # which it may be told
        compare(policy.interface, LIBERO_INTERFACE)
        assert policy.interface.horizon == 10
        assert policy.inputs["server_metadata"] == served_metadata()
    slow = dataclasses.replace(LIBERO, action=dataclasses.replace(LIBERO.action, control_hz=10.0))
    cameras = dataclasses.replace(LIBERO.observation, cameras=(Camera(name="front"),))
    own = dataclasses.replace(slow, observation=cameras)
    for interface, key in ((own, "observation/eef_position"), (DROID, "observation/joint_position")):
        with serving(interface=interface) as server, server.opened() as policy:
            assert key in policy.inputs["keys"], "openpi's, or the names of the interface"
    why = r"control rate, Hz: policy .* has 10.0, .* has 20.0"
    with serving(interface=slow) as server, server.opened() as policy, pytest.raises(UsageError, match=why):
        compare(policy.interface, LIBERO_INTERFACE)


def test_texts_describe_their_query_arrive_after_the_time_on_the_wire_or_count_as_unfinished():
    with serving() as server:
        (answers, end), (_, later) = server.play(2, 1)
    assert [[request.query for request in each.requests] for each in (end, later)] == [[1], [0]]
    (_, first), (_, second) = answers
    assert first.finished == ()
    (said,) = second.finished
    assert (said.task, said.requested_query, said.finished_query) == ("narration", 0, 1)
    assert said.text == "I narrate query 0 — schön"
    assert second.requested == (TextRequest(task="narration", request_id=1, query=1),)
    assert second.tokens == 3
    timings = second.timings_ms
    assert said.after_ms == pytest.approx(3.0 + timings["wire"])
    assert (timings["prefill"], timings["denoise"], timings["decode"]) == (0.25, 0.125, 4.0)
    assert timings["server"] == 0.03125
    assert timings["action"] == pytest.approx(timings["preprocess"] + timings["server"] + timings["wire"])
    assert timings["frame"] == timings["action"] + 4.0


@pytest.mark.parametrize(
    ("declared", "how", "why"),
    [
        ({"version": 2}, {}, "speaks version 2 of this project's extension.*this client version 1"),
        ({"mode": "fast"}, {}, "unknown mode 'fast'"),
        ({"horizon": 0}, {}, "its horizon is 0"),
        ({}, {"modes": ("actions",)}, "mode unified, and this run is in actions; give --mode unified"),
        ({"robots": 2}, {"worlds": 4}, "serves 2 robots at once, and --num-envs is 4; give --num-envs 2"),
        ({}, {"embodiment": "droid"}, "declares its interface; leave out embodiment=droid"),
    ],
)
def test_a_server_started_for_another_run_is_refused(declared, how, why):
    with serving(**declared) as server, pytest.raises(UsageError, match=why):
        server.opened(**how)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (7, "texts that cannot be read"),
        ([{"task": "narration", "text": "done"}], "texts that cannot be read: 'query'"),
        ([{**served_text(0), "tokens": "many"}], "texts that cannot be read.*tokens"),
    ],
)
def test_a_malformed_text_is_an_error(sent, why):
    def wrong(request):
        return {**served_answer(request), "texts": sent}

    with serving(wrong) as server, pytest.raises(BadAnswerError, match=f"(?s){why}"):
        played(server, 1)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"weights_sha256": "1" * 64}, "weights_sha256 '111"),
        ({"options": {"text_every": 4}}, "options {'text_every': 4}, not None"),
    ],
)
def test_a_server_that_comes_back_with_another_policy_ends_the_run(changed, named):
    with serving() as server, server.opened(connect_timeout_s=5) as policy:
        server.__exit__()
        other = OpenpiServer(served_answer, metadata=served_metadata(**changed), port=server.port)
        with other, pytest.raises(PolicyLostError, match=named):
            policy.in_world(None, None).reset(KEY)
