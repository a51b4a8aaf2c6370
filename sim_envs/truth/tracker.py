"""The account of an episode as it goes on: called after every control step, asked at queries."""

import numpy as np

from sim_envs.truth.account import HELD, Deed, Fact, Memory, Truth, Verb
from sim_envs.truth.phases import Phases, Steady
from sim_envs.truth.places import HOUSEHOLD
from sim_envs.truth.scene import Item, Moment, TruthScene

_MOVED = 0.05
"""A thing this far (m) from where it was at first has been moved."""

_AT_REST = 0.002
"""A thing that moves less than this (m) within a quarter of a second has come to rest."""

_MOST_WAITING = 8
"""Control steps after which the account is brought up to date though nobody asks: less than it takes to open
and close a drawer."""

_CHANGES = {"open": Verb.OPENED, "closed": Verb.CLOSED, "on": Verb.TURNED_ON, "off": Verb.TURNED_OFF}


class TruthTracker:
    """Watches one episode, and changes nothing in it."""

    def __init__(self, scene: TruthScene, *, control_hz: float) -> None:
        """Begin with the scene as it is now, after its reset.

        Args:
            scene: The episode's.
            control_hz: Calls of `step` per simulated second.
        """
        self._scene = scene
        self._places = (scene.nouns or HOUSEHOLD).phrases
        self._phases = Phases(self._scene, control_hz=control_hz)
        start = self._scene.capture()
        self._start = start.positions
        self._settled = {item.index: self._scene.state(item) for item in self._scene.parts}
        self._named = {item.noun for item in self._scene.named}
        self._waiting: list[Moment] = []
        self._done: dict[tuple[Verb, str], Deed] = {}
        self._moving: dict[int, Verb] = {}
        self._touched: dict[int, None] = {}
        self._steady = Steady(self._phases.update(start, self._scene.missing()), control_hz=control_hz)

    def step(self, *, solved: bool) -> None:
        """Take in what one control step has changed, and whether the task is solved now."""
        self._waiting.append(self._scene.capture())
        if solved or len(self._waiting) == _MOST_WAITING:
            self._catch_up(solved=solved)

    def truth(self) -> Truth:
        """The account of this moment."""
        self._catch_up(solved=False)
        subjects = self._subjects()
        nouns = {item.noun for item in subjects}
        facts = frozenset(Fact(subject=item.noun, state=self._state(item)) for item in subjects)
        done = tuple(deed for deed in self._done.values() if deed.subject in nouns)
        memory = Memory(done=done, facts=facts)
        return Truth(narration=self._steady.value, memory=memory, nouns=self._scene.nouns)

    def _catch_up(self, *, solved: bool) -> None:
        """Make sense of the steps since the last time, which is several times cheaper than at each step."""
        if not self._waiting:
            return
        missing = self._scene.missing()
        for moment in self._waiting:
            last = moment is self._waiting[-1]
            self._steady.update(self._phases.update(moment, missing if missing or last else self._scene.aims))
            for index in self._phases.touch.any:
                self._touched.pop(index, None)
                self._touched[index] = None
            self._note_moves()
        self._waiting.clear()
        self._note_parts()
        self._note_set_downs(solved=solved)

    def _subjects(self) -> list[Item]:
        """What is told of: what goals name, and of all else that has been changed what was touched last."""
        changed = {subject for _, subject in self._done} | {item.noun for item in self._moved()}
        others = [item for item in self._scene.items if item.noun in changed - self._named]
        order = {index: rank for rank, index in enumerate(self._touched)}
        return [*self._scene.named, *sorted(others, key=lambda item: order.get(item.index, -1))[-1:]]

    def _moved(self) -> list[Item]:
        """Things that are no longer where they were at first."""
        shifts = np.linalg.norm(self._scene.capture().positions - self._start, axis=1)
        return [item for item in self._scene.things if shifts[item.index] > _MOVED]

    def _state(self, item: Item) -> str:
        if item.articulation is not None:
            return self._scene.state(item)
        where = self._scene.whereabouts(item)
        return HELD if self._holds(item) and not self._is_where_it_should_be(item) else where

    def _holds(self, item: Item) -> bool:
        grip = self._phases.grip
        return grip is not None and grip.item is item

    def _is_where_it_should_be(self, item: Item) -> bool:
        aims = [aim for aim in self._scene.aims if aim.item is item]
        return any(self._scene.satisfied(aim) for aim in aims)

    def _note_parts(self) -> None:
        for item in self._scene.parts:
            state = self._scene.state(item)
            if state in _CHANGES and state != self._settled[item.index]:
                self._settled[item.index] = state
                self._note(Deed(verb=_CHANGES[state], subject=item.noun))

    def _note_moves(self) -> None:
        """Whatever is carried or pushed is to be put somewhere."""
        grip, sliding = self._phases.grip, self._phases.sliding
        if grip is not None and grip.moved:
            self._moving[grip.item.index] = Verb.PUT if grip.lifted else Verb.PUSHED
        elif sliding is not None:
            self._moving[sliding.index] = Verb.PUSHED

    def _note_set_downs(self, *, solved: bool) -> None:
        """Things are put where they come to rest; at success, where they are."""
        for index, verb in list(self._moving.items()):
            item = self._scene.items[index]
            free = not self._holds(item) and index not in self._phases.touch.any
            if solved or (free and self._phases.travelled(item) < _AT_REST):
                self._note_set_down(item, verb)

    def _note_set_down(self, item: Item, verb: Verb) -> None:
        place = self._places.get(self._scene.whereabouts(item))
        if place is None:
            return
        del self._moving[item.index]
        if verb is Verb.PUT or self._is_where_it_should_be(item):
            self._note(Deed(verb=verb, subject=item.noun, place=place))

    def _note(self, deed: Deed) -> None:
        """Add a deed; the same done again is remembered as of now, and a thing is where it was put last."""
        again = [key for key in self._done if key[1] == deed.subject and _replaces(deed.verb, key[0])]
        for key in again:
            del self._done[key]
        self._done[deed.verb, deed.subject] = deed


def _replaces(new: Verb, old: Verb) -> bool:
    return new == old or (new.moves and old.moves)
