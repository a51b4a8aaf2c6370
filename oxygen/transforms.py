"""Between a robot's units and the model's: images, prompts, normalised numbers. As openpi does on LIBERO."""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence

import numpy as np

from configs.errors import UsageError, unknown
from oxygen.tokenizer import Tokenizer
from oxygen.typing import Float, Float64, Int32, UInt8


def resize_with_pad(
    image: UInt8[np.ndarray, "height width 3"], side: int
) -> UInt8[np.ndarray, "side side 3"]:
    """Fit an image into a black square, its aspect kept, by Pillow's bilinear filter (as openpi-client)."""
    from PIL import Image

    height, width = image.shape[:2]
    if (height, width) == (side, side):
        return image
    ratio = max(width, height) / side
    size = max(1, int(width / ratio)), max(1, int(height / ratio))
    square = np.zeros((side, side, 3), np.uint8)
    left, top = (side - size[0]) // 2, (side - size[1]) // 2
    resized = Image.fromarray(image).resize(size, resample=Image.Resampling.BILINEAR)
    square[top : top + size[1], left : left + size[0]] = np.asarray(resized)
    return square


def camera_images(
    images: Mapping[str, np.ndarray], cameras: Sequence[str], side: int
) -> UInt8[np.ndarray, "camera side side 3"]:
    """The cameras that the policy looks through, resized, in its order.

    Raises:
        UsageError: One is missing, or is no 8-bit RGB image.
    """
    for name in cameras:
        if name not in images:
            raise unknown(
                "camera", name, images, remedy="The policy needs it among the observation's images."
            )
        image = images[name]
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
            raise UsageError(
                f"image {name!r} is {image.dtype} of shape {image.shape}; give uint8 [height, width, 3]"
            )
    return np.stack([resize_with_pad(images[name], side) for name in cameras])


def checked_state(state: np.ndarray, size: int) -> Float64[np.ndarray, " state"]:
    """The state, if it is `size` finite numbers.

    Raises:
        UsageError: Says which it is not.
    """
    array = np.asarray(state, dtype=np.float64)
    if array.shape != (size,):
        raise UsageError(f"state has shape {array.shape}; this policy takes ({size},)")
    if not np.isfinite(array).all():
        raise UsageError(f"state holds {array[~np.isfinite(array)][0]} at {np.argmin(np.isfinite(array))}")
    return array


def clean_prompt(language: str) -> str:
    """An instruction without the underscores and line breaks that task names bring along."""
    return language.strip().replace("_", " ").replace("\n", " ")


def prompt_tokens(language: str, tokenizer: Tokenizer, longest: int) -> Int32[np.ndarray, " token"]:
    """Begin, the instruction, and a line break of its own, as the published LIBERO policy was trained.

    A prompt longer than `longest` is cut, with a warning that says by how much.
    """
    tokens = [tokenizer.bos, *tokenizer.encode(clean_prompt(language)), *tokenizer.encode("\n")]
    if len(tokens) > longest:
        excess = len(tokens) - longest
        warnings.warn(f"prompt cut by {excess} of its {len(tokens)} tokens: {language!r}", stacklevel=2)
    return np.asarray(tokens[:longest], np.int32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantileNorm:
    """Maps the range between two quantiles to [-1, 1], channel by channel.

    Attributes:
        q01: 1 % quantile of every channel, in the robot's units.
        q99: 99 % quantile.
    """

    q01: tuple[float, ...]
    q99: tuple[float, ...]

    def __post_init__(self) -> None:
        values = np.array([*self.q01, *self.q99])
        if len(self.q01) != len(self.q99) or not np.isfinite(values).all():
            raise UsageError(f"quantiles q01 {self.q01} and q99 {self.q99} must be as many finite numbers")

    @property
    def size(self) -> int:
        """Channels."""
        return len(self.q01)

    def normalise(self, x: Float[np.ndarray, "*batch channel"]) -> Float64[np.ndarray, "*batch channel"]:
        """From the robot's units to the model's."""
        low, width = self._range()
        return (np.asarray(x, np.float64) - low) / width * 2.0 - 1.0

    def restore(self, x: Float[np.ndarray, "*batch channel"]) -> Float64[np.ndarray, "*batch channel"]:
        """From the model's units to the robot's."""
        low, width = self._range()
        return (np.asarray(x, np.float64) + 1.0) / 2.0 * width + low

    def _range(self) -> tuple[np.ndarray, np.ndarray]:
        low = np.array(self.q01)
        return low, np.array(self.q99) - low + 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True)
class RobotNorms:
    """What a robot's numbers look like: how to normalise its state and its actions."""

    state: QuantileNorm
    actions: QuantileNorm


LIBERO_UNIT_NORMS = RobotNorms(
    state=QuantileNorm(q01=(-1.0,) * 8, q99=(1.0,) * 8), actions=QuantileNorm(q01=(-1.0,) * 7, q99=(1.0,) * 7)
)
"""LIBERO's 8 states and 7 actions, left as they are (to 1e-6): for policies that were never trained on it."""
