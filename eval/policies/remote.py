"""The client of openpi's WebSocket protocol: the server sends its metadata first, then answers queries.

A server that fails sends its traceback as a text frame and closes the connection. Nothing marks the start of
an episode; RoboArena's servers and ours extend the protocol by that.
"""

import itertools
import numbers
import os
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import ClientConnection, connect

from configs.schema import Preset
from contracts.errors import UsageError
from contracts.mode import Mode
from contracts.prompt import FieldsByTask
from contracts.redaction import remember_secrets, strip_url
from eval.policies import handshake
from eval.policies.base import BadAnswerError, PolicyLostError
from eval.policies.handshake import ending_of, port_hint, reason_of, refusal_of
from eval.policies.openpi import OpenpiPolicy
from oxygen.robots.openpi_keys import OpenpiKeys
from oxygen.server.msgpack_numpy import MessageError, pack, unpack

DECLARED = (
    "embodiment",
    "horizon",
    "image_resolution",
    "image_resize",
    "action_prefix",
    "feedback",
    "oxygen_eval",
    *("action_space", "n_external_cameras"),  # RoboArena's
    *("effective_infer_api", "continuous_batching_request_mode", "adapter", "adapter_rank"),  # OxyGen's
    *("language_steps_per_frame", "language_max_decoding_steps", "language_temperature"),
)
"""The parts of a server's metadata that must not change during a run."""

_ATTEMPT_S = 10.0
_LONGEST_PAUSE_S = 8.0
_CLOSE_S = 2.0
_NOTICE_S = 0.05  # for a close frame that is on its way between two episodes


_Seconds = Annotated[float, Field(strict=True, gt=0, le=86400)]


class ServerOptions(Preset):
    """Options of a policy server, the values of `--policy-kwargs`."""

    embodiment: str | None = None  # its robot, if its metadata names none
    # The environment variable with the key to send as `Authorization: Api-Key …`.
    api_key_env: str | None = None
    # What clock `measured` charges: the `round_trip`, or what OxyGen's `server` reports.
    charge: Literal["round_trip", "server"] = "round_trip"
    timeout_s: _Seconds = 120.0  # timeout of an answer, seconds; the first one compiles on many servers
    connect_timeout_s: _Seconds = 60.0  # timeout of connecting, seconds

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers of the handshake."""
        if self.api_key_env is None:
            return {}
        key = os.environ.get(self.api_key_env)
        if not key:
            raise UsageError(f"policy argument 'api_key_env': the environment has no {self.api_key_env}")
        remember_secrets(key, secret=True)
        return {"Authorization": f"Api-Key {key}"}


class PolicyServerError(RuntimeError):
    """The policy server has failed to answer. Its text has the server's own traceback, if it sent one."""


class PolicyClient:
    """A connection to a policy server (`ws://` or `wss://`), reopened for the next episode if it is lost.

    `notify` is called with one line if the server cannot be reached at once.
    """

    def __init__(self, url: str, options: ServerOptions, *, notify: Callable[[str], None]) -> None:
        self._metadata: Mapping[str, Any] | None = None
        self._url, self._shown = url, strip_url(url)
        self._headers, self._notify = options.headers, notify
        self._answer_s, self._connect_s = options.timeout_s, options.connect_timeout_s
        self._resources = ExitStack()
        self._connection: ClientConnection | None = None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The server's metadata; empty before the first `reset()`."""
        return self._metadata or {}

    def reset(self) -> None:
        """Connect, unless there is an open connection without unread messages.

        An address without a server of this protocol, or whose server now declares something else, is a
        PolicyLostError.
        """
        if not self._is_idle():
            self.close()
            self._connect()

    def infer(self, obs: dict[str, Any], /) -> Mapping[str, Any]:
        """The server's answer to an observation. A failure closes the connection.

        Raises:
            PolicyServerError: The server has failed, hung up, or not answered in time.
            BadAnswerError: The answer is not a message of the protocol.
        """
        try:
            answer = self._exchanged(pack(obs))
            if isinstance(answer, str):
                raise self._failed(answer)
            content = _unpacked(answer)
            # Older RoboArena servers send the actions alone.
            return _mapping({"actions": content} if isinstance(content, np.ndarray) else content)
        except BaseException:
            self.close()
            raise

    def notify_server(self, message: dict[str, Any]) -> None:
        """Send a message, such as a reset, that the server acknowledges with anything but a traceback.

        A traceback, or no answer, is a PolicyServerError, as in `infer`.
        """
        try:
            answer = self._exchanged(pack(message))
            if isinstance(answer, str) and answer.startswith("Traceback"):
                raise self._failed(answer)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection. A second call does nothing."""
        self._connection = None
        self._resources.close()

    def _is_idle(self) -> bool:
        if self._connection is None:
            return False
        # Not recv(timeout=_NOTICE_S): SimpleQueue.get of CPython 3.11 waits for ever if the process is
        # descheduled for longer than the timeout.
        time.sleep(_NOTICE_S)
        try:
            self._connection.recv(timeout=0)
        except TimeoutError:
            return True
        except ConnectionClosed:
            pass
        return False

    def _exchanged(self, query: bytes) -> bytes | str:
        if self._connection is None:
            raise PolicyServerError(f"the connection to {self._shown} was lost in this episode")
        try:
            self._connection.send(query)
            return self._connection.recv(timeout=self._answer_s)
        except TimeoutError as error:
            raise PolicyServerError(
                f"{self._shown} has not answered a query within {self._answer_s:g} s"
            ) from error
        except ConnectionClosed as error:
            raise PolicyServerError(f"{self._shown} {ending_of(error)}") from error

    def _failed(self, text: str) -> PolicyServerError:
        return PolicyServerError(f"{self._shown} failed, with this text:\n{text}")

    def _connect(self) -> None:
        """Try until there is a server, with growing pauses."""
        deadline = time.monotonic() + self._connect_s
        for attempt in itertools.count():
            try:
                self._attempt(max(0.1, min(_ATTEMPT_S, deadline - time.monotonic())))
                return
            except (OSError, InvalidHandshake, ConnectionClosed) as error:
                if why := refusal_of(error, self._url):
                    raise self._lost(why) from error
                reason = reason_of(error)
            left = deadline - time.monotonic()
            if left <= 0:
                hint = port_hint(self._url)
                raise self._lost(f"has not answered within {self._connect_s:g} s: {reason}{hint}")
            if attempt == 0:
                self._notify(f"waiting up to {left:.0f} s for a policy server at {self._shown}: {reason}")
            time.sleep(min(left, _LONGEST_PAUSE_S, 0.5 * 2 ** min(attempt, 10)))

    def _attempt(self, limit: float) -> None:
        with ExitStack() as resources:
            connection = resources.enter_context(
                connect(
                    self._url,
                    additional_headers=self._headers,
                    compression=None,
                    max_size=handshake.MAX_ANSWER_MIB * 2**20,
                    open_timeout=limit,
                    close_timeout=_CLOSE_S,
                    ping_interval=None,  # servers that infer in their event loop do not answer pings
                    proxy=None,  # its latency would count as the policy's
                )
            )
            try:
                greeting = connection.recv(timeout=limit)
            except TimeoutError:
                raise TimeoutError("it sends no metadata, the first message of openpi's protocol") from None
            if isinstance(greeting, str):
                raise self._lost(f"begins with a text, not with metadata: {greeting[-200:]}")
            try:
                metadata = _mapping(_unpacked(greeting))
            except BadAnswerError as error:
                raise self._lost(f"begins with something else than metadata: {error}") from error
            # A limit for sending, too: a server may have stopped reading.
            seconds, rest = divmod(self._answer_s, 1)
            timeval = struct.pack("ll", int(seconds), int(1e6 * rest))
            with suppress(OSError):  # it has hung up meanwhile, which the first query tells
                connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
            known = metadata if self._metadata is None else self._metadata
            before, now = _declared(known), _declared(metadata)
            for name in before | now:
                if before.get(name) != now.get(name):
                    raise self._lost(f"has come back with {name} {now.get(name)!r}, not {before.get(name)!r}")
            self._metadata, self._connection = metadata, connection
            self._resources = resources.pop_all()

    def _lost(self, why: str) -> PolicyLostError:
        return PolicyLostError(f"the policy server at {self._shown} {why}")


class RemotePolicy(OpenpiPolicy):
    """A policy behind a server of openpi's protocol."""

    def __init__(
        self, client: PolicyClient, keys: OpenpiKeys, fields_by_task: FieldsByTask | None = None
    ) -> None:
        super().__init__(client, keys, fields_by_task)
        self.client = client

    def stages(self, answer: Mapping[str, Any], answer_ms: float) -> Mapping[str, float]:
        """`server` (as it reports) and `wire` (the rest), milliseconds; empty if it reports no time."""
        for name in ("server_timing", "policy_timing"):
            infer_ms = timings_of(answer, name).get("infer_ms")
            if infer_ms is not None:
                server_ms = min(max(0.0, infer_ms), answer_ms)
                return {"server": server_ms, "wire": answer_ms - server_ms}
        return {}


def check_modes(url: str, served: Mode, modes: Sequence[Mode], *, option: str = "--mode") -> None:
    """Refuse a run in another mode than its server's, which its `option` sets."""
    if any(mode != served for mode in modes):
        asked = ", ".join(dict.fromkeys(modes))
        remedy = f"give --mode {served}, or start the server with another {option}"
        raise UsageError(f"{url} runs in mode {served}, and this run is in {asked}; {remedy}")


def timings_of(answer: Mapping[str, Any], name: str) -> dict[str, float]:
    """The numbers in a map of timings of an answer; empty if it has none."""
    timings = answer.get(name)
    if not isinstance(timings, Mapping):
        return {}
    return {str(stage): float(ms) for stage, ms in timings.items() if isinstance(ms, numbers.Real)}


def _declared(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The declared parts of metadata, with maps flattened, so that an error names the field that differs."""
    flat: dict[str, Any] = {}
    for name in DECLARED:
        value = metadata.get(name)
        parts = value if isinstance(value, Mapping) else {"": value}
        flat |= {f"{name}.{part}".rstrip("."): each for part, each in parts.items()}
    return flat


def _unpacked(message: bytes) -> Any:
    try:
        return unpack(message)
    except MessageError as error:
        raise BadAnswerError(f"the policy server sent {error}") from error


def _mapping(content: Any) -> Mapping[str, Any]:
    if not isinstance(content, dict):
        raise BadAnswerError(f"the policy server sent {type(content).__name__}, not a map")
    return content
