"""Other wordings of the same instruction."""

import functools
from collections.abc import Sequence
from importlib import resources

import numpy as np
from typing_extensions import override

from configs.paths import parse_yaml
from contracts.hashing import hash_of
from sim_envs.perturbations.dimension import Dimension

_OTHER = (3, 5)  # severities whose frames hold the suite's own other wording


class Wording(Dimension):
    """The instruction in other words, of `wordings.yaml` and of the suite."""

    medium = "words"
    meanings = (
        "the instruction with a courtesy",
        "the instruction as an indirect request",
        "one of the suite's held-out wordings",
        "the instruction beside a sentence that does not matter",
        "one of the suite's held-out wordings between two sentences that do not matter",
    )

    @override
    def reword(
        self, instruction: str, other: Sequence[str], severity: int, draws: np.random.Generator
    ) -> str:
        frames = _frames()[severity]
        words = other[0] if self.needs_other(severity) else instruction
        return str(frames[draws.integers(len(frames))]).format(words)

    @property
    @override
    def digest(self) -> str:
        return hash_of(_frames())

    @override
    def needs_other(self, severity: int) -> bool:
        return severity in _OTHER


@functools.cache
def _frames() -> dict[int, list[str]]:
    file = resources.files("sim_envs.perturbations") / "wordings.yaml"
    found: dict[int, list[str]] = parse_yaml(file.read_text(), "wordings.yaml")
    return found
