"""What is trained on, as arrays in memory: frames of demonstrations, from one dataset or several."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from configs.errors import UsageError
from oxygen.model.config import Pi05Config
from oxygen.training.recordings import Recording
from oxygen.typing import Bool, Float32, Int64, UInt8

_FRAMES_LOOKED_AT = 64
"""Of a dataset's pixels, which may be many gigabytes; the numbers beside them tell the rest apart."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Samples:
    """Frames of demonstrations in the robot's own units. Row `i` of everything is frame `i`.

    Attributes:
        images: Pixels of the model's cameras, in the model's order and size; may be mapped into memory.
        state: Proprioception.
        actions: What the next control steps should do.
        valid: Which of those lie within the episode.
        language: The instruction.
        texts: For every language task what should be said of the frame; empty where nobody knows.
    """

    images: UInt8[np.ndarray, "frame camera side side 3"]
    state: Float32[np.ndarray, "frame state"]
    actions: Float32[np.ndarray, "frame horizon action"]
    valid: Bool[np.ndarray, "frame horizon"]
    language: tuple[str, ...]
    texts: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        lengths = [len(column) for column in self._columns()]
        if not self.state.size or len(set(lengths)) > 1:
            raise UsageError(f"samples have columns of {lengths} rows; give as many of each, at least one")
        _check_images(self.images)
        _check_numbers("state", self.state, "(frames, channels)")
        _check_numbers("actions", self.actions, "(frames, steps, channels)")
        steps = self.actions.shape[:2]
        if self.valid.dtype != bool or self.valid.shape != steps:
            raise UsageError(
                f"valid: {self.valid.dtype} of {self.valid.shape}; give bool of (frames, steps), {steps}"
            )

    @classmethod
    def from_episodes(cls, episodes: Iterable[Recording], model: Pi05Config, *, every: int = 1) -> "Samples":
        """The frames of recorded episodes as a model learns from them.

        Args:
            episodes: Taken one after the other, so they may be read as they are asked for; only images of the
                model's size are kept. All must have texts for the same language tasks.
            model: Whose cameras, image size and horizon.
            every: Control steps from one frame to the next.

        Raises:
            UsageError: There are no episodes, or they do not fit each other or the model.
        """
        parts = [_frames_of(episode, model, every) for episode in episodes]
        if not parts:
            raise UsageError("there are no episodes to learn from; is the path right?")
        kinds = {_kind(part) for part in parts}
        if len(kinds) > 1:
            raise UsageError(f"episodes do not go together: {' or '.join(map(str, sorted(kinds)))}")
        return cls(
            **{
                name: np.concatenate([getattr(part, name) for part in parts])
                for name in ("images", "state", "actions", "valid")
            },
            language=tuple(told for part in parts for told in part.language),
            texts={
                task: tuple(text for part in parts for text in part.texts[task]) for task in parts[0].texts
            },
        )

    def __len__(self) -> int:
        """The number of frames."""
        return len(self.state)

    def _columns(self) -> list[Sequence[object] | np.ndarray]:
        arrays: list[Sequence[object] | np.ndarray] = [self.images, self.state, self.actions, self.valid]
        return [*arrays, self.language, *self.texts.values()]


def _frames_of(episode: Recording, model: Pi05Config, every: int) -> Samples:
    steps = np.arange(0, len(episode), every)
    actions, valid = episode.chunks(steps, model.horizon)
    return Samples(
        images=episode.seen(steps, model),
        state=episode.state[steps].astype(np.float32),
        actions=actions,
        valid=valid,
        language=(episode.language,) * len(steps),
        texts={task: tuple(texts[int(step)] for step in steps) for task, texts in episode.texts.items()},
    )


def _check_images(images: np.ndarray) -> None:
    shape = images.shape
    if images.dtype != np.uint8 or len(shape) != 5 or shape[2:] != (shape[2], shape[2], 3):
        raise UsageError(
            f"images: {images.dtype} of {shape}; give uint8 of (frames, cameras, side, side, 3), "
            "upright and padded to a square"
        )


def _check_numbers(name: str, numbers: np.ndarray, wanted: str) -> None:
    if numbers.ndim != 1 + wanted.count(",") or numbers.dtype.kind != "f":
        raise UsageError(f"{name}: {numbers.dtype} of {numbers.shape}; give float32 of {wanted}")
    bad = ~np.isfinite(numbers)
    if bad.any():
        frame = int(np.argmax(bad.reshape(len(bad), -1).any(axis=1)))
        raise UsageError(f"{name}: frame {frame} holds {numbers[bad][0]}; mend it, or leave the frame out")


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Several datasets as one; each has as large a share as it has frames.

    Attributes:
        parts: The datasets. They must agree in all sizes and in the names of their texts.
        wordings: Instructions to what may be said in their place; others are said as they are.
    """

    parts: tuple[Samples, ...]
    wordings: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for instruction, wordings in self.wordings.items():
            if not wordings:
                raise UsageError(f"{instruction!r} has no wordings; give at least one, or leave it out")
        kinds = {_kind(part) for part in self.parts}
        if len(kinds) != 1:
            raise UsageError(f"datasets do not go together: {' or '.join(map(str, sorted(kinds)))}")

    def __len__(self) -> int:
        """The number of frames."""
        return sum(map(len, self.parts))

    @property
    def state(self) -> Float32[np.ndarray, "frame state"]:
        """The states of all parts, one after the other."""
        return np.concatenate([part.state for part in self.parts])

    @property
    def actions(self) -> Float32[np.ndarray, "frame horizon action"]:
        """The actions of all parts."""
        return np.concatenate([part.actions for part in self.parts])

    @property
    def valid(self) -> Bool[np.ndarray, "frame horizon"]:
        """Which actions count."""
        return np.concatenate([part.valid for part in self.parts])

    @property
    def has_actions(self) -> bool:
        """Whether any action of any frame counts."""
        return any(part.valid.any() for part in self.parts)

    @property
    def instructions(self) -> tuple[Sequence[str], ...]:
        """Of every frame the wordings in which its instruction may be given."""
        return tuple(self.wordings.get(text, (text,)) for part in self.parts for text in part.language)

    def described(self) -> dict[str, Any]:
        """What tells it from other demonstrations, as JSON has it: frames, and a digest of what is in them.

        All numbers and words have their share in it, and the pixels of 64 frames of each part.
        """
        return {"frames": len(self), "digest": _digest(self.parts)}

    def texts(self, task: str) -> tuple[str, ...]:
        """All texts of a language task; empty strings where the datasets have none of that name."""
        nothing = ("",)
        return tuple(text for part in self.parts for text in part.texts.get(task, nothing * len(part)))

    def images(self, rows: Int64[np.ndarray, " row"]) -> UInt8[np.ndarray, "row camera side side 3"]:
        """The images of some frames, in the order asked for."""
        starts = np.cumsum([0, *map(len, self.parts)])
        which = np.searchsorted(starts, rows, side="right") - 1
        pixels = np.empty((len(rows), *self.parts[0].images.shape[1:]), np.uint8)
        for index, part in enumerate(self.parts):
            here = which == index
            pixels[here] = part.images[rows[here] - starts[index]]
        return pixels


def _kind(part: Samples) -> tuple[object, ...]:
    return part.images.shape[1:], part.state.shape[1:], part.actions.shape[1:], tuple(sorted(part.texts))


def _digest(parts: Sequence[Samples]) -> str:
    total = hashlib.sha256()
    for part in parts:
        seen = part.images[np.linspace(0, len(part) - 1, _FRAMES_LOOKED_AT).astype(np.int64)]
        for array in (part.state, part.actions, part.valid, seen):
            total.update(f"{array.dtype}{array.shape}".encode())
            total.update(np.ascontiguousarray(array).tobytes())
        total.update(json.dumps([part.language, dict(part.texts)], sort_keys=True).encode())
    return total.hexdigest()


def order(seed: int, batch: int, size: int, total: int) -> Int64[np.ndarray, " row"]:
    """The frames of the `batch`-th batch of `size`: every frame once, shuffled, then again in another order.

    A function of its arguments alone, so a run that goes on where another stopped sees what that would have.
    """
    first = batch * size
    places = np.arange(first, first + size)
    return np.concatenate(
        [
            _shuffled(seed, int(epoch), total)[places[places // total == epoch] % total]
            for epoch in np.unique(places // total)
        ]
    )


def _shuffled(seed: int, epoch: int, total: int) -> Int64[np.ndarray, " frame"]:
    return np.random.Generator(np.random.PCG64([seed, epoch])).permutation(total)
