"""Serves any policy over openpi's WebSocket protocol. Needs websockets, msgpack and numpy.

The server sends its metadata first, then one answer per observation. A failure is sent as a traceback in a
text frame. Arrays travel as raw bytes with dtype and shape; nothing is pickled.
"""

import time
import traceback
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

import msgpack
import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve


def policy_server(
    infer: Callable[[dict[str, Any]], np.ndarray | Mapping[str, Any]],
    metadata: Mapping[str, Any],
    *,
    port: int,
) -> Server:
    """A server on this machine; call its `serve_forever`.

    Args:
        infer: Maps an observation (openpi's keys) to actions [horizon, action], or to a map of `actions` and
            new texts (`memory`, `subtask`); called once at a time.
        metadata: `embodiment` (libero, droid or droid_jointpos), `horizon`, and `feedback` for a policy that
            reads its own texts (docs/memory.md).
        port: The port; 0 for any free one.
    """

    lock = Lock()

    def handle(connection: ServerConnection) -> None:
        connection.send(pack(dict(metadata)))
        try:
            while True:
                observation = unpack(connection.recv())
                with lock:
                    began = time.perf_counter()
                    answer = infer(observation)
                    infer_ms = 1e3 * (time.perf_counter() - began)
                texts = dict(answer) if isinstance(answer, Mapping) else {"actions": answer}
                actions = np.asarray(texts.pop("actions"), np.float32)
                timing = {"infer_ms": infer_ms}
                connection.send(pack({**texts, "actions": actions, "server_timing": timing}))
        except ConnectionClosed:
            pass
        except Exception:  # noqa: BLE001 - sent to the client
            connection.send(traceback.format_exc())
            connection.close(1011, "the policy failed")

    # A policy may keep the interpreter busy for longer than a ping is waited for.
    return serve(handle, "127.0.0.1", port, compression=None, max_size=None, ping_interval=None)


def pack(message: Any) -> bytes:
    """A message as msgpack, with arrays in openpi's form."""
    return msgpack.packb(message, default=_encoded)


def unpack(data: bytes) -> Any:
    """The message in msgpack, with arrays in openpi's form; they are read-only."""
    return msgpack.unpackb(data, object_hook=_decoded)


def _encoded(array: np.ndarray) -> dict[bytes, Any]:
    return {
        b"__ndarray__": True,
        b"data": array.tobytes(),
        b"dtype": array.dtype.str,
        b"shape": array.shape,
    }


def _decoded(content: dict[Any, Any]) -> Any:
    if b"__ndarray__" not in content:
        return content
    return np.frombuffer(content[b"data"], content[b"dtype"]).reshape(content[b"shape"])
