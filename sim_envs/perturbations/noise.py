"""Sensor noise of LIBERO-plus: ImageNet-C's corruptions with its parameters, equal in every pixel.

A setting is a number from 1 to 50: five kinds with ten severities each, whose radii are pixels. LIBERO-plus
applies them to square pictures as robosuite renders them, upside down. What is random is drawn apart from
what it does to a picture, so that a stream of random numbers can run on over control steps in which nothing
is rendered.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from sim_envs.perturbations.dimension import Dimension, Picture

SETTINGS = range(1, 51)
_MAP = 256  # smallest side of the fog's height map

_MOTION = ((5, 2), (8, 3), (10, 4), (12, 5), (15, 6), (18, 8), (20, 10), (25, 12), (30, 15), (35, 20))
"""Radius and sigma of the blur."""
_GAUSSIAN = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0)
"""Sigma."""
_ZOOM = (
    *((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    *((1.36, 0.01), (1.41, 0.01), (1.46, 0.02), (1.51, 0.02), (1.56, 0.03)),
)
"""Stop and step of the factors, which start at 1."""
_FOG = (
    *((0.5, 3.0), (1.0, 2.8), (1.5, 2.5), (2.0, 2.2), (2.5, 2.0)),
    *((3.0, 1.8), (3.5, 1.6), (4.0, 1.5), (4.5, 1.4), (5.0, 1.3)),
)
"""Density and decay of the height map's roughness."""
_GLASS = (
    *((0.5, 1, 3), (0.7, 1, 3), (0.9, 2, 3), (1.0, 2, 2), (1.1, 3, 2)),
    *((1.3, 3, 2), (1.5, 4, 2), (1.8, 4, 2), (2.2, 5, 1), (2.5, 5, 1)),
)
"""Sigma, largest displacement and passes."""

_Clean = Float[np.ndarray, "height width 3"]


def draw(setting: int, size: tuple[int, int], random: np.random.RandomState) -> Any:
    """Draw the random numbers of the noise in a picture of a size, as many as LIBERO-plus draws."""
    kind, severity = divmod(setting - 1, 10)
    if kind == 0:
        return random.uniform(-45, 45)
    if kind == 3:
        return _plasma(_FOG[severity][1], random, max(_MAP, 1 << (max(size) - 1).bit_length()))
    if kind == 4:
        _, most, passes = _GLASS[severity]
        return random.randint(-most, most, size=(passes, math.prod(side - 2 * most for side in size), 2))
    return None


def apply(setting: int, picture: Picture, drawn: Any) -> Picture:
    """The noisy picture, given what was drawn for it."""
    kind, severity = divmod(setting - 1, 10)
    if kind == 0:
        return _motion(picture, *_MOTION[severity], angle=drawn)
    if kind == 1:
        noisy = _gaussian(picture, _GAUSSIAN[severity])
    elif kind == 2:
        noisy = _zoom(picture, *_ZOOM[severity])
    elif kind == 3:
        noisy = _fog(picture, _FOG[severity][0], drawn)
    else:
        noisy = _glass(picture, *_GLASS[severity][:2], drawn)
    return (np.clip(noisy, 0, 1) * 255).astype(np.uint8)


def noisy(setting: int, picture: Picture, *, digest: int, step: int) -> Picture:
    """The noisy picture, drawn from an episode's number and the control step."""
    seeds = np.random.SeedSequence((digest, step))
    drawn = draw(setting, picture.shape[:2], np.random.RandomState(np.random.MT19937(seeds)))
    return apply(setting, picture, drawn)


class Noise(Dimension):
    """One of LIBERO-plus's kinds of noise per episode, drawn anew in every picture of every camera."""

    medium = "pictures"
    meanings = tuple(
        "motion blur, Gaussian blur, zoom blur, fog or glass blur on every camera, "
        f"setting {2 * s} of 10 (ImageNet-C)"
        for s in range(1, 6)
    )

    @override
    def corrupt(self, picture: Picture, severity: int, *, digest: int, step: int) -> Picture:
        return noisy(10 * (digest % 5) + 2 * severity, picture, digest=digest, step=step)


class SensorNoise:
    """The noise on a camera in one episode of LIBERO-plus."""

    def __init__(self, setting: int, side: int, *, digest: int, stream: Any = None) -> None:
        """Begin an episode, with height and width of pictures.

        Noise is drawn at each control step from the number of the episode, `digest`, or instead, on from the
        state of NumPy's generator after the reset, `stream`.
        """
        self._setting, self._size, self._digest = setting, (side, side), digest
        self._step, self._drawn = 0, None
        self._stream: np.random.RandomState | None = None
        if stream is not None:
            self._stream = np.random.RandomState()
            self._stream.set_state(stream)
            self._drawn = draw(setting, self._size, self._stream)  # for the picture that the reset returns

    def step(self) -> None:
        """One control step."""
        self._step += 1
        if self._stream is not None:
            self._drawn = draw(self._setting, self._size, self._stream)

    def apply(self, picture: Picture) -> Picture:
        """The noisy picture, the same whenever it is asked for at this control step."""
        if self._stream is None:
            return noisy(self._setting, picture, digest=self._digest, step=self._step)
        return apply(self._setting, picture, self._drawn)


def _motion(picture: Picture, radius: int, sigma: int, *, angle: float) -> Picture:
    """ImageMagick 6's motion blur: one-sided, in numbers of 16 bits."""
    width = 2 * radius + 1
    weights = np.exp(-(np.arange(width) ** 2) / (2.0 * sigma * sigma))
    weights /= weights.sum()
    right, down = width * np.cos(np.radians(angle)), width * np.sin(np.radians(angle))
    length = np.hypot(right, down)
    (height, across, _), total = picture.shape, np.zeros(picture.shape)
    for tap, weight in enumerate(weights):
        rows = np.arange(height) + int(np.ceil(tap * down / length - 0.5))
        columns = np.arange(across) + int(np.ceil(tap * right / length - 0.5))
        seen = picture[np.clip(rows, 0, height - 1)[:, None], np.clip(columns, 0, across - 1)]
        total += weight * (257.0 * seen)
    return (np.floor(total + 0.5).astype(np.int64) // 257).astype(np.uint8)


def _gaussian(picture: Picture, sigma: float) -> _Clean:
    """As scikit-image."""
    from scipy import ndimage  # worlds without noise do without

    return ndimage.gaussian_filter(picture / 255.0, (sigma, sigma, 0), mode="nearest", truncate=4.0)


def _zoom(picture: Picture, stop: float, step: float) -> _Clean:
    """The mean of the picture and of magnifications of its centre."""
    from scipy import ndimage  # see above

    clean, sides = (picture / 255.0).astype(np.float32), picture.shape[:2]
    factors, total = np.arange(1, stop, step), np.zeros_like(clean)

    def middle(whole: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
        top, left = ((have - size) // 2 for have, size in zip(whole.shape, sizes, strict=False))
        return whole[top : top + sizes[0], left : left + sizes[1]]

    for factor in factors:
        centre = middle(clean, [int(np.ceil(side / float(factor))) for side in sides])
        zoomed = np.stack([ndimage.zoom(centre[..., c], factor, order=1) for c in range(3)], axis=-1)
        total += middle(zoomed, sides)
    return (clean + total) / (len(factors) + 1)


def _fog(picture: Picture, density: float, plasma: np.ndarray) -> _Clean:
    clean, (height, width, _) = picture / 255.0, picture.shape
    brightest = clean.max()
    clean += density * plasma[:height, :width, None]
    return clean * brightest / (brightest + density)


def _plasma(decay: float, random: np.random.RandomState, side: int) -> Float[np.ndarray, "side side"]:
    """A height map from 0 to 1 by the diamond-square algorithm; its side is a power of two."""
    heights = np.zeros((side, side))
    step, wibble = side, 100.0

    def rough(total: np.ndarray) -> np.ndarray:
        return total / 4 + wibble * random.uniform(-wibble, wibble, total.shape)

    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]
        sums = corners + np.roll(corners, -1, axis=0)
        sums += np.roll(sums, -1, axis=1)
        heights[half::step, half::step] = rough(sums)
        middles, corners = heights[half::step, half::step], heights[::step, ::step]
        vertical = (middles + np.roll(middles, 1, axis=0)) + (corners + np.roll(corners, -1, axis=1))
        heights[::step, half::step] = rough(vertical)
        horizontal = (middles + np.roll(middles, 1, axis=1)) + (corners + np.roll(corners, -1, axis=0))
        heights[half::step, ::step] = rough(horizontal)
        step, wibble = half, wibble / decay
    heights -= heights.min()
    return heights / heights.max()


def _glass(picture: Picture, sigma: float, most: int, displacements: np.ndarray) -> _Clean:
    """Pixels are overwritten one after the other by near ones, which themselves may have been overwritten."""
    blurred, (height, width, _) = (_gaussian(picture, sigma) * 255).astype(np.uint8), picture.shape
    rows, columns = (range(side - most, most, -1) for side in (height, width))
    targets = [row * width + column for row, column in itertools.product(rows, columns)]
    origin = list(range(height * width))  # of each pixel, flat
    for one_pass in displacements:
        nearby = (one_pass[:, 1] * width + one_pass[:, 0]).tolist()
        for target, way in zip(targets, nearby, strict=True):
            origin[target] = origin[target + way]
    shuffled = blurred.reshape(-1, 3)[origin].reshape(blurred.shape)
    return _gaussian(shuffled, sigma)
