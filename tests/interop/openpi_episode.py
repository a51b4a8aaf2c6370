"""Plays recorded observations with openpi's own client: `python openpi_episode.py URL OBSERVATIONS ACTIONS`.

Runs in an environment with openpi-client, not in this project's.
"""

import sys

import numpy as np
from openpi_client.websocket_client_policy import WebsocketClientPolicy


def main(url: str, observations: str, actions: str) -> None:
    """Query once per observation and keep the chunks [query, horizon, action]."""
    recorded = np.load(observations)
    client = WebsocketClientPolicy(host=url, port=None)
    assert client.get_server_metadata()["embodiment"] == "libero"
    client.reset()
    answers = [
        client.infer(
            {**{key: recorded[key][query] for key in recorded}, "prompt": "put the mug on the plate"}
        )
        for query in range(len(recorded["observation/state"]))
    ]
    assert all(answer["server_timing"]["infer_ms"] > 0 for answer in answers)
    np.save(actions, np.stack([answer["actions"] for answer in answers]))


if __name__ == "__main__":
    main(*sys.argv[1:])
