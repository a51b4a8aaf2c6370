"""Tracks phase and ground truth of an episode: updated after every control step, read at queries."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from contracts.nouns import HOUSEHOLD
from contracts.truth import HELD, CompletedAction, Fact, Memory, Narration, Phase, Truth, Verb
from sim_envs.scripted.poses import Vector3
from sim_envs.truth.scene import GoalTarget, Item, RawState, TruthScene
from sim_envs.truth.textual_memory import GoalTracker

CONFIRM_S = 0.15  # a change of phase, or a lost grasp, must last this long to count
HOLD_S = 0.3  # shortest duration of a phase
_LOOK_AHEAD_S, _LOOK_BACK_S = 0.4, 0.25
_QUERY_EVERY = 3
_LIFTED, _MOVED = 0.015, 0.02  # thresholds since grasping: lift, and horizontal motion (m)
_SLIDING, _TURNING = 0.005, 0.03  # within `_LOOK_BACK_S`: sliding (m), and fraction of a joint's travel
_OVER = 0.03  # distance (m) from the target within which an object is being placed
_LEFT_BEHIND = 0.12  # distance (m) from a released object at which the retreat ends
_APPROACHED = 0.01  # distance (m) by which the gripper approaches it again, which ends the retreat earlier


class Debouncer:
    """Suppresses changes that do not last, and changes in quick succession."""

    def __init__(self, value: Narration, *, control_hz: float) -> None:
        self.value = value
        self._confirm, self._hold = round(CONFIRM_S * control_hz), round(HOLD_S * control_hz)
        self._candidate, self._repeats, self._since_change = value, 0, self._hold

    def update(self, value: Narration) -> Narration:
        """Process the value of one more control step; `done` passes at once."""
        self._repeats = self._repeats + 1 if value == self._candidate else 1
        self._candidate = value
        self._since_change += 1
        confirmed = self._repeats >= self._confirm and self._since_change > self._hold
        if value != self.value and (confirmed or value.phase is Phase.DONE):
            self.value, self._since_change = value, 1
        return self.value


class PhaseTracker:
    """Tracks the phase of one episode, one control step at a time."""

    def __init__(self, scene: TruthScene, *, control_hz: float) -> None:
        self._scene = scene
        self._lost_after = round(CONFIRM_S * control_hz)
        self._past: deque[RawState] = deque(maxlen=round(_LOOK_BACK_S * control_hz) + 1)
        self._touches: deque[frozenset[int]] = deque(maxlen=self._past.maxlen)
        self._loose_steps = 0
        self._released: Item | None = None
        self._released_at = 0.0
        self._approached: Item | None = None
        self._queries = 0
        self.held: Item | None = None  # the grasped object
        self.lifted = self.moved = False  # since it was grasped
        self._grasped_at = np.zeros(3)
        self.touched: frozenset[int] = frozenset()  # indices of the items that the gripper touches
        self._between: frozenset[int] = frozenset()
        self.sliding: Item | None = None  # the object that is being pushed, grasped or not

    def update(self, moment: RawState, missing: Sequence[GoalTarget]) -> Narration:
        """The phase at one more control step, before debouncing, given the unsatisfied goals."""
        self.touched, self._between = self._scene.touch(moment)
        self._past.append(moment)
        self._touches.append(self.touched)
        self.sliding = None
        self._follow_grip()
        if not missing:
            return Narration(phase=Phase.DONE)
        return (
            self._while_holding(missing)
            or self._at_part(missing)
            or self._while_touching(missing)
            or self._in_free_space(missing)
        )

    def travelled(self, item: Item) -> float:
        """Distance (m) that an object has moved within `_LOOK_BACK_S`."""
        now, before = self._past[-1].positions[item.index], self._past[0].positions[item.index]
        return _length(now - before)

    def _follow_grip(self) -> None:
        if self.held is not None:
            index = self.held.index
            self._loose_steps = 0 if index in self._between else self._loose_steps + 1
            if self._loose_steps < self._lost_after and index in self.touched:
                way = self._past[-1].positions[index] - self._grasped_at
                self.lifted = self.lifted or way[2] > _LIFTED
                self.moved = self.moved or way[2] > _LIFTED or math.hypot(way[0], way[1]) > _MOVED
                return
            self._release(self.held)
        things = (item for item in self._scene.things if item.index in self._between and not item.too_wide)
        self.held, self.lifted, self.moved, self._loose_steps = next(things, None), False, False, 0
        if self.held is not None:
            self._grasped_at = self._past[-1].positions[self.held.index]

    def _release(self, item: Item) -> None:
        self._released, self._released_at = item, self._gap(item)

    def _gap(self, item: Item) -> float:
        return _length(self._past[-1].positions[item.index] - self._past[-1].gripper)

    def _while_holding(self, missing: Sequence[GoalTarget]) -> Narration | None:
        if self.held is None:
            return None
        item, target = self.held, self._target(self.held, missing)
        if not self.moved:
            return Narration(phase=Phase.GRASP, object=item.noun)
        if not self.lifted:
            self.sliding = item
            return _moving(Phase.PUSH, item, target)
        near = target is not None and self._scene.is_near(target, self._past[-1].positions[item.index], _OVER)
        return _moving(Phase.PLACE if near else Phase.CARRY, item, target)

    def _target(self, item: Item, missing: Sequence[GoalTarget]) -> GoalTarget | None:
        """The target of an object: of its first unsatisfied goal, else of its first goal."""
        return next(
            (target for target in (*missing, *self._scene.targets) if target.item is item and target.place),
            None,
        )

    def _at_part(self, missing: Sequence[GoalTarget]) -> Narration | None:
        """The phase while touching a part: by its motion, else by its goal."""
        for number, item in enumerate(self._scene.parts):
            if item.index not in self.touched:
                continue
            joint = item.articulation
            assert joint is not None
            way = (self._past[-1].joints[number] - self._past[0].joints[number]) / (joint.end - joint.start)
            if abs(way) >= _TURNING:
                there, back = (Phase.TURN_ON, Phase.TURN_OFF) if joint.switches else (Phase.OPEN, Phase.CLOSE)
                phase = there if way > 0 else back
            else:
                phases = (
                    target.wanted if target.item is item else Phase.OPEN
                    for target in missing
                    if item in (target.item, target.gate)
                )
                phase = next(phases, None)
            if phase is not None:
                self._release(item)
                return Narration(phase=phase, object=item.noun)
        return None

    def _while_touching(self, missing: Sequence[GoalTarget]) -> Narration | None:
        """The phase while touching an object without grasping it: retreat, push, or grasp."""
        for item in self._scene.things if self.touched else ():
            if item.index not in self.touched:
                continue
            if item is self._released:
                return Narration(phase=Phase.RETREAT, object=item.noun)
            wanted = any(target.item is item for target in missing)
            moments = zip(self._past, self._touches, strict=True)
            first = next(moment for moment, touch in moments if item.index in touch)  # since it was touched
            pushed = _length(self._past[-1].positions[item.index] - first.positions[item.index])
            if pushed > _SLIDING or (item.too_wide and wanted):
                self.sliding = item
                return _moving(Phase.PUSH, item, self._target(item, missing))
            if wanted:
                return Narration(phase=Phase.GRASP, object=item.noun)
        return None

    def _in_free_space(self, missing: Sequence[GoalTarget]) -> Narration:
        """The phase while touching nothing: retreat or approach."""
        if self._released is not None:
            gap = self._gap(self._released)
            if self._released_at - _APPROACHED < gap < self._released_at + _LEFT_BEHIND:
                return Narration(phase=Phase.RETREAT, object=self._released.noun)
            self._released = None
        wanted = [target.item for target in missing]
        wanted += [
            target.gate for target in missing if target.gate and self._scene.state(target.gate) != "open"
        ]
        if len(wanted) == 1:
            return Narration(phase=Phase.APPROACH, object=wanted[0].noun)
        # What the gripper is heading for is found only every few steps, since that is expensive.
        self._queries += 1
        if self._approached is None or self._approached not in wanted or self._queries % _QUERY_EVERY == 0:
            here, before = self._past[-1].gripper, self._past[0].gripper
            ahead = here + _LOOK_AHEAD_S / _LOOK_BACK_S * (here - before)
            self._approached = self._scene.nearest(wanted, ahead)
        return Narration(phase=Phase.APPROACH, object=self._approached.noun)


def _moving(phase: Phase, item: Item, target: GoalTarget | None) -> Narration:
    if target is None or (phase is Phase.CARRY and target.stays):
        return Narration(phase=phase, object=item.noun)
    return Narration(phase=phase, object=item.noun, target=target.place)


def _length(vector: Vector3) -> float:
    return math.sqrt(vector.dot(vector))


_DISPLACED = 0.05  # an object this far (m) from its initial position has been moved
_AT_REST = 0.002  # an object that moves less than this (m) in a quarter of a second is at rest
_MAX_WAITING = 8  # most control steps between two updates: fewer than it takes to open and close a drawer

_CHANGES = {"open": Verb.OPENED, "closed": Verb.CLOSED, "on": Verb.TURNED_ON, "off": Verb.TURNED_OFF}


ResultT = TypeVar("ResultT")


class EpisodeTruth:
    """Tracks one episode as `TruthTracker` does; a failure costs its truth, never the episode."""

    def __init__(self, scene: Callable[[], TruthScene], *, control_hz: float) -> None:
        """Start from the current state, after a reset. `scene` describes it, which may fail."""
        self._failure: Exception | None = None
        self._tracker = self._try(lambda: TruthTracker(scene(), control_hz=control_hz))

    def step(self, *, solved: bool) -> None:
        """See `TruthTracker`."""
        if (tracker := self._tracker) is not None:
            self._try(lambda: tracker.step(solved=solved))

    def start_here(self) -> None:
        """See `TruthTracker`."""
        if (tracker := self._tracker) is not None:
            self._try(tracker.start_here)

    def truth(self) -> Truth:
        """The ground truth at this step; raises what failed before, in this or in another method."""
        truth = None if self._tracker is None else self._try(self._tracker.truth)
        if truth is None:
            assert self._failure is not None
            raise self._failure.with_traceback(None)  # else every step would add to it
        return truth

    def _try(self, read: Callable[[], ResultT]) -> ResultT | None:
        try:
            return read()
        except Exception as error:  # noqa: BLE001 - truth grades texts, and decides nothing else
            self._failure, self._tracker = error, None
            return None


class TruthTracker:
    """Tracks one episode. Only reads the simulation."""

    def __init__(self, scene: TruthScene, *, control_hz: float) -> None:
        """Start from the scene's current state, after its reset; `step` is called at `control_hz`."""
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

    def start_here(self) -> None:
        """Take the current positions as the initial ones, while the world itself moves objects."""
        self._start = self._scene.capture().positions

    def truth(self) -> Truth:
        """The ground truth at this step."""
        self._catch_up(solved=False)
        # Those of the goals, and the most recently touched of other changed ones.
        shifts = np.linalg.norm(self._scene.capture().positions - self._start, axis=1)
        moved = {item.noun for item in self._scene.things if shifts[item.index] > _DISPLACED}
        changed = {subject for _, subject in self._done} | moved
        others = [item for item in self._scene.items if item.noun in changed - self._named]
        order = {index: rank for rank, index in enumerate(self._touched)}
        subjects = [*self._scene.named, *sorted(others, key=lambda item: order.get(item.index, -1))[-1:]]
        nouns = {item.noun for item in subjects}
        facts = frozenset(Fact(subject=item.noun, state=self._state(item)) for item in subjects)
        done = self._scene.completed()
        if done is None:
            done = [action for action in self._done.values() if action.subject in nouns]
        memory = Memory(done=tuple(done), facts=facts)
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
            for index in self._phases.touched:
                self._touched.pop(index, None)
                self._touched[index] = None
            held, sliding = self._phases.held, self._phases.sliding
            if held is not None and self._phases.moved:
                self._moving[held.index] = Verb.PUT if self._phases.lifted else Verb.PUSHED
            elif sliding is not None:
                self._moving[sliding.index] = Verb.PUSHED
        self._waiting.clear()
        for item in self._scene.parts:
            state = self._scene.state(item)
            if state in _CHANGES and state != self._settled[item.index]:
                self._settled[item.index] = state
                self._record(CompletedAction(verb=_CHANGES[state], subject=item.noun))
        self._record_placements(solved=solved)

    def _state(self, item: Item) -> str:
        if item.articulation is not None:
            return self._scene.state(item)
        where = self._scene.location(item)
        return HELD if item is self._phases.held and not self._is_at_target(item) else where

    def _is_at_target(self, item: Item) -> bool:
        targets = [target for target in self._scene.targets if target.item is item]
        return any(self._scene.satisfied(target) for target in targets)

    def _record_placements(self, *, solved: bool) -> None:
        """Complete moves of objects that have come to rest; at success, of all."""
        for index, verb in list(self._moving.items()):
            item = self._scene.items[index]
            free = item is not self._phases.held and index not in self._phases.touched
            if solved or (free and self._phases.travelled(item) < _AT_REST):
                place = self._places.get(self._scene.location(item))
                if place is None:
                    continue
                del self._moving[index]
                if verb is Verb.PUT or self._is_at_target(item):
                    self._record(CompletedAction(verb=verb, subject=item.noun, place=place))

    def _record(self, action: CompletedAction) -> None:
        """Add a completed action; it replaces the same action, or an earlier move of the same object."""
        for old, subject in list(self._done):
            if subject == action.subject and (old == action.verb or (old.moves and action.verb.moves)):
                del self._done[old, subject]
        self._done[action.verb, action.subject] = action
