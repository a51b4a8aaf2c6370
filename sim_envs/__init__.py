"""Simulated worlds: environments, tasks, assets and scripted experts. Independent of any policy model.

Importing the package registers its Gymnasium environments, without loading a simulator.
"""

import gymnasium

from configs.load import load, names
from configs.schema import SuiteConfig

NAMESPACE = "oxygen_eval"


def register() -> None:
    """Register `oxygen_eval/<suite>-v0` for every built-in suite. A second call does nothing."""
    for suite in names(SuiteConfig):
        name = f"{NAMESPACE}/{suite}-v0"
        if name not in gymnasium.registry:
            gymnasium.register(
                name,
                entry_point="sim_envs.gym_env:SuiteEnv",
                kwargs={"suite": suite},
                max_episode_steps=load(SuiteConfig, suite).max_steps,
            )


register()
