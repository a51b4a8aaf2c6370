"""The protocols: openpi's, with fields for episodes and texts; RoboArena's form of it; vla-eval's."""

import dataclasses
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from contracts.errors import UsageError, check_has, unknown
from contracts.text import Reply
from oxygen.server.metadata import EXTENSION, Declaration
from oxygen.server.msgpack_numpy import pack, unpack
from oxygen.server.robot import ConnectedRobot, QueryPosition, text_message

_ENDPOINTS = ("infer", "reset")
_VLA_EVAL_VERSION = 1
_IMAGES = {"observation/image": "agentview", "observation/wrist_image": "wrist"}
_WANTED = {"send_wrist_image": True, "send_state": True, "quat_no_antipodal": True}
"""Requests openpi's observations, whose axis-angles keep the quaternion's sign."""

_SEED = 7  # LIBERO's and vla-eval's default

_ACTION_SPEC = {
    "position": {"name": "position", "dims": 3, "format": "delta_xyz", "range": [-1, 1]},
    "rotation": {"name": "rotation", "dims": 3, "format": "axis_angle", "range": [-3.15, 3.15]},
    "gripper": {"name": "gripper", "dims": 1, "format": "binary_close_positive", "range": [-1, 1]},
}
_OBSERVATION_SPEC = {
    "agentview": {"name": "image", "dims": 0, "format": "rgb_hwc_uint8"},
    "wrist": {"name": "image", "dims": 0, "format": "rgb_hwc_uint8"},
    "state": {"name": "state", "dims": 8, "format": "eef_pos3_axisangle3_gripper2"},
    "language": {"name": "language", "dims": 0, "format": "language"},
}


class OpenpiDialect:
    """Sends metadata, then an answer to each observation. Errors are text, and close the connection.

    Attributes:
        greeting: The metadata, the first message; RoboArena's clients get others.
    """

    closes_on_error = True

    def __init__(
        self, robot: ConnectedRobot, declaration: Declaration, *, for_roboarena: bool = False
    ) -> None:
        self._robot = robot
        self._declaration = declaration
        self.greeting = pack(declaration.roboarena() if for_roboarena else declaration.metadata())
        self._session: str | None = None

    async def answer(self, message: bytes | str) -> bytes | str:
        """The answer to a request; if that is invalid, or no robot is free, a MessageError or UsageError."""
        if isinstance(message, str):
            raise UsageError(f"a text ({message[:40]!r}); requests are msgpack in binary messages")
        request = unpack(message)
        if not isinstance(request, dict):
            raise UsageError(f"a request is a map; this one is {type(request).__name__}")
        endpoint = request.pop("endpoint", "infer")
        if endpoint not in _ENDPOINTS:
            raise unknown("endpoint", endpoint, _ENDPOINTS)
        place = QueryPosition.read(request.pop(EXTENSION, {}))
        session = request.pop("session_id", None)
        if session is not None:  # RoboArena's: a new one starts an episode
            if self._session not in (None, str(session)):
                await self._robot.end_episode()
            self._session = str(session) or self._session
        if endpoint == "reset":
            await self._robot.end_episode()
            return "reset successful"
        if place.poll:
            await self._robot.complete()
            replies = self._robot.take_replies()
            timing = dict(replies[-1].timings_ms) if replies else {}
            return pack({**_language(replies), "server_timing": timing})
        if place.reset and not request:
            replies, end = await self._robot.end_episode()
            rest = Reply(timings_ms={}, finished=end.finished, dropped=end.dropped, tokens=end.tokens)
            return pack({**_language([*replies, rest]), "cancelled": end.cancelled})
        actions, timings_ms, prompt_cut = await self._robot.act(self._declaration.keys.read(request), place)
        replies = self._robot.take_replies()
        infer_ms = timings_ms["queue"] + timings_ms["action"]
        before = {"prev_total_ms": replies[-1].timings_ms["frame"]} if replies else {}
        answer = {
            **_language(replies, prompt_cut=prompt_cut),
            "actions": actions,
            "server_timing": {**timings_ms, **before, "infer_ms": infer_ms},
            "policy_timing": {"infer_ms": timings_ms["action"]},
        }
        return pack(answer)

    def failed(self, line: str) -> str:
        """The error message."""
        return line


def _language(replies: Sequence[Reply], **about_query: int) -> dict[str, Any]:
    return {
        "texts": [text_message(text) for reply in replies for text in reply.finished],
        EXTENSION: {
            "requested": [dataclasses.asdict(text) for reply in replies for text in reply.requested],
            "dropped": [dataclasses.asdict(text) for reply in replies for text in reply.dropped],
            "tokens": sum(reply.tokens for reply in replies),
            **about_query,
        },
    }


class VlaEvalDialect:
    """vla-evaluation-harness's protocol, version 1, for LIBERO: one action per observation.

    Chunks are buffered here; errors do not close the connection.
    """

    closes_on_error = False
    greeting = None  # the client speaks first

    def __init__(self, robot: ConnectedRobot, declaration: Declaration, *, replan_steps: int) -> None:
        self._robot = robot
        self._declaration = declaration
        self._replan_steps = replan_steps
        self._chunk: deque[np.ndarray] = deque()
        self._seq = 0
        self._greeted = self._in_episode = False
        self._position = QueryPosition()

    async def answer(self, message: bytes | str) -> bytes | None:
        """The answer to a message, or None if the protocol has none; raises what `OpenpiDialect` does."""
        kind, payload = self._read(message)
        if kind == "hello":
            return self._hello(payload)
        if not self._greeted:
            raise UsageError(f"{kind} before hello; the client's hello comes first")
        if kind in ("episode_start", "episode_end"):
            self._in_episode = kind == "episode_start"
            self._chunk.clear()
            self._position = _episode(payload.get("task"))
            await self._robot.end_episode()
            return None
        if kind == "error":
            return None
        if not self._in_episode:
            raise UsageError("observation before episode_start; start the episode")
        if not self._chunk:
            observation = self._declaration.keys.read(_as_openpi(payload))
            actions, *_ = await self._robot.act(observation, self._position)
            self._position = QueryPosition()  # the same episode
            self._chunk.extend(actions[: self._replan_steps])
        texts = [text_message(text) for reply in self._robot.take_replies() for text in reply.finished]
        values = self._chunk.popleft()
        about = {"dtype": values.dtype.str, "shape": list(values.shape)}
        array = {"__ndarray__": True, "data": values.tobytes(), **about}
        return self._message("action", {"actions": array, **({"texts": texts} if texts else {})})

    def failed(self, line: str) -> bytes:
        """The error message."""
        return self._message("error", {"error": line})

    def _read(self, message: bytes | str) -> tuple[str, Mapping[str, Any]]:
        content = unpack(message) if isinstance(message, bytes) else None
        if not isinstance(content, dict) or not isinstance(content.get("payload"), dict):
            raise UsageError("a message is a map of type, payload, seq and timestamp in msgpack")
        seq = content.get("seq")
        self._seq = seq if type(seq) is int else 0
        kinds = ("hello", "episode_start", "observation", "episode_end", "error")
        if content.get("type") not in kinds:
            raise unknown("message type", content.get("type"), kinds)
        return content["type"], content["payload"]

    def _hello(self, payload: Mapping[str, Any]) -> bytes:
        if payload.get("protocol_version") != _VLA_EVAL_VERSION:
            raise UsageError(
                f"protocol version {payload.get('protocol_version')!r}; this server has {_VLA_EVAL_VERSION}"
            )
        self._greeted = True
        about = {
            "harness_version": "0.8.0",
            "protocol_version": _VLA_EVAL_VERSION,
            "model_server": f"oxygen-eval {self._declaration.model}",
            "capabilities": {},
            "observation_params": _WANTED,
            "action_spec": _ACTION_SPEC,
            "observation_spec": _OBSERVATION_SPEC,
        }
        return self._message("hello", about)

    def _message(self, kind: str, payload: Mapping[str, Any]) -> bytes:
        return pack({"type": kind, "payload": payload, "seq": self._seq, "timestamp": time.time()})


def _episode(task: Any) -> QueryPosition:
    """The position of the first query of a task's episode: with seed 7, as this project's runs of LIBERO."""
    match task:
        case {"suite": str(suite), "task_id": int(task_id), "episode_idx": int(state)}:
            key = {"suite": suite, "task_id": task_id, "init_id": state, "seed": _SEED}
            return QueryPosition(episode=key)
    return QueryPosition()  # the next episode of the connection


def _as_openpi(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an observation to openpi's keys. Both protocols rotate LIBERO's images by 180°."""
    images = payload.get("images")
    if not isinstance(images, dict):
        raise UsageError("the observation has no `images`, a map of agentview and wrist")
    check_has("images of the observation", images, _IMAGES.values())
    state = {"observation/state": payload["states"]} if "states" in payload else {}
    prompt = {"prompt": payload["task_description"]} if "task_description" in payload else {}
    return {**{key: images[name] for key, name in _IMAGES.items()}, **state, **prompt}


Dialect: TypeAlias = OpenpiDialect | VlaEvalDialect
