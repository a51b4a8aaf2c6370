"""Model inputs: preprocessed observations as host arrays, one row per robot."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from oxygen.model.config import Pi05Config
from oxygen.typing import Int32, UInt8


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelInput:
    """One observation of every robot."""

    # Pixels of every camera, in the model's order; the model scales them to [-1, 1].
    images: UInt8[np.ndarray, "robot camera side side 3"]
    prompt: Int32[np.ndarray, "robot token"]  # tokens, padded
    length: Int32[np.ndarray, " robot"]  # valid tokens of each prompt


def batched(inputs: Sequence[ModelInput | None], config: Pi05Config) -> ModelInput:
    """Stack the inputs of single robots, with prompts padded to the bucket of the longest.

    None is a robot without a query: black images and an empty prompt.
    """
    robots, side = len(inputs), config.image_size
    images = np.zeros((robots, len(config.cameras), side, side, 3), np.uint8)
    length = np.ones((robots,), np.int32)
    given = [(robot, one) for robot, one in enumerate(inputs) if one is not None]
    for robot, one in given:
        images[robot], length[robot] = one.images[0], one.length[0]
    prompt = np.zeros((robots, config.bucket(int(length.max()))), np.int32)
    for robot, one in given:
        prompt[robot, : length[robot]] = one.prompt[0]
    return ModelInput(images=images, prompt=prompt, length=length)
