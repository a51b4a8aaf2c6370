"""A policy in plain NumPy behind a socket: the gripper moves to a point above the table and closes.

python examples/serve_numpy.py --port 8000
oxygen-eval libero --policy ws://localhost:8000
"""

import argparse
from typing import Any

import numpy as np
from openpi_server import policy_server

HORIZON = 10
GOAL = np.array([0.0, 0.0, 1.1])
"""In LIBERO's world frame, metres."""

STEP = 0.05
"""Metres that an action of 1 moves the gripper by."""


def infer(observation: dict[str, Any]) -> np.ndarray:
    """Proportional control towards the goal: actions [horizon, 7]."""
    position = observation["observation/state"][:3]
    actions = np.zeros((HORIZON, 7))
    for action in actions:
        action[:3] = np.clip((GOAL - position) / STEP, -1, 1)
        position = position + STEP * action[:3]
        action[6] = 1.0 if np.linalg.norm(GOAL - position) < 0.02 else -1.0
    return actions


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    with policy_server(
        infer, {"embodiment": "libero", "horizon": HORIZON}, port=parser.parse_args().port
    ) as server:
        server.serve_forever()
