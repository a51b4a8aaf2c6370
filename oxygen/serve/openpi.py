"""openpi's protocol, with optional fields for episodes and texts; and RoboArena's form of it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from configs.errors import UsageError, unknown
from oxygen.policy.reply import Reply
from oxygen.serve.metadata import EXTENSION, Declaration
from oxygen.serve.msgpack_numpy import pack, unpack
from oxygen.serve.robot import ConnectedRobot, QueryPosition, text_message

_ENDPOINTS = ("infer", "reset")


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
        self._session: Any = None

    async def answer(self, message: bytes | str) -> bytes | str:
        """The answer to a request.

        Raises:
            MessageError: It is not a message of this protocol.
            UsageError: Its observation or fields are invalid, or all robots are taken.
        """
        if isinstance(message, str):
            raise UsageError(f"a text ({message[:40]!r}); requests are msgpack in binary messages")
        request = unpack(message)
        if not isinstance(request, dict):
            raise UsageError(f"a request is a map; this one is {type(request).__name__}")
        endpoint = request.pop("endpoint", "infer")
        if endpoint not in _ENDPOINTS:
            raise unknown("endpoint", endpoint, _ENDPOINTS)
        place = QueryPosition.read(request.pop(EXTENSION, {}))
        await self._end_other_session(request.pop("session_id", None))
        if endpoint == "reset":
            await self._robot.end_episode()
            return "reset successful"
        if place.poll:
            await self._robot.complete()
            replies = self._robot.take_replies()
            timing = dict(replies[-1].timings_ms) if replies else {}
            return pack({**_language(replies), "server_timing": timing})
        if place.reset and not request:
            end = await self._robot.end_episode()
            rest = Reply(timings_ms={}, finished=end.finished, dropped=end.dropped, tokens=end.tokens)
            replies = [rest] if end.reply is None else [end.reply, rest]
            return pack({**_language(replies), "cancelled": end.cancelled})
        actions, timings_ms = await self._robot.act(self._declaration.keys.read(request), place)
        replies = self._robot.take_replies()
        infer_ms = timings_ms["queue"] + timings_ms["action"]
        before = {"prev_total_ms": replies[-1].timings_ms["frame"]} if replies else {}
        answer = {
            **_language(replies),
            "actions": actions,
            "server_timing": {**timings_ms, **before, "infer_ms": infer_ms},
            "policy_timing": {"infer_ms": timings_ms["action"]},
        }
        return pack(answer)

    def failed(self, line: str) -> str:
        """The error message."""
        return line

    async def _end_other_session(self, session: Any) -> None:
        """End the episode if RoboArena's session id has changed."""
        session = None if session is None else str(session)
        if None not in (session, self._session) and session != self._session:
            await self._robot.end_episode()
        self._session = session or self._session


def _language(replies: Sequence[Reply]) -> dict[str, Any]:
    """Finished texts, requested and dropped texts, and the number of tokens."""
    return {
        "texts": [text_message(text) for reply in replies for text in reply.finished],
        EXTENSION: {
            "requested": [dataclasses.asdict(each) for reply in replies for each in reply.requested],
            "dropped": [dataclasses.asdict(each) for reply in replies for each in reply.dropped],
            "tokens": sum(reply.tokens for reply in replies),
        },
    }
