"""Sensor noise on every camera's pictures."""

import numpy as np
from typing_extensions import override

from sim_envs.perturbations import noise
from sim_envs.perturbations.dimension import Dimension, Picture

_KINDS = ("motion blur", "Gaussian blur", "zoom blur", "fog", "glass blur")


class Noise(Dimension):
    """One of LIBERO-plus's kinds of noise per episode, drawn anew in every picture."""

    medium = "pictures"
    meanings = tuple(
        f"{', '.join(_KINDS[:-1])} or {_KINDS[-1]} on every camera, setting {2 * s} of 10 (ImageNet-C)"
        for s in range(1, 6)
    )

    @override
    def corrupt(self, picture: Picture, severity: int, *, digest: int, step: int) -> Picture:
        setting = 10 * (digest % len(_KINDS)) + 2 * severity
        seeds = np.random.SeedSequence((digest, step))
        drawn = noise.draw(setting, picture.shape[:2], np.random.RandomState(np.random.MT19937(seeds)))
        return noise.apply(setting, picture, drawn)
