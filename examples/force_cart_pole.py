"""An environment with discrete actions and RGBA images, wrapped as a suite needs it (docs/worlds.md)."""

import gymnasium
import numpy as np


class ForceCartPole(gymnasium.Wrapper):
    """CartPole pushed by the sign of one number, and solved after a hundred steps."""

    def __init__(self, **kwargs):
        super().__init__(gymnasium.make("CartPole-v1", **kwargs).unwrapped)
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, **kwargs):
        self.steps = 0
        return self.env.reset(**kwargs)

    def step(self, action):
        observation, reward, terminated, truncated, _ = self.env.step(int(action[0] > 0))
        self.steps += 1
        return observation, reward, terminated, truncated, {"is_success": self.steps >= 100}

    def render(self):
        return self.env.render()[..., :3]  # without an alpha channel


gymnasium.register("ForceCartPole-v0", entry_point=ForceCartPole)
