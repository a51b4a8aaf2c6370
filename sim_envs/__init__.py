"""Simulated worlds: environments, tasks, assets and scripted experts. Independent of any policy model.

Importing the package registers its Gymnasium environments, without loading a simulator.
"""

import gymnasium

from configs.load import load, names
from configs.schema import SuiteConfig

for name in names(SuiteConfig):
    gymnasium.register(
        f"oxygen_eval/{name}-v0",
        entry_point="sim_envs.gym_env:SuiteEnv",
        kwargs={"suite": name},
        max_episode_steps=load(SuiteConfig, name).max_steps,
    )
