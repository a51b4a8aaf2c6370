"""Registers every suite with Gymnasium: `oxygen_eval/libero_object-v0` and its like. Loads no simulator."""

import gymnasium

from configs.load import names
from configs.schema import SuiteConfig

NAMESPACE = "oxygen_eval"


def register() -> None:
    """Register `oxygen_eval/<suite>-v0` for every suite. A second call does nothing."""
    for suite in names(SuiteConfig):
        name = f"{NAMESPACE}/{suite}-v0"
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point="sim_envs.libero.gym_env:LiberoEnv", kwargs={"suite": suite})
