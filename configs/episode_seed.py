"""The seed of an episode's random numbers, from its name."""

import hashlib


def episode_seed(name: str) -> int:
    """A 64-bit hash of an episode's name, `suite.task_id.init_id.seed`; equal on all machines."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
