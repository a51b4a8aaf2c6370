"""Texts, timings and errors of the server that OxyGen's authors released, on a stand-in without a model."""

import itertools
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from websockets.sync.server import ServerConnection

from configs.exits import INPUT_ERROR
from contracts.episode import Outcome
from contracts.errors import UsageError
from eval import libero
from eval.policies.base import BadAnswerError
from eval.records.query_logs import read_queries
from eval.records.schema import RunFolder
from sim_envs.fake import FakeWorld
from tests.commands import call
from tests.eval.conftest import play
from tests.eval.doubles import without_physics
from tests.eval.policies.servers import ACTIONS, OpenpiServer

TEXT = "No relevant task progress is visible yet."
END = 1
TOKENS = [*range(100, 100 + len(TEXT.split())), END]


def metadata(
    api: str = "continuous_batching", request_mode: str | None = "new_each_call", **changes: Any
) -> dict[str, Any]:
    """What the server sends first."""
    batching = {"continuous_batching_request_mode": request_mode}
    return {
        "policy_seed": 7,
        "adapter": "/adapters/adapter_step_1500.npz",
        "adapter_rank": 16,
        "effective_infer_api": api,
        "infer_api": api,
        "text_stop_condition": "eos",
        "language_steps_per_frame": 5,
        "language_max_decoding_steps": 28,
        **(batching if api == "continuous_batching" else {}),
        **changes,
    }


class ReleaseServer(OpenpiServer):
    """Serves in threads; each connection has texts of its own.

    Args:
        api: `effective_infer_api`.
        request_mode: When texts are started.
        steps: Tokens per call and text.
        edit: Called with the number of the call, over all connections, and the answer; returns what is sent.
    """

    def __init__(
        self,
        api: str = "continuous_batching",
        request_mode: str | None = "new_each_call",
        *,
        steps: int = 5,
        edit: Any = lambda number, answer: answer,
        **changes: Any,
    ) -> None:
        self.api, self._request_mode, self._steps, self._edit = api, request_mode, steps, edit
        self._ids, self._calls = itertools.count(), itertools.count()
        self._of_connection = threading.local()
        self.dropped: list[list[str]] = []
        """The unfinished texts of each connection that has ended."""
        super().__init__(self._infer, metadata=metadata(api, request_mode, **changes))

    def _serve(self, connection: ServerConnection) -> None:
        self._of_connection.texts = {}
        try:
            super()._serve(connection)
        finally:
            self.dropped.append(list(self._of_connection.texts))

    def _infer(self, query: Mapping[str, Any]) -> Any:
        del query
        answer: dict[str, Any] = {"actions": ACTIONS / 100, "policy_timing": {"total_ms": 90.0}}
        if self.api in ("blocking_baseline", "shared_kv"):
            identity = None if self.api == "blocking_baseline" else f"req_{next(self._ids)}"
            answer["language_updates"] = [_update(identity, 0, len(TOKENS), created=True)]
        elif self.api == "continuous_batching":
            answer |= self._continued()
            timing = {"pre_proc_ms": 1.0, "prefill_actions_ms": 60.0, "text_gen_ms": 25.0}
            answer["policy_timing"] = {**timing, "post_proc_ms": 2.0, "total_ms": 88.0}
        return self._edit(next(self._calls), answer)

    def _continued(self) -> dict[str, Any]:
        """Start a text if one is due, and continue all by the tokens of a call."""
        texts: dict[str, int] = self._of_connection.texts
        resumes = self._request_mode == "resume_until_finished"
        new = None if resumes and texts else f"req_{next(self._ids)}"
        known = {**({} if new is None else {new: 0}), **texts}
        texts.clear()
        texts |= {
            each: done + self._steps for each, done in known.items() if done + self._steps < len(TOKENS)
        }
        updates = [_update(each, n, n + self._steps, created=each == new) for each, n in known.items()]
        if resumes:
            return {name: value for name, value in updates[0].items() if name != "created_this_call"}
        return {**updates[0], "language_updates": updates, "active_language_requests": len(texts)}


def _update(identity: str | None, before: int, after: int, *, created: bool) -> dict[str, Any]:
    padded = [*TOKENS, *[0] * max(0, after - len(TOKENS))]
    return {
        "request_id": identity,
        "tokens_this_frame": np.array(padded[before:after]),
        "tokens_full": np.array(padded[:after]),
        "text": " ".join(TEXT.split()[:after]),
        "is_finished": after >= len(TOKENS),
        "created_this_call": created,
    }


MODES = {
    "continuous_batching": "unified",
    "blocking_baseline": "isolated",
    "shared_kv": "shared",
    "infer": "actions",
}


def played(server, queries, episodes=1):
    """Replies and end of each episode."""
    played = server.play(*[queries] * episodes, modes=[MODES[server.api]], timeout_s=5)
    return [([reply for _, reply in answers], end) for answers, end in played]


def test_texts_of_every_call_are_staggered_and_keep_the_query_they_are_of():
    with ReleaseServer("continuous_batching", "new_each_call", steps=3) as server:
        ((replies, end),) = played(server, 4)
    assert [[text.request_id for text in reply.requested] for reply in replies] == [[0], [1], [2], [3]]
    finished = [[(text.request_id, text.requested_query) for text in reply.finished] for reply in replies]
    assert finished == [[], [], [(0, 0)], [(1, 1)]]
    text = replies[2].finished[0]
    assert (text.task, text.text, text.tokens, text.reason) == ("textual_memory", TEXT, len(TOKENS), "stop")
    assert text.finished_query == 2
    busy_ms = [reply.timings_ms["action"] for reply in replies]
    assert text.latency_ms == pytest.approx(sum(busy_ms[:3]))
    assert replies[3].finished[0].latency_ms == pytest.approx(sum(busy_ms[1:4]))
    assert [reply.tokens for reply in replies] == [3, 6, 8, 8]  # padding after the end is not counted
    assert [request.query for request in end.requests] == [2, 3]
    assert end.cancelled == 2


def test_a_resumed_text_is_of_the_observation_that_started_it():
    with ReleaseServer("continuous_batching", "resume_until_finished", steps=3) as server:
        ((replies, end),) = played(server, 5)
        with server.opened(modes=["unified"], timeout_s=5) as policy:
            noise, resumed = policy.inputs["remarks"]
    assert "noise" in noise
    assert "text_gen includes prefill and denoising" in resumed
    assert policy.inputs["charge"] == "round_trip"
    assert policy.inputs["server_metadata"]["policy_seed"] == 7
    stages = replies[0].timings_ms
    assert (stages["prefill_actions"], stages["text_gen"]) == (60.0, 25.0)
    assert stages["server"] + stages["wire"] <= stages["action"]
    assert [[text.request_id for text in reply.requested] for reply in replies] == [[0], [], [], [1], []]
    assert [(text.requested_query, text.finished_query) for text in replies[2].finished] == [(0, 2)]
    assert end.cancelled == 1


@pytest.mark.parametrize("api", ["blocking_baseline", "shared_kv", "infer"])
def test_a_blocking_server_finishes_each_text_in_its_own_query(api):
    with ReleaseServer(api) as server:
        ((replies, end),) = played(server, 3)
    for query, reply in enumerate(replies):
        said = [(text.requested_query, text.finished_query, text.text) for text in reply.finished]
        assert said == ([] if api == "infer" else [(query, query, TEXT)])
    assert end.cancelled == 0


def test_each_episode_has_a_connection_of_its_own_and_leaves_no_texts_behind():
    with ReleaseServer(steps=3) as server:
        (_, first), (replies, _) = played(server, 2, episodes=2)
    assert first.cancelled == 2
    assert [text.query for text in replies[0].requested] == [0]
    assert ["req_1", "req_0"] in server.dropped
    assert ["req_3", "req_2"] in server.dropped


def updates(**changes):
    def edit(number, answer):
        first, *others = answer["language_updates"]
        return {**answer, "language_updates": [{**first, **changes}, *others]} if number == 1 else answer

    return edit


@pytest.mark.parametrize(
    ("edit", "steps", "said"),
    [
        (updates(created_this_call=False), 5, "update of text 1, which is unknown"),
        (updates(request_id="req_0"), 5, "update of text 0, which is running"),
        (updates(request_id="req_0", created_this_call=False), 8, "update of text 0, which has finished"),
        (updates(request_id="req_0"), 8, "update of text 0, which has finished"),
        (updates(text=""), 8, "sent 7 tokens of text 1, and no text"),
        (updates(request_id=None), 8, "a text without request_id"),
        (updates(request_id="one"), 8, "request_id is 'one'"),
        (updates(tokens_full=["a"]), 8, "tokens_full.0 is 'a'"),
        (updates(tokens_full=[True]), 8, "tokens_full.0 is True"),
        (lambda number, answer: {**answer, "active_language_requests": 7}, 8, "says that 7 texts are unfin"),
        (lambda number, answer: {**answer, "language_updates": 3}, 8, "texts of the policy server"),
    ],
)
def test_texts_that_contradict_each_other_are_refused_in_one_line(edit, steps, said):
    with ReleaseServer(steps=steps, edit=edit) as server, pytest.raises(BadAnswerError, match=said) as error:
        played(server, 2)
    assert "\n" not in str(error.value)
    resuming = {"request_mode": "resume_until_finished", "steps": 3}
    renamed = ReleaseServer(**resuming, edit=lambda number, answer: {**answer, "request_id": f"req_{number}"})
    with renamed as server, pytest.raises(BadAnswerError, match="started text 1, and 0 is not finished"):
        played(server, 2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"effective_infer_api": "magic"}, "effective_infer_api"),
        ({"continuous_batching_request_mode": "sometimes"}, "continuous_batching_request_mode"),
        ({"effective_infer_api": "blocking_baseline"}, "give --mode isolated, or .* another --execution"),
    ],
)
def test_metadata_that_are_unknown_are_refused(changes, said):
    with ReleaseServer(**changes) as server, pytest.raises(UsageError, match=said):
        server.opened(modes=["unified"], timeout_s=5)


def failing(number, answer):
    if number == 1:
        raise FloatingPointError("the flow has diverged")
    return answer


def recorded(tmp_path, server, **changes):
    """A run of two episodes in mode `unified`."""
    own = {"suites": ("libero_object",), "task_ids": (0,), "policy_kwargs": {"timeout_s": 5}}
    return play(tmp_path, **{"policy": server.url, **own, **changes})


def test_an_error_costs_its_episode_alone_and_texts_are_graded(tmp_path, monkeypatch):
    without_physics(monkeypatch, lambda task: FakeWorld(success_at=18))
    with ReleaseServer(edit=failing) as server:
        run = recorded(tmp_path, server)
    first, second = run.episodes().values()
    assert (first.outcome, second.outcome) == (Outcome.ERROR, Outcome.SUCCESS)
    assert "diverged" in first.error
    scores = second.texts["textual_memory"]
    assert (scores.texts, scores.not_graded) == (second.requests.finished, 0) == (3, 0)
    assert scores.at_request["exact"].hits == 3
    assert scores.on_delivery["exact"].hits == 2  # the bowl is on the plate from step 12 on
    queries = read_queries(run, second.key)
    assert [[each.requested_query for each in query.delivered] for query in queries] == [[], [0], [1], [2]]


def test_charging_the_server_leaves_out_the_transport(tmp_path, monkeypatch):
    without_physics(monkeypatch)

    timing = {"server_timing": {"infer_ms": 40.0 * 1e-3}}
    with ReleaseServer(edit=lambda number, answer: {**answer, **timing}) as server:
        how = {"policy_kwargs": {"charge": "server"}, "num_trials_per_task": 1}
        run = recorded(tmp_path, server, clock="measured", **how)
    (episode,) = run.episodes().values()
    latencies = [query.latency for query in read_queries(run, episode.key)]
    assert [(each.actions_ms, each.busy_ms) for each in latencies] == [(0.04, 0.04)] * 2


def test_the_command_records_texts_and_a_video_and_resumes(tmp_path, monkeypatch, capsys):
    without_physics(monkeypatch, lambda task: FakeWorld(success_at=18, image_size=64))

    def edit(_, answer):
        server._metadata["adapter"] = "another.npz"
        return answer

    with ReleaseServer(edit=edit) as server:
        line = "--suite libero_object --task-ids 0 --init-ids 0-1 --max-steps 20 --mode unified --video all"
        line = f"{line} --policy {server.url} --output-dir {tmp_path}".split()
        assert call(libero.app, *line) == INPUT_ERROR
        last = capsys.readouterr().err.splitlines()[-1]
        assert "has come back with adapter 'another.npz', not '/adapters/adapter_step_1500.npz'" in last
        (folder,) = (RunFolder(path) for path in tmp_path.iterdir() if (path / "manifest.json").is_file())
        assert len(folder.episodes()) == 1
        server._metadata["adapter"] = "/adapters/adapter_step_1500.npz"
        server._edit = lambda _, answer: answer
        assert call(libero.app, *line, "--resume", "--verbose") == 0
    episodes = folder.episodes().values()
    assert [episode.outcome for episode in episodes] == [Outcome.SUCCESS] * 2
    assert all((folder.path / episode.video).stat().st_size > 1000 for episode in episodes)
    scores = [episode.texts["textual_memory"] for episode in episodes]
    assert [sum(each.texts for each in scores), sum(each.not_graded for each in scores)] == [6, 0]
    assert any("noise" in remark for remark in folder.read_manifest()["policy_inputs"]["remarks"])
