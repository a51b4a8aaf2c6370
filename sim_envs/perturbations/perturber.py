"""The perturbations of a world's episodes. Imports no simulator."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from contracts.hashing import seed_of
from contracts.latency import steps_in
from contracts.perturbation import UNPERTURBED, Perturbation
from sim_envs.perturbations.dimension import Picture, find_dimension

if TYPE_CHECKING:
    from sim_envs.perturbations.scene import Scene

_DRAWS, _DRAWS_EACH = 100, 20  # most draws of a perturbation; of a severity, if a lower one will do


class Perturber:
    """Perturbs the episodes of a world: `restore`, then `begin`, then a `step` per control step."""

    def __init__(self, control_hz: float) -> None:
        """Begin without perturbations."""
        self.perturbations = UNPERTURBED  # of the next episode
        self.redraws = 0  # draws of this episode that left the task unsolvable, each replaced by the next
        self._control_hz, self._digest, self._step = control_hz, 0, 0
        self._scene: Scene | None = None
        self._saved: dict[str, np.ndarray] = {}
        self._later: list[Perturbation] = []
        self._sensors: list[Perturbation] = []

    def restore(self) -> None:
        """Undo what the last episode changed in the model; before the world resets it."""
        if self._scene is not None:
            self._scene.look(self._saved)
        self._scene, self._saved, self.redraws = None, {}, 0
        self._later, self._sensors = [], []

    def begin(self, scene: "Callable[[], Scene] | None", digest: int) -> bool:
        """Apply what the episode starts with; the control's key gives the `digest`.

        None is the scene of a world that is not MuJoCo's. Returns whether the scene has changed.
        """
        self._digest, self._step = digest, 0
        parts = [part for part in self.perturbations if find_dimension(part.dimension).medium != "words"]
        if scene is not None and any(find_dimension(part.dimension).medium == "scene" for part in parts):
            self._scene = scene()
            self._saved = self._scene.looks()
        order = sorted(parts, key=lambda part: not find_dimension(part.dimension).moves)
        self._later = [part for part in order if part.at_s]
        return self._changed_by([part for part in order if not part.at_s])

    def step(self) -> bool:
        """One control step of the episode has passed. Returns whether a change of the scene came with it."""
        self._step += 1
        due = [part for part in self._later if steps_in(1e3 * part.at_s, self._control_hz) <= self._step]
        self._later = [part for part in self._later if part not in due]
        return self._changed_by(due)

    def without(self, names: Mapping[str, object]) -> None:
        """Do not perturb these objects from now on."""
        if self._scene is not None:
            objects = self._scene.objects
            self._scene.objects = {name: body for name, body in objects.items() if name not in names}

    def picture(self, picture: Picture) -> Picture:
        """A picture as the sensor gives it."""
        for part in self._sensors:
            dimension = find_dimension(part.dimension)
            picture = dimension.corrupt(picture, part.severity, digest=self._digest, step=self._step)
        return picture

    @contextlib.contextmanager
    def control_view(self) -> Iterator[None]:
        """Restore the control's looks meanwhile, so that objects move as in the control."""
        if self._scene is None:
            yield
            return
        now = self._scene.looks()
        self._scene.look(self._saved)
        yield
        self._scene.look(now)

    def _changed_by(self, due: Sequence[Perturbation]) -> bool:
        for part in due:
            self._apply(part)
        return any(find_dimension(part.dimension).medium == "scene" for part in due)

    def _apply(self, part: Perturbation) -> None:
        dimension, scene = find_dimension(part.dimension), self._scene
        if dimension.medium == "pictures":
            self._sensors.append(part)
            return
        assert scene is not None, "the world gives a scene, or its suite refuses the dimension"
        looks, state = scene.looks(), scene.places()
        severities, most = [part.severity], _DRAWS
        if dimension.falls_back:
            severities, most = range(part.severity, 0, -1), _DRAWS_EACH
        for severity, attempt in itertools.product(severities, range(most)):
            draws = np.random.default_rng([self._digest, seed_of(part.dimension), attempt])
            if dimension.change(scene, severity, draws):
                scene.light()
                return
            self.redraws += 1
            scene.look(looks)
            if dimension.moves:
                scene.place(state)
        tried = most * len(severities)
        raise RuntimeError(f"perturbation {part}: no draw of {tried} leaves the task solvable")
