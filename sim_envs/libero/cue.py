"""The marker of the task `cue`: it lies beside one object for the first second of an episode."""

from typing import Any

import numpy as np

CUE_STEPS = 20
"""Control steps after which the marker is gone."""

MARKER = "floor_marker_region"
"""Site of the marker; the model of a task without a cue has none."""

_HALF_SIZE = (0.03, 0.03, 0.002)
_COLOR = (0.9, 0.1, 0.1, 1.0)
_DISTANCE = 0.085
"""Distance (m) between the middles of the marker and of its object."""

_AROUND = np.arange(8) * np.pi / 4


class Cue:
    """The marker of one episode. It changes what is seen, not what moves.

    Attributes:
        steps_left: Control steps for which the marker is still visible.
    """

    def __init__(self, env: Any, init_id: int) -> None:
        """Choose the object in turn by initial state, make it the goal's, and lay the marker beside it.

        Args:
            env: LIBERO's environment, reset.
            init_id: The initial state.
        """
        model, data = env.sim.model._model, env.sim.data._data
        region = env.parsed_problem["goal_state"][0][2]
        basket = region.removesuffix("_contain_region")
        things = [name for name in env.objects_dict if name != basket]
        marked = things[init_id % len(things)]
        env.parsed_problem["goal_state"] = [["in", marked, region]]
        places = {name: data.xpos[env.obj_body_id[name]][:2] for name in env.objects_dict}
        others = np.array([place for name, place in places.items() if name != marked])
        rounds = places[marked] + _DISTANCE * np.stack([np.cos(_AROUND), np.sin(_AROUND)], axis=1)
        clearances = np.linalg.norm(rounds[:, None] - others, axis=2).min(axis=1)
        spot = np.array([*rounds[clearances.argmax()], _HALF_SIZE[2]])
        self._model, self._site = model, model.site(MARKER).id
        body = model.site_bodyid[self._site]
        model.site_pos[self._site] = data.xmat[body].reshape(3, 3).T @ (spot - data.xpos[body])
        model.site_size[self._site] = _HALF_SIZE
        model.site_rgba[self._site] = _COLOR
        self.steps_left = CUE_STEPS

    def step(self) -> None:
        """Count one control step; the last one removes the marker."""
        self.steps_left = max(0, self.steps_left - 1)
        if not self.steps_left:
            self._model.site_rgba[self._site, 3] = 0.0
