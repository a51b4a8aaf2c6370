"""A world in which reacting late costs the task, and a policy for it that can be made worse on purpose.

A point in the plane has to touch a target that moves to and fro, and to stay on it, before time is up.
"""

import dataclasses
from typing import Any

import numpy as np

from configs.schema import SuiteConfig
from oxygen.policy.reply import EpisodeEnd, Reply
from sim_envs.fake import FakeSuite, FakeWorld
from sim_envs.suite import InitIds, Task
from sim_envs.world import AdvanceResult, EpisodeKey, Observation

_SPEED = 0.04
_REACH = 0.03
_STAY = 3
_HORIZON = 10


class PursuitSuite(FakeSuite):
    """As many initial states as are asked for: where the target is, which way it goes, how far off it is."""

    published = SuiteConfig(
        name="pursuit",
        world="tests.eval.pursuit:PursuitSuite",
        max_steps=50,
        settle_steps=0,
        trials_per_task=1,
        control_hz=20,
        camera_size=8,
        replan_steps=2,
    )

    def __init__(self, protocol: SuiteConfig = published, *, assets: str = "auto") -> None:
        super().__init__(protocol, assets=assets)

    def init_ids(self, task: Task) -> InitIds:
        return InitIds(stored=100_000)

    def open(self, task: Task) -> "PursuitWorld":
        return PursuitWorld()


@dataclasses.dataclass
class PursuitWorld(FakeWorld):
    """State: the point's position, the target's, and zeros."""

    def reset(self, *, init_id: int, seed: int, settle_steps: int) -> None:
        super().reset(init_id=init_id, seed=seed, settle_steps=0)
        draw = np.random.default_rng((init_id, seed))
        self._point = np.zeros(2)
        self._middle = draw.normal(size=2)
        self._middle *= draw.uniform(0.3, 1.5) / np.linalg.norm(self._middle)
        self._swing, self._phase = draw.normal(size=2) * 0.15, draw.uniform(0, 2 * np.pi)
        self._touching = 0

    @property
    def _target(self) -> np.ndarray:
        return self._middle + self._swing * np.sin(self._phase + 2 * np.pi * self.steps / 40)

    def advance(self, actions: np.ndarray) -> AdvanceResult:
        for taken, action in enumerate(actions, start=1):
            self.steps += 1
            self._point = self._point + _SPEED * np.clip(action[:2], -1, 1)
            near = np.linalg.norm(self._point - self._target) < _REACH
            self._touching = self._touching + 1 if near else 0
            if self._touching == _STAY:
                return AdvanceResult(steps=taken, success=True)
        return AdvanceResult(steps=len(actions), success=False)

    def observe(self) -> Observation:
        shown = super().observe()
        return dataclasses.replace(shown, state=np.concatenate([self._point, self._target, np.zeros(4)]))

    def truth(self) -> None:
        return None


class Pursuer:
    """Goes straight to where the target is seen. Implements `eval.policies.base.Policy`.

    Args:
        noise: Standard deviation of what is added to every action.
        forgets: Every so many chunks, one is left empty; none if 0.
        thinks_ms: How long a query takes on the clock that `think` advances.
        think: Told of it.
    """

    interface = PursuitSuite().interface

    def __init__(
        self, noise: float = 0.0, forgets: int = 0, thinks_ms: float = 0.0, think: Any = None
    ) -> None:
        self._noise, self._forgets, self._thinks_ms, self._think = noise, forgets, thinks_ms, think

    def reset(self, key: EpisodeKey) -> None:
        self._draw, self._query = np.random.default_rng(key.digest()), 0

    def act(self, observation: Observation) -> np.ndarray:
        if self._think is not None:
            self._think(self._thinks_ms)
        self._query += 1
        point, target = observation.state[:2], observation.state[2:4]
        actions = np.zeros((_HORIZON, 7))
        if self._forgets and self._query % self._forgets == 0:
            return actions
        for action in actions:
            action[:2] = np.clip((target - point) / _SPEED, -1, 1)
            point = point + _SPEED * action[:2]
        actions[:, :2] += self._noise * self._draw.normal(size=(_HORIZON, 2))
        return actions

    def complete(self) -> Reply:
        return Reply(timings_ms={"decode": 0.0})

    def finish(self) -> EpisodeEnd:
        return EpisodeEnd()
