"""A policy for one robot, without the mappings of `VectorPolicy`."""

from typing import Any


class OneRobot:
    """Passes everything on to a policy for one robot."""

    def __init__(self, policy):
        self._policy = policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def with_engine(self, engine):
        return OneRobot(self._policy.with_engine(engine))

    def reset(self, episode_seed: int):
        self._policy.reset(0, episode_seed)

    def act(self, observation):
        return self._policy.act({0: observation})[0]

    def complete(self):
        return self._policy.complete().get(0)

    def finish(self):
        return self._policy.finish(0)
