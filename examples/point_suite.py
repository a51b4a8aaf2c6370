"""A suite in plain NumPy: a world without a simulator, and all that a suite has to answer.

oxygen-eval run --suite examples/point_suite.yaml --policy random
"""

import numpy as np

from contracts.interface import (
    ActionChannels,
    ActionSpec,
    Camera,
    Channels,
    Hold,
    Interface,
    Motion,
    ObservationSpec,
    Rotation,
)
from contracts.observation import Observation
from sim_envs.suite import InitIds, Task
from sim_envs.world import AdvanceResult


class PointWorld:
    """A point to be moved past 1."""

    def reset(self, *, init_id, seed, settle_steps):
        self.x = np.random.default_rng([init_id, seed]).uniform(-1, 0, 1)

    def advance(self, actions):
        for steps, action in enumerate(actions, start=1):
            self.x = self.x + np.clip(action, -0.1, 0.1)
            if self.x[0] >= 1:
                return AdvanceResult(steps=steps, success=True)
        return AdvanceResult(steps=len(actions), success=False)

    def observe(self):
        image = np.full((64, 64, 3), np.uint8(100 + 50 * self.x[0]))
        return Observation(images={"image": image}, state=self.x.copy(), language="move right")

    def render(self, camera):
        return self.observe().images[camera]

    def truth(self):
        return None

    def progress(self):
        return float(self.x[0] >= 1)

    def close(self):
        pass


class PointSuite:
    """One task, ten initial states, one wording, no expert."""

    assets = None
    interface = Interface(
        name="point_suite",
        observation=ObservationSpec(
            cameras=(Camera(name="image", size=(64, 64)),),
            state=(Channels(name="x", size=1, unit="m"),),
            rotation=Rotation.NONE,
        ),
        action=ActionSpec(
            channels=(ActionChannels(name="step", size=1, unit="m", motion=Motion.RELATIVE, hold=Hold.ZERO),),
            rotation=Rotation.NONE,
            grippers=(),
            limits=(-0.1, 0.1),
            control_hz=10,
        ),
    )

    def __init__(self, protocol, *, assets="auto"):
        self.protocol = protocol

    def tasks(self):
        return [Task(suite=self.protocol.name, task_id=0, name="move", language="move right")]

    def init_ids(self, task):
        return InitIds(stored=10)

    def instruction(self, key, wordings):
        return "move right"

    def training_wordings(self):
        return {}

    def check(self, tasks):
        pass

    def open(self, task):
        return PointWorld()

    def describe(self, wordings):
        return {"version": 1}

    def expert_tasks(self):
        return []

    def expert(self, world, *, noise=0.0, memory_age_s=0.0):
        return None
