"""The contract of a dimension, and finding one by name. Imports no simulator."""

import functools
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from jaxtyping import UInt8

from contracts.errors import UsageError
from contracts.perturbation import ENTRY_POINTS, Perturbation

if TYPE_CHECKING:
    from sim_envs.perturbations.scene import Scene

Medium = Literal["scene", "pictures", "words"]
"""What a dimension changes: a MuJoCo scene, the cameras' pictures, or the instruction."""

Picture = UInt8[np.ndarray, "height width 3"]


class Dimension:
    """Base of dimensions; a class of another package has an entry point in `oxygen_eval.perturbations`.

    A subclass has the method of its medium. Everything random comes from what it is given.

    Attributes:
        medium: What it changes.
        moves: Whether a scene's state changes, rather than how it looks.
        objects: How many objects a task needs for it, which stand apart on the table and can be moved.
        falls_back: Whether, where no draw of a severity is possible, the next lower severity is drawn.
        meanings: What the severities 1 to 5 mean, in units. Part of the protocol's hash.
    """

    medium: ClassVar[Medium]
    moves: ClassVar[bool] = False
    objects: ClassVar[int] = 0
    falls_back: ClassVar[bool] = False
    meanings: ClassVar[Sequence[str]]

    def change(self, scene: "Scene", severity: int, draws: np.random.Generator) -> bool:
        """Change the scene; False if this draw leaves the task unsolvable, to get the next one."""
        raise NotImplementedError

    def corrupt(self, picture: Picture, severity: int, *, digest: int, step: int) -> Picture:
        """A picture as the sensor gives it, a function of the episode's `digest` and the control step."""
        raise NotImplementedError

    def reword(
        self, instruction: str, other: Sequence[str], severity: int, draws: np.random.Generator
    ) -> str:
        """Another wording; `other` has one by the suite, for dimensions that `needs_other`."""
        raise NotImplementedError

    @property
    def digest(self) -> str:
        """A digest of what it reads beside its code, for the protocol's hash; empty if it reads nothing."""
        return ""

    def needs_other(self, severity: int) -> bool:  # noqa: ARG002 - as a subclass decides
        """Whether `reword` needs the suite's own held-out wording."""
        return False


_OURS = {
    **dict.fromkeys(("camera", "light", "background", "appearance"), "looks"),
    **dict.fromkeys(("robot", "layout", "swap"), "places"),
    "noise": "noise",
    "wording": "words",
}
"""The module of each of our dimensions, whose class there has the dimension's name."""


@functools.cache
def find_dimension(name: str) -> Dimension:
    """Find a dimension by name; a UsageError if another package's class is not a `Dimension`."""
    if name in _OURS:
        module = import_module(f"sim_envs.perturbations.{_OURS[name]}")
        found = getattr(module, name.capitalize())()
    else:
        (point,) = entry_points(group=ENTRY_POINTS, name=name)
        found = point.load()()
    if not isinstance(found, Dimension) or len(found.meanings) != 5:
        raise UsageError(
            f"perturbation {name}: {type(found).__name__} is no sim_envs.perturbations.dimension.Dimension "
            "with five meanings"
        )
    return found


def describe_perturbation(part: Perturbation) -> str:
    """What a perturbation means, in units."""
    meaning = find_dimension(part.dimension).meanings[part.severity - 1]
    return f"{meaning}, from {part.at_s:g} s on" if part.at_s else meaning
