"""Tracks the ground truth of an episode: updated after every control step, read at queries."""

import numpy as np

from sim_envs.truth.ground_truth import HELD, CompletedAction, Fact, Memory, Truth, Verb
from sim_envs.truth.phases import Debouncer, PhaseTracker
from sim_envs.truth.places import HOUSEHOLD
from sim_envs.truth.scene import Item, RawState, TruthScene
from sim_envs.truth.textual_memory import GoalTracker

_MOVED = 0.05
"""An object this far (m) from its initial position has been moved."""

_AT_REST = 0.002
"""An object that moves less than this (m) in a quarter of a second is at rest."""

_MAX_WAITING = 8
"""Most control steps between two updates: fewer than it takes to open and close a drawer."""

_CHANGES = {"open": Verb.OPENED, "closed": Verb.CLOSED, "on": Verb.TURNED_ON, "off": Verb.TURNED_OFF}


class TruthTracker:
    """Tracks one episode. Only reads the simulation."""

    def __init__(self, scene: TruthScene, *, control_hz: float) -> None:
        """Start from the scene's current state, after its reset.

        Args:
            scene: The scene of the episode.
            control_hz: Calls of `step` per simulated second.
        """
        self._scene = scene
        self._places = (scene.nouns or HOUSEHOLD).phrases
        self._phases = PhaseTracker(self._scene, control_hz=control_hz)
        start = self._scene.capture()
        self._start = start.positions
        self._settled = {item.index: self._scene.state(item) for item in self._scene.parts}
        self._named = {item.noun for item in self._scene.named}
        self._waiting: list[RawState] = []
        self._done: dict[tuple[Verb, str], CompletedAction] = {}
        self._moving: dict[int, Verb] = {}
        self._touched: dict[int, None] = {}
        self._goals = None if scene.sentences is None else GoalTracker(scene.sentences)
        self._track_goals()
        self._steady = Debouncer(self._phases.update(start, self._scene.missing()), control_hz=control_hz)

    def step(self, *, solved: bool) -> None:
        """Record one control step, and whether the task is solved now."""
        self._waiting.append(self._scene.capture())
        self._track_goals()
        if solved or len(self._waiting) == _MAX_WAITING:
            self._catch_up(solved=solved)

    def truth(self) -> Truth:
        """The ground truth at this step."""
        self._catch_up(solved=False)
        subjects = self._subjects()
        nouns = {item.noun for item in subjects}
        facts = frozenset(Fact(subject=item.noun, state=self._state(item)) for item in subjects)
        done = tuple(action for action in self._done.values() if action.subject in nouns)
        memory = Memory(done=done, facts=facts)
        return Truth(
            narration=self._steady.value,
            memory=memory,
            nouns=self._scene.nouns,
            textual_memory=None if self._goals is None else self._goals.facts(),
        )

    def _track_goals(self) -> None:
        if self._goals is not None:
            satisfied = [self._scene.satisfied(target) for target in self._scene.targets]
            self._goals.step(satisfied, self._scene.lifted())

    def _catch_up(self, *, solved: bool) -> None:
        """Process the steps since the last update; in batches this is several times cheaper."""
        if not self._waiting:
            return
        missing = self._scene.missing()
        for moment in self._waiting:
            last = moment is self._waiting[-1]
            self._steady.update(
                self._phases.update(moment, missing if missing or last else self._scene.targets)
            )
            for index in self._phases.touch.any:
                self._touched.pop(index, None)
                self._touched[index] = None
            self._record_moves()
        self._waiting.clear()
        self._record_parts()
        self._record_placements(solved=solved)

    def _subjects(self) -> list[Item]:
        """Items with facts: those of the goals, and the most recently touched of other changed ones."""
        changed = {subject for _, subject in self._done} | {item.noun for item in self._moved()}
        others = [item for item in self._scene.items if item.noun in changed - self._named]
        order = {index: rank for rank, index in enumerate(self._touched)}
        return [*self._scene.named, *sorted(others, key=lambda item: order.get(item.index, -1))[-1:]]

    def _moved(self) -> list[Item]:
        """Objects that are no longer at their initial position."""
        shifts = np.linalg.norm(self._scene.capture().positions - self._start, axis=1)
        return [item for item in self._scene.things if shifts[item.index] > _MOVED]

    def _state(self, item: Item) -> str:
        if item.articulation is not None:
            return self._scene.state(item)
        where = self._scene.location(item)
        return HELD if self._holds(item) and not self._is_at_target(item) else where

    def _holds(self, item: Item) -> bool:
        grip = self._phases.grip
        return grip is not None and grip.item is item

    def _is_at_target(self, item: Item) -> bool:
        targets = [target for target in self._scene.targets if target.item is item]
        return any(self._scene.satisfied(target) for target in targets)

    def _record_parts(self) -> None:
        for item in self._scene.parts:
            state = self._scene.state(item)
            if state in _CHANGES and state != self._settled[item.index]:
                self._settled[item.index] = state
                self._record(CompletedAction(verb=_CHANGES[state], subject=item.noun))

    def _record_moves(self) -> None:
        """Record which objects are being carried or pushed."""
        grip, sliding = self._phases.grip, self._phases.sliding
        if grip is not None and grip.moved:
            self._moving[grip.item.index] = Verb.PUT if grip.lifted else Verb.PUSHED
        elif sliding is not None:
            self._moving[sliding.index] = Verb.PUSHED

    def _record_placements(self, *, solved: bool) -> None:
        """Complete moves of objects that have come to rest; at success, of all."""
        for index, verb in list(self._moving.items()):
            item = self._scene.items[index]
            free = not self._holds(item) and index not in self._phases.touch.any
            if solved or (free and self._phases.travelled(item) < _AT_REST):
                self._record_placement(item, verb)

    def _record_placement(self, item: Item, verb: Verb) -> None:
        place = self._places.get(self._scene.location(item))
        if place is None:
            return
        del self._moving[item.index]
        if verb is Verb.PUT or self._is_at_target(item):
            self._record(CompletedAction(verb=verb, subject=item.noun, place=place))

    def _record(self, action: CompletedAction) -> None:
        """Add a completed action; it replaces the same action, or an earlier move of the same object."""
        again = [key for key in self._done if key[1] == action.subject and _replaces(action.verb, key[0])]
        for key in again:
            del self._done[key]
        self._done[action.verb, action.subject] = action


def _replaces(new: Verb, old: Verb) -> bool:
    return new == old or (new.moves and old.moves)
