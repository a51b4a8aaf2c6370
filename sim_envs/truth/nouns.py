"""The nouns of a world: what can be moved, what can be opened or switched, and where things can be."""

import dataclasses
import functools
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nouns:
    """A closed set of nouns, in lower case. A text that names anything else is not read.

    Attributes:
        movable: Of everything that can be moved.
        parts: Of what can be opened or switched.
        places: Of everywhere a thing can be, each with its preposition: `("bowl", "in")`.
    """

    movable: frozenset[str]
    parts: frozenset[str]
    places: frozenset[tuple[str, str]]

    @functools.cached_property
    def subjects(self) -> frozenset[str]:
        """Of everything something can be done to."""
        return self.movable | self.parts

    @functools.cached_property
    def phrases(self) -> Mapping[str, str]:
        """Every place with its preposition, back to its noun: `in the bowl` → `bowl`."""
        return {f"{preposition} the {place}": place for place, preposition in sorted(self.places)}

    def phrase(self, place: str) -> str:
        """A place with its preposition: `bowl` → `in the bowl`; `on` if the world has no such place."""
        return f"{self.prepositions.get(place, 'on')} the {place}"

    @functools.cached_property
    def prepositions(self) -> Mapping[str, str]:
        """Every place to its preposition."""
        return dict(self.places)
