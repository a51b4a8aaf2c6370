"""The nouns of a world, and the default vocabulary: LIBERO's nouns, as in its instructions."""

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


_CALLED_BY_THEIR_NAMES = (
    "alphabet_soup basket bbq_sauce butter chocolate_pudding cover cream_cheese ketchup milk moka_pot "
    "orange_juice plate salad_dressing tomato_sauce white_bowl wine_bottle"
)
# The noun of a movable object, by its category.
THINGS: Mapping[str, str] = {name: name.replace("_", " ") for name in _CALLED_BY_THEIR_NAMES.split()} | {
    "akita_black_bowl": "black bowl",
    "black_book": "book",
    "chefmate_8_frypan": "frying pan",
    "cookies": "cookie box",
    "glazed_rim_porcelain_ramekin": "ramekin",
    "new_salad_dressing": "salad dressing",
    "porcelain_mug": "white mug",
    "red_coffee_mug": "red mug",
    "white_yellow_mug": "yellow and white mug",
    "wooden_tray": "tray",
    "yellow_book": "book",
}
# The noun of a fixture, by its category.
FIXTURES: Mapping[str, str] = {
    "desk_caddy": "caddy",
    "flat_stove": "stove",
    "floor": "floor",
    "kitchen_table": "table",
    "living_room_table": "table",
    "microwave": "microwave",
    "study_table": "table",
    "table": "table",
    "white_cabinet": "cabinet",
    "wine_rack": "wine rack",
    "wooden_cabinet": "cabinet",
    "wooden_two_layer_shelf": "shelf",
}
# LIBERO-PRO's recoloured and resized objects: category to that of LIBERO's, whose noun the instructions use.
VARIANTS: Mapping[str, str] = {
    "bigger_akita_black_bowl": "akita_black_bowl",
    "bigger_alphabet_soup": "alphabet_soup",
    "black_bowl": "akita_black_bowl",
    "blue_ketchup": "ketchup",
    "brown_rack": "wine_rack",
    "green_bbq_sauce": "bbq_sauce",
    "green_butter": "butter",
    "green_chocolate_pudding": "chocolate_pudding",
    "red_basket": "basket",
    "red_cream_cheese": "cream_cheese",
    "red_salad_dressing": "salad_dressing",
    "white_bottle": "wine_bottle",
    "yellow_cabinet": "wooden_cabinet",
    "yellow_milk": "milk",
    "yellow_moka_pot": "moka_pot",
    "yellow_plate": "plate",
    "yellow_stove": "flat_stove",
    "yellow_tomato_sauce": "tomato_sauce",
}
THINGS = {**THINGS, **{variant: THINGS[kind] for variant, kind in VARIANTS.items() if kind in THINGS}}
FIXTURES = {**FIXTURES, **{variant: FIXTURES[kind] for variant, kind in VARIANTS.items() if kind in FIXTURES}}
# Distinguish objects of one noun, as in LIBERO's instructions: seen from opposite the robot.
QUALIFIERS = ("left", "right", "front", "middle", "back", "other")
LEVELS = ("top", "middle", "bottom")
DRAWERS = tuple(f"{level} drawer of the cabinet" for level in LEVELS)
PARTS = (*DRAWERS, "microwave", "stove")  # can be opened or turned on
_SIDES = ("left", "right", "front", "back")
_COMPARTMENTS = tuple(f"{side} compartment of the caddy" for side in _SIDES)
_TOPS = tuple(f"top of the {fixture}" for fixture in ("cabinet", "microwave", "shelf"))
_CENTER = "center of the table"
UPPER_SHELF, LOWER_SHELF = "cabinet shelf", "space under the shelf"

_THING_NOUNS = tuple(sorted(set(THINGS.values())))
_FIXTURE_NOUNS = tuple(sorted(set(FIXTURES.values())))
_BESIDE = frozenset(
    f"{side} of the {landmark}" for side in _SIDES for landmark in (*_THING_NOUNS, *_FIXTURE_NOUNS)
)

MOVABLE = frozenset(
    [*_THING_NOUNS, *(f"{qualifier} {noun}" for qualifier in QUALIFIERS for noun in _THING_NOUNS)]
)
PLACES = frozenset(
    [*MOVABLE, *_FIXTURE_NOUNS, *DRAWERS, *_COMPARTMENTS, *_TOPS, _CENTER, UPPER_SHELF, LOWER_SHELF, *_BESIDE]
)
_INSIDE = frozenset(
    [
        *DRAWERS,
        *_COMPARTMENTS,
        LOWER_SHELF,
        _CENTER,
        "microwave",
        *(noun for noun in MOVABLE if noun.endswith(("bowl", "mug", "basket", "tray"))),
    ]
)


def _preposition(place: str) -> str:
    if place in _BESIDE:
        return "to"
    if place.endswith("cover"):
        return "under"
    return "in" if place in _INSIDE else "on"


HOUSEHOLD = Nouns(  # the default vocabulary
    movable=MOVABLE,
    parts=frozenset(PARTS),
    places=frozenset((place, _preposition(place)) for place in PLACES),
)
phrase = HOUSEHOLD.phrase
