"""Serves a GR00T server (ZeroMQ) over openpi's WebSocket protocol, for GR00T N1.7 on LIBERO.

uv run python gr00t/eval/run_gr00t_server.py --model-path CHECKPOINT --embodiment-tag LIBERO_PANDA
uv pip install pyzmq websockets msgpack numpy
python examples/bridge_gr00t.py --gr00t tcp://localhost:5555 --port 8000
oxygen-eval libero --policy ws://localhost:8000 --replan-steps 8
"""

import argparse
import io
from typing import Any

import msgpack
import numpy as np
import zmq
from openpi_server import policy_server

STATE = {"x": 1, "y": 1, "z": 1, "roll": 1, "pitch": 1, "yaw": 1, "gripper": 2}
"""GR00T's names and sizes for the 8 numbers of `observation/state`; the angles are an axis-angle vector."""

ACTION = ("x", "y", "z", "roll", "pitch", "yaw", "gripper")


class Gr00tClient:
    """A GR00T inference server: requests {endpoint, data}, arrays as .npy files in msgpack."""

    def __init__(self, address: str, timeout_ms: int = 60_000) -> None:
        self._socket = zmq.Context.instance().socket(zmq.REQ)
        self._socket.setsockopt(zmq.RCVTIMEO, timeout_ms)
        self._socket.setsockopt(zmq.REQ_RELAXED, 1)  # after a timeout, the next request may be sent
        self._socket.setsockopt(zmq.REQ_CORRELATE, 1)
        self._socket.connect(address)
        modalities = self._call("get_modality_config")
        self._instruction = modalities["language"]["as_json"]["modality_keys"][0]

    def infer(self, observation: dict[str, Any]) -> np.ndarray:
        """Actions [horizon, 7] for LIBERO; GR00T's gripper is 1 open and 0 closed, LIBERO's −1 and +1."""
        parts = np.split(np.float32(observation["observation/state"]), np.cumsum([*STATE.values()])[:-1])
        request = {
            "video": {
                "image": observation["observation/image"][None, None],
                "wrist_image": observation["observation/wrist_image"][None, None],
            },
            "state": {name: part[None, None] for name, part in zip(STATE, parts, strict=True)},
            "language": {self._instruction: [[observation["prompt"]]]},
        }
        chunks, _ = self._call("get_action", {"observation": request, "options": None})
        actions = np.concatenate([chunks[name][0].reshape(-1, 1) for name in ACTION], axis=1)
        actions[:, 6] = np.where(actions[:, 6] > 0.5, -1.0, 1.0)
        return actions

    def _call(self, endpoint: str, data: Any = None) -> Any:
        request = {"endpoint": endpoint, **({} if data is None else {"data": data})}
        self._socket.send(msgpack.packb(request, default=_encoded))
        answer = msgpack.unpackb(self._socket.recv(), object_hook=_decoded)
        if isinstance(answer, dict) and "error" in answer:
            raise RuntimeError(f"the GR00T server failed: {answer['error']}")
        return answer


def _encoded(array: np.ndarray) -> dict[str, Any]:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return {"__ndarray_class__": True, "as_npy": file.getvalue()}


def _decoded(content: dict[Any, Any]) -> Any:
    if "__ndarray_class__" not in content:
        return content
    return np.load(io.BytesIO(content["as_npy"]), allow_pickle=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gr00t", default="tcp://localhost:5555")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    client = Gr00tClient(arguments.gr00t)
    with policy_server(client.infer, {"embodiment": "libero"}, port=arguments.port) as server:
        server.serve_forever()
