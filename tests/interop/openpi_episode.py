"""Run by a Python with openpi-client: chunks [query, horizon, action] of URL OBSERVATIONS into ACTIONS."""

import sys

import numpy as np
from openpi_client.websocket_client_policy import WebsocketClientPolicy

url, observations, actions = sys.argv[1:]
recorded = np.load(observations)
client = WebsocketClientPolicy(host=url, port=None)
assert client.get_server_metadata()["embodiment"] == "libero"
client.reset()
answers = [
    client.infer({**{key: recorded[key][query] for key in recorded}, "prompt": "put the mug on the plate"})
    for query in range(len(recorded["observation/state"]))
]
assert all(answer["server_timing"]["infer_ms"] > 0 for answer in answers)
np.save(actions, np.stack([answer["actions"] for answer in answers]))
