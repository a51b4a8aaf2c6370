"""Goals that are sequences: subgoals that count in their order, as in LIBERO-Mem (arXiv 2511.11478)."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

Subgoal = tuple[str, ...]  # a predicate of BDDL with its arguments, in lower case

# Consecutive control steps for which a subgoal does not hold, and then holds, before it counts.
FALSE_STEPS, TRUE_STEPS = 16, 6
OVERSHOT_STEPS = 6  # control steps without the last subgoal, after it has counted, that fail the episode
# Control steps for which the last subgoal has to hold at the end: longer than it takes to release, grasp and
# lift once more, so that a robot that cannot stop fails.
STILL_STEPS = 60


def _bowls(*moves: tuple[int, int]) -> tuple[Subgoal, ...]:
    return tuple(("on", f"akita_black_bowl_{bowl}", f"plate_{plate}") for bowl, plate in moves)


def _baskets(*pairs: tuple[int, int]) -> tuple[tuple[Subgoal, ...], ...]:
    """Alternatives: the cream cheese in one basket, then a basket in the center."""
    return tuple(
        (
            ("in", "cream_cheese_1", f"basket_{filled}_contain_region"),
            ("on", f"basket_{moved}", "kitchen_table_center_region"),
        )
        for filled, moved in pairs
    )


_BOWL = (("on", "akita_black_bowl_1", "plate_1"),)
_BOTTLE = (("on", "wine_bottle_1", "plate_2"),)

# Task to its alternatives, of which one has to be completed; each is a sequence of subgoals.
SEQUENCES: Mapping[str, tuple[tuple[Subgoal, ...], ...]] = {
    "lift_the_black_bowl_and_put_it_back_on_the_plate_once": (_BOWL,),
    "lift_the_wine_bottle_and_put_it_back_on_the_plate_once": (_BOTTLE,),
    "lift_the_black_bowl_and_put_it_back_on_the_plate_three_times": (_BOWL * 3,),
    "lift_the_wine_bottle_and_put_it_back_on_the_plate_three_times": (_BOTTLE * 3,),
    "lift_the_black_bowl_and_put_it_back_on_the_plate_five_times": (_BOWL * 5,),
    "lift_the_black_bowl_and_put_it_back_on_the_plate_seven_times": (_BOWL * 7,),
    "swap_the_two_black_bowls_by_way_of_the_empty_plate": (
        _bowls((1, 3), (2, 1), (1, 2)),
        _bowls((2, 3), (1, 2), (2, 1)),
    ),
    "move_the_three_black_bowls_one_plate_to_the_left_by_way_of_the_empty_plate": (
        _bowls((1, 4), (2, 1), (3, 2), (1, 3)),
    ),
    "put_the_cream_cheese_in_the_nearest_basket_and_place_that_basket_in_the_center": (
        _baskets((1, 1), (2, 2))
    ),
    "put_the_cream_cheese_in_the_nearest_basket_and_place_the_empty_basket_in_the_center": (
        _baskets((1, 2), (2, 1))
    ),
    "count_twice": (_BOWL * 2,),
    "count_three_times": (_BOWL * 3,),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reached:
    """How far a sequence had come at some step."""

    counted: Sequence[Subgoal] = ()  # the subgoals that had counted
    next: Subgoal | None  # the one that counts next; None after the last one
    next_is_reset: bool = False  # whether it had not held for long enough to count when it holds again


@dataclasses.dataclass(kw_only=True)
class _Progress:
    """How far one alternative has come."""

    subgoals: Sequence[Subgoal]
    counted: int = 0  # subgoals that have counted
    # Consecutive steps in which the next subgoal did not hold; stays at `FALSE_STEPS` until it has counted.
    unmet: int = 0
    undone: bool = False  # whether the next subgoal held before
    met: int = 0  # consecutive steps in which it, or after the last one the last, has held
    missed: int = 0  # consecutive steps without the last subgoal after it has counted

    @property
    def complete(self) -> bool:
        return self.counted == len(self.subgoals)

    def step(self, holds: Callable[[Subgoal], bool]) -> None:
        held = holds(self.subgoals[min(self.counted, len(self.subgoals) - 1)])
        self.met = self.met + 1 if held else 0
        if self.complete:
            self.missed = 0 if held else min(self.missed + 1, OVERSHOT_STEPS)
        elif self.unmet < FALSE_STEPS:
            self.unmet = 0 if held else self.unmet + 1
            self.undone = self.undone or bool(held)
        elif self.met == TRUE_STEPS:
            self.counted, self.unmet = self.counted + 1, 0
            self.undone = not self.complete and bool(holds(self.subgoals[self.counted]))

    def reached(self) -> Reached:
        return Reached(
            counted=self.subgoals[: self.counted],
            next=None if self.complete else self.subgoals[self.counted],
            next_is_reset=self.unmet == FALSE_STEPS,
        )


class GoalSequence:
    """The subgoals of one episode, from its first step after settling.

    A subgoal counts once it has held for `TRUE_STEPS`, after it did not for `FALSE_STEPS`. The task is solved
    `STILL_STEPS` after the last one, if that still holds; without it for `OVERSHOT_STEPS`, the episode has
    failed for good.
    """

    def __init__(self, alternatives: Sequence[Sequence[Subgoal]], holds: Callable[[Subgoal], bool]) -> None:
        """Begin sequences of which one has to be completed; `holds` tells whether a subgoal holds now."""
        self._alternatives = [_Progress(subgoals=tuple(each)) for each in alternatives]
        self._holds = holds
        self.overshot = False  # whether it has failed for good
        self.subgoals = tuple(dict.fromkeys(subgoal for each in alternatives for subgoal in each))
        self._past = [self._leading.reached()]

    def step(self) -> bool:
        """Judge one control step. Returns whether the task is solved."""
        for each in self._alternatives:
            each.step(self._holds)
        self._past.append(self._leading.reached())
        self.overshot = self.overshot or any(each.missed == OVERSHOT_STEPS for each in self._alternatives)
        return not self.overshot and any(
            each.complete and each.met >= TRUE_STEPS + STILL_STEPS for each in self._alternatives
        )

    def reached(self, steps_ago: int = 0) -> Reached:
        """How far the alternative that is farthest has come, or had that many control steps ago."""
        return self._past[max(0, len(self._past) - 1 - steps_ago)]

    @property
    def progress(self) -> float:
        """Share of the subgoals that have counted."""
        return self._leading.counted / len(self._leading.subgoals)

    @property
    def next_is_undone(self) -> bool:
        """Whether the next subgoal held before, and has been undone for long enough to count."""
        return self.reached().next_is_reset and self._leading.undone

    @property
    def _leading(self) -> _Progress:
        return max(self._alternatives, key=lambda each: each.counted)
