"""A world without physics, for tests and for writing policies: solved after a given number of steps."""

import dataclasses

import numpy as np
from jaxtyping import Float64

from sim_envs.truth.account import HELD, Deed, Fact, Memory, Narration, Phase, Truth, Verb
from sim_envs.world import Advance, Observation

_CLOSE, _LIFT, _LOWER, _DONE = 3, 6, 9, 12
"""Control steps at which the story that the fake world tells goes on."""


@dataclasses.dataclass
class FakeWorld:
    """Counts steps; its pictures and its state are functions of (init_id, seed, steps taken, actions).

    Attributes:
        success_at: Control steps after which the task counts as solved; never if None.
        fails_at: Control steps after which the simulator raises; never if None.
        image_size: Height and width of its pictures, pixels.
    """

    success_at: int | None = None
    fails_at: int | None = None
    image_size: int = 8
    language: str = "put the black bowl on the plate"
    steps: int = 0
    closed: bool = False
    _state: Float64[np.ndarray, "8"] = dataclasses.field(default_factory=lambda: np.zeros(8))
    _tint: int = 0

    def reset(self, *, init_id: int, seed: int, settle_steps: int) -> None:
        """Begin again. Settling changes nothing here."""
        self.steps = 0
        self._tint = (init_id * 16 + seed) % 256
        self._state = np.full(8, settle_steps / 100.0)

    def advance(self, actions: Float64[np.ndarray, "steps action"]) -> Advance:
        """Add every action to the state, one step each, up to success."""
        for taken, action in enumerate(actions, start=1):
            self.steps += 1
            if self.steps == self.fails_at:
                raise RuntimeError(f"the fake simulator fails at step {self.steps}, as it was told to")
            self._state[:7] += action
            if self.steps == self.success_at:
                return Advance(steps=taken, success=True)
        return Advance(steps=len(actions), success=False)

    def observe(self) -> Observation:
        """Two flat pictures whose grey level moves with time."""
        level = np.uint8((self._tint + self.steps) % 256)
        image = np.full((self.image_size, self.image_size, 3), level, dtype=np.uint8)
        return Observation(
            images={"image": image, "wrist_image": image}, state=self._state.copy(), language=self.language
        )

    def truth(self) -> Truth:
        """The story of a bowl that is put on a plate, told by the steps taken alone."""
        put = Deed(verb=Verb.PUT, subject="black bowl", place="plate")
        if self.steps >= _DONE or self.steps == self.success_at:
            memory = Memory(done=(put,), facts=frozenset([put.outcome]))
            return Truth(narration=Narration(phase=Phase.DONE), memory=memory)
        state = "on the table" if self.steps < _LIFT else HELD
        memory = Memory(facts=frozenset([Fact(subject=put.subject, state=state)]))
        return Truth(narration=_narration(self.steps), memory=memory)

    def progress(self) -> float:
        """The share of the steps to success that were taken; 0 if it never comes."""
        return 0.0 if self.success_at is None else min(1.0, self.steps / self.success_at)

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True


def _narration(steps: int) -> Narration:
    if steps < _LIFT:
        return Narration(phase=Phase.APPROACH if steps < _CLOSE else Phase.GRASP, object="black bowl")
    phase = Phase.CARRY if steps < _LOWER else Phase.PLACE
    return Narration(phase=phase, object="black bowl", target="plate")
