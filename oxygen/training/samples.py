"""Training data in memory: recorded episodes, the frames of one or several datasets, and their statistics."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from contracts.errors import UsageError
from oxygen.model.config import Pi05Config
from oxygen.robots.images import camera_images
from oxygen.robots.norms import Statistics
from oxygen.robots.transforms import Embodiment
from oxygen.typing import Bool, Float, Float32, Int64, UInt8

_FRAMES_HASHED = 64  # frames whose pixels enter the digest; all pixels may be many gigabytes
_MAX_TAIL = 4.0
"""Channels whose full range exceeds this multiple of the quantile range are scaled by the full range."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recording:
    """One recorded episode. Row `i` of everything is control step `i`.

    Attributes:
        images: Camera to its pixels, of any size; upright, as the policy sees them.
        state: Proprioception, in the robot's units.
        actions: The action executed at each step.
        language: The instruction.
        texts: Language task to the target text of each step; empty where there is none.
    """

    images: Mapping[str, UInt8[np.ndarray, "step _ _ 3"]]
    state: Float[np.ndarray, "step state"]
    actions: Float[np.ndarray, "step action"]
    language: str
    texts: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = {"state": self.state, "actions": self.actions, **self.images, **self.texts}
        lengths = {name: len(column) for name, column in columns.items()}
        if len(self.actions) == 0 or len(set(lengths.values())) > 1:
            raise UsageError(
                f"episode {self.language!r}: steps are {lengths}; all need the same number, at least 1"
            )

    def __len__(self) -> int:
        return len(self.actions)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Samples:
    """Frames of one or several datasets, in the robot's units. Row `i` of everything but images is frame `i`.

    Attributes:
        images: Pixels of the model's cameras, in the model's order and size: an array of each dataset, which
            may be memory-mapped.
        state: Proprioception.
        actions: Chunk of the next actions.
        valid: Which of these lie within the episode.
        language: The instruction.
        texts: Language task to the target text of each frame; empty where there is none.
        frame_index: Number of the frame in its episode; None if frames do not belong to episodes.
        fps: Frames per second of simulated time; of each frame's dataset if they differ.
        fed: Field to text in the prompt with which a policy read each frame; None where that is not known.
    """

    images: tuple[UInt8[np.ndarray, "_ camera side side 3"], ...]
    state: Float32[np.ndarray, "frame state"]
    actions: Float32[np.ndarray, "frame horizon action"]
    valid: Bool[np.ndarray, "frame horizon"]
    language: tuple[str, ...]
    texts: Mapping[str, tuple[str, ...]]
    frame_index: Int64[np.ndarray, " frame"] | None = None
    fps: float | Float32[np.ndarray, " frame"] = 1.0
    fed: tuple[Mapping[str, str] | None, ...] | None = None

    def __post_init__(self) -> None:
        columns = self.state, self.actions, self.valid, self.language, *self.texts.values()
        lengths = [sum(map(len, self.images)), *map(len, columns)]
        if not self.state.size or len(set(lengths)) > 1:
            raise UsageError(f"samples have columns of {lengths} rows; all need the same number, at least 1")
        for images in self.images:
            shape = images.shape
            if images.dtype != np.uint8 or len(shape) != 5 or shape[2:] != (shape[2], shape[2], 3):
                raise UsageError(
                    f"images: {images.dtype} of {shape}; give uint8 of (frames, cameras, side, side, 3), "
                    "upright and padded to a square"
                )
        _check_numbers("state", self.state, "(frames, channels)")
        _check_numbers("actions", self.actions, "(frames, steps, channels)")
        steps = self.actions.shape[:2]
        if self.valid.dtype != bool or self.valid.shape != steps:
            raise UsageError(
                f"valid: {self.valid.dtype} of {self.valid.shape}; give bool of (frames, steps), {steps}"
            )

    @classmethod
    def from_episodes(
        cls,
        episodes: Iterable[Recording],
        model: Pi05Config,
        *,
        every: int = 1,
        control_hz: float | None = None,
    ) -> "Samples":
        """Cut recorded episodes into frames with action chunks.

        Past the end of an episode, its last action is repeated and marked invalid.

        Args:
            episodes: May be a generator: each is resized to the model's image size before the next is read.
                All must have texts for the same language tasks.
            model: Sets cameras, image size and horizon.
            every: Control steps between frames.
            control_hz: Control steps per second; needed to train with texts in the prompt.

        Raises:
            UsageError: There are no episodes, or they do not match each other or the model.
        """
        parts = []
        for episode in episodes:
            steps, last = np.arange(0, len(episode), every), len(episode) - 1
            chunk_steps = steps[:, None] + np.arange(model.horizon)[None]
            at_steps = [{name: pixels[step] for name, pixels in episode.images.items()} for step in steps]
            images = [
                camera_images(at, model.cameras, model.image_size, resize=model.resize) for at in at_steps
            ]
            part = cls(
                images=(np.stack(images),),
                state=episode.state[steps].astype(np.float32),
                actions=episode.actions[np.minimum(chunk_steps, last)].astype(np.float32),
                valid=chunk_steps <= last,
                language=(episode.language,) * len(steps),
                texts={
                    task: tuple(texts[int(step)] for step in steps) for task, texts in episode.texts.items()
                },
                frame_index=None if control_hz is None else np.arange(len(steps)),
                fps=1.0 if control_hz is None else control_hz / every,
            )
            parts.append(part)
        whole = cls.joined(parts, "episodes")
        return dataclasses.replace(whole, images=(np.concatenate(whole.images),))

    @classmethod
    def joined(cls, parts: Sequence["Samples"], what: str = "datasets") -> "Samples":
        """Several datasets of equal sizes and tasks as one, sampled in proportion to their frames."""
        if not parts:
            raise UsageError(f"no {what} to train on; is the path right?")
        shapes = {
            (
                *(array.shape[1:] for array in (part.images[0], part.state, part.actions)),
                tuple(sorted(part.texts)),
            )
            for part in parts
        }
        if len(shapes) > 1:
            raise UsageError(f"{what} do not match: {' or '.join(map(str, sorted(shapes)))}")
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("state", "actions", "valid")
        }
        numbers = [part.frame_index for part in parts if part.frame_index is not None]
        return cls(
            images=tuple(images for part in parts for images in part.images),
            language=tuple(text for part in parts for text in part.language),
            texts={
                task: tuple(text for part in parts for text in part.texts[task]) for task in parts[0].texts
            },
            frame_index=np.concatenate(numbers) if len(numbers) == len(parts) else None,
            fps=np.concatenate([np.broadcast_to(np.float32(part.fps), len(part)) for part in parts]),
            fed=tuple(fed for part in parts for fed in part.fed or (None,) * len(part)),
            **columns,
        )

    def __len__(self) -> int:
        return len(self.state)

    def pixels(self, rows: Int64[np.ndarray, " row"]) -> UInt8[np.ndarray, "row camera side side 3"]:
        """The images of some frames, in that order."""
        starts = np.cumsum([0, *map(len, self.images)])
        datasets = np.searchsorted(starts, rows, side="right") - 1
        return np.stack(
            [self.images[dataset][row - starts[dataset]] for dataset, row in zip(datasets, rows, strict=True)]
        )

    def fingerprint(self) -> dict[str, Any]:
        """Number of frames and SHA-256 of the data (of pixels, 64 frames of each dataset), for JSON."""
        total, start = hashlib.sha256(), 0
        for images in self.images:
            rows = slice(start, start + len(images))
            start = rows.stop
            some = images[np.linspace(0, len(images) - 1, _FRAMES_HASHED).astype(np.int64)]
            for array in (self.state[rows], self.actions[rows], self.valid[rows], some):
                total.update(f"{array.dtype}{array.shape}".encode())
                total.update(np.ascontiguousarray(array).tobytes())
            texts = {task: column[rows] for task, column in self.texts.items()}
            fed = [] if self.fed is None or self.fed[rows.start] is None else [self.fed[rows]]
            total.update(json.dumps([self.language[rows], texts, *fed], sort_keys=True).encode())
        return {"frames": len(self), "digest": total.hexdigest()}


def _check_numbers(name: str, numbers: np.ndarray, wanted: str) -> None:
    if numbers.ndim != 1 + wanted.count(",") or numbers.dtype.kind != "f":
        raise UsageError(f"{name}: {numbers.dtype} of {numbers.shape}; give float32 of {wanted}")
    bad = ~np.isfinite(numbers)
    if bad.any():
        frame = int(np.argmax(bad.reshape(len(bad), -1).any(axis=1)))
        raise UsageError(f"{name}: frame {frame} holds {numbers[bad][0]}; correct it or leave the frame out")


def shuffled_rows(seed: int, batch: int, size: int, total: int) -> Int64[np.ndarray, " row"]:
    """The frames of batch number `batch`, of `size` frames; reshuffled in every epoch over `total` frames.

    A function of its arguments alone, so that a resumed training sees the same batches.
    """
    first = batch * size
    draws = np.arange(first, first + size)
    parts = []
    for epoch in np.unique(draws // total):
        shuffled = np.random.Generator(np.random.PCG64([seed, int(epoch)])).permutation(total)
        parts.append(shuffled[draws[draws // total == epoch] % total])
    return np.concatenate(parts)


def measure(samples: Samples, robot: Embodiment) -> Statistics:
    """Mean, standard deviation, 1 % and 99 % quantiles of states, and of valid actions as predicted.

    Two exceptions for channels that rarely move: a channel at rest in nearly all frames gets its full range
    instead of the quantiles, and a constant channel gets a range of 2 around its value.
    """
    measured: Statistics = {}
    chunks = samples.actions - robot.origin(samples.state)[:, None]
    for name, numbers in (("state", samples.state), ("actions", chunks[samples.valid])):
        wide = np.asarray(numbers, np.float64)
        low, high = np.quantile(wide, (0.01, 0.99), axis=0)
        least, most = wide.min(axis=0), wide.max(axis=0)
        rarely_moves = most - least > _MAX_TAIL * (high - low)
        low, high = np.where(rarely_moves, least, low), np.where(rarely_moves, most, high)
        constant = low == high
        low, high = np.where(constant, low - 1.0, low), np.where(constant, high + 1.0, high)
        statistics = {"mean": wide.mean(axis=0), "std": wide.std(axis=0), "q01": low, "q99": high}
        measured[name] = {field: [float(value) for value in values] for field, values in statistics.items()}
    return measured
