"""Seeding of the environment in stored initial states: `fixed`, `stream` or `offset`, and a seed."""

import dataclasses
import re

from contracts.errors import UsageError, unknown

FIXED, STREAM, OFFSET = "fixed", "stream", "offset"
_FORMS = tuple(f"{kind}:S" for kind in (FIXED, STREAM, OFFSET))
_SEEDS = 2**32  # of NumPy's global generator


@dataclasses.dataclass(frozen=True)
class EnvSeed:
    """How an environment is seeded whose resets draw what a stored initial state does not restore.

    Attributes:
        kind: `fixed`: the seed before every reset. `offset`: before the reset of state i, the seed plus i.
            `stream`: the seed once, before the first reset; state i has the draws of the (i + 1)-th.
        seed: The seed; None for the episode's.
    """

    kind: str = FIXED
    seed: int | None = None

    def __str__(self) -> str:
        return self.kind if self.seed is None else f"{self.kind} {self.seed}"

    def resolved(self, *seeds: int) -> "EnvSeed":
        """The seeding with its number, which is the run's seed where none is given.

        With several seeds that number stays open, and each seeds its episodes; `fixed` with the episode's own
        seed is written without a number.
        """
        (seed,) = seeds if len(seeds) == 1 else (None,)
        if self.kind == FIXED and self.seed in (None, seed):
            return BY_EPISODE
        return EnvSeed(self.kind, seed if self.seed is None else self.seed)

    def draws(self, init_id: int, episode_seed: int) -> tuple[int, int]:
        """The seed of the environment, and how many other resets come between seeding and the episode's."""
        seed = episode_seed if self.seed is None else self.seed
        if self.kind == OFFSET:
            return (seed + init_id) % _SEEDS, 0
        return seed, init_id if self.kind == STREAM else 0


BY_EPISODE = EnvSeed()
"""The episode's seed, before every reset."""


def parse_env_seed(text: str) -> EnvSeed:
    """Parse `fixed:S`, `stream:S` or `offset:S`, also with a space; without S, it is the episode's.

    Another spelling, or a seed out of bounds, is a UsageError.
    """
    form = re.fullmatch(rf"({FIXED}|{STREAM}|{OFFSET})(?:(?: +|:)(\d+))?", text.strip(), re.ASCII)
    if form is None:
        raise unknown("env seed", text, _FORMS, remedy="S is a seed, such as 7.")
    kind, number = form.groups()
    seed = None if number is None else int(number[:20])
    if seed is not None and seed >= _SEEDS:
        raise UsageError(f"env seed {text!r}: give a seed from 0 to {_SEEDS - 1}")
    return EnvSeed(kind, seed)
