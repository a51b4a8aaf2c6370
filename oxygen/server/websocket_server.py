"""The WebSocket server: paths, limits, API key, health checks, errors, graceful shutdown."""

import asyncio
import hmac
import logging
import socket
from collections.abc import Callable
from http import HTTPStatus

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from contracts.errors import UsageError, unknown
from oxygen.server.metadata import Declaration
from oxygen.server.msgpack_numpy import MessageError
from oxygen.server.protocols import Dialect, OpenpiDialect, VlaEvalDialect
from oxygen.server.robot import Batcher, ConnectedRobot, NoFreeRobotError

_TRY_LATER, _BAD_REQUEST, _FAILED = 1013, 1008, 1011  # RFC 6455 and IANA
_CLOSING = 1001, "the server is shutting down, or the client was idle"
_HEALTH = {"/healthz": "OK\n", "/health": '{"status": "ok"}'}
_CLOSE_S = 5.0
_LONGEST_LINE = 500
MAX_MESSAGE_BYTES = 64 * 2**20
MAX_CONNECTIONS = 256
IDLE_S = 3600.0
"""Timeout between two messages of a client."""
SEND_S = 60.0
"""Timeout for a client to read an answer."""

_log = logging.getLogger("oxygen.server")


class ConnectionServer:
    """Serves a policy on one port.

    `/` speaks openpi's protocol, `/roboarena` RoboArena's, and `/vla-eval` vla-evaluation-harness's, for
    LIBERO's policies. `/healthz` and `/health` answer over HTTP.
    """

    def __init__(
        self,
        batcher: Batcher,
        declaration: Declaration,
        *,
        api_key: str | None = None,
        replan_steps: int = 5,
    ) -> None:
        """Prepare a server; clients must send `api_key`, unless it is None.

        vla-evaluation-harness's clients execute `replan_steps` actions of a chunk.
        """
        self._batcher = batcher
        self._api_key = api_key
        self._connections: set[ServerConnection] = set()
        self._idle: set[ServerConnection] = set()
        self._stopping = asyncio.Event()
        self._dialects: dict[str, Callable[[ConnectedRobot], Dialect]] = {
            "/": lambda robot: OpenpiDialect(robot, declaration)
        }
        if declaration.keys.robot in ("droid", "droid_jointpos"):
            self._dialects["/roboarena"] = lambda robot: OpenpiDialect(robot, declaration, for_roboarena=True)
        if declaration.keys.robot == "libero":
            steps = min(replan_steps, declaration.horizon)
            self._dialects["/vla-eval"] = lambda robot: VlaEvalDialect(robot, declaration, replan_steps=steps)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the protocols."""
        return tuple(self._dialects)

    def stop(self) -> None:
        """Answer the queries in progress, then end. Not thread-safe: call it in the event loop."""
        self._stopping.set()

    async def run(self, host: str, port: int, *, started: Callable[[int], None]) -> None:
        """Serve until `stop()`; port 0 is a free one. `started` is called with it once the server listens.

        A port that is not available is a UsageError.
        """
        try:
            wire = logging.getLogger("oxygen.server.wire")
            wire.setLevel(logging.CRITICAL)  # it logs a traceback for every failed handshake
            listening = serve(
                self._serve,
                host,
                port,
                process_request=self._answer_http,
                compression=None,
                max_size=MAX_MESSAGE_BYTES,
                max_queue=1,
                ping_interval=None,  # a client that computes in its event loop does not answer pings
                close_timeout=_CLOSE_S,
                logger=wire,
            )
            try:
                server = await listening
            except (OSError, OverflowError) as error:
                raise UsageError(
                    f"cannot listen at {host}, port {port} ({error}); give another --port or --host"
                ) from error
            async with server:
                started(next(iter(server.sockets)).getsockname()[1])
                await self._stopping.wait()
                server.close(close_connections=False)
                await asyncio.gather(*(idle.close(*_CLOSING) for idle in self._idle))
                await server.wait_closed()
        finally:
            self._batcher.close()

    def _answer_http(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer over HTTP, or refuse; None to go on with the WebSocket handshake."""
        path = request.path.partition("?")[0]
        if path in _HEALTH:
            return connection.respond(HTTPStatus.OK, _HEALTH[path])
        given = request.headers.get("Authorization", "").encode()
        needed = None if self._api_key is None else f"Api-Key {self._api_key}".encode()
        if needed is not None and not hmac.compare_digest(given, needed):
            return connection.respond(HTTPStatus.UNAUTHORIZED, "the API key is wrong or missing\n")
        if path not in self._dialects:
            return connection.respond(HTTPStatus.NOT_FOUND, f"{unknown('path', path, self.paths)}\n")
        if len(self._connections) >= MAX_CONNECTIONS:
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections; try later\n")
        return None

    async def _serve(self, connection: ServerConnection) -> None:
        assert connection.request is not None, "the handshake is done"
        # Detects within minutes that a client's machine is down, without pings.
        connected: socket.socket = connection.transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
            if hasattr(socket, option):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        robot = ConnectedRobot(self._batcher)
        dialect = self._dialects[connection.request.path.partition("?")[0]](robot)
        self._connections.add(connection)
        try:
            if dialect.greeting is not None:
                await self._send(connection, dialect.greeting)
            while (message := await self._next(connection)) is not None:
                try:
                    answer = await dialect.answer(message)
                except Exception as error:  # noqa: BLE001 - sent to the client; a failure is also logged
                    line, code = _error_message(error, _name(connection))
                    await self._send(connection, dialect.failed(line))
                    if dialect.closes_on_error:
                        await connection.close(code, "see the last message")
                        return
                    continue
                if answer is not None:
                    await self._send(connection, answer)
            await connection.close(*_CLOSING)
        except ConnectionClosed:
            pass
        except TimeoutError:
            _log.warning("%s does not read its answers", _name(connection))
            connection.transport.abort()
        finally:
            self._connections.discard(connection)
            await robot.leave()

    async def _next(self, connection: ServerConnection) -> bytes | str | None:
        """A client's next message; None once the server stops, or if the client is idle for too long."""
        if self._stopping.is_set():
            return None
        self._idle.add(connection)
        try:
            return await asyncio.wait_for(connection.recv(), IDLE_S)
        except TimeoutError:
            return None
        finally:
            self._idle.discard(connection)

    async def _send(self, connection: ServerConnection, message: bytes | str) -> None:
        await asyncio.wait_for(connection.send(message), SEND_S)


def _error_message(error: Exception, client: str) -> tuple[str, int]:
    """The one-line message for a client about an error, and the close code of its connection."""
    if isinstance(error, UsageError | MessageError):
        line = str(error)[:_LONGEST_LINE]
        _log.warning("%s: %s", client, line)
        return line, _TRY_LATER if isinstance(error, NoFreeRobotError) else _BAD_REQUEST
    _log.error("the policy failed in a query of %s", client, exc_info=error)
    line = f"the policy failed: {type(error).__name__}: {' '.join(str(error).split())}"
    return line[:_LONGEST_LINE], _FAILED


def _name(connection: ServerConnection) -> str:
    host, port = connection.remote_address[:2] or ("?", 0)
    return f"{host}:{port}"
