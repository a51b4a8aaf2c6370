"""The nouns of a world: movable objects, parts that open or switch, and places."""

import dataclasses
import functools
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nouns:
    """A closed vocabulary in lower case. Texts with other nouns are not parsed.

    Attributes:
        movable: Objects that can be moved.
        parts: Parts that can be opened or switched.
        places: Places for objects, each with its preposition: `("bowl", "in")`.
    """

    movable: frozenset[str]
    parts: frozenset[str]
    places: frozenset[tuple[str, str]]

    @functools.cached_property
    def subjects(self) -> frozenset[str]:
        """Everything that can be acted on."""
        return self.movable | self.parts

    @functools.cached_property
    def phrases(self) -> Mapping[str, str]:
        """Maps a place with its preposition to its noun: `in the bowl` → `bowl`."""
        return {f"{preposition} the {place}": place for place, preposition in sorted(self.places)}

    def phrase(self, place: str) -> str:
        """A place with its preposition: `bowl` → `in the bowl`; `on` for unknown places."""
        return f"{self.prepositions.get(place, 'on')} the {place}"

    @functools.cached_property
    def prepositions(self) -> Mapping[str, str]:
        """Maps a place to its preposition."""
        return dict(self.places)
