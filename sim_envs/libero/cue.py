"""What only the first second shows: the marker of `cue`, and the objects below the covers of `hidden`."""

import functools
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

CUE_STEPS = 20  # control steps after which the marker is gone, and the covers are let go

MARKER = "floor_marker_region"  # site of the marker; the model of a task without one has none
_HALF_SIZE = (0.03, 0.03, 0.002)
_COLOR = (0.9, 0.1, 0.1, 1.0)
_DISTANCE = 0.085  # distance (m) between the middles of the marker and of its object
_AROUND = np.arange(8) * np.pi / 4

COVER = "cover"  # category of the covers, whose model is ours
COVERS = ("cover_1", "cover_2", "cover_3")  # the covers, from left to right
_COVER_MODEL = Path(__file__).parent / "memory" / "cover.xml"
HIDDEN_OBJECTS = ("cream_cheese_1", "butter_1", "chocolate_pudding_1")  # below them; the first is asked for
_PLATE = "plate_1"
_HELD_AT = 0.16  # height (m) at which the covers are held above the table: the camera sees what is below
_FALL_STEPS = 10  # control steps in which they fall and come to rest
_MOVED = 0.01  # a cover this far (m) from its object has been moved


class Cue:
    """What has to be remembered in one episode."""

    steps_left = CUE_STEPS  # control steps for which it is still visible
    hidden: str | None = None  # the object that is hidden afterwards, if any
    failed = False  # whether the episode has failed for good

    def step(self) -> None:
        """Count one control step."""
        self.steps_left = max(0, self.steps_left - 1)

    def hold(self) -> None:
        """Hold what the world holds, after every physics step."""


class Marker(Cue):
    """A marker that lies beside one object. It changes what is seen, not what moves."""

    def __init__(self, env: Any, init_id: int) -> None:
        """Choose the object in turn by initial state, make it the goal's, and lay the marker beside it."""
        model, data = env.sim.model._model, env.sim.data._data
        region = env.parsed_problem["goal_state"][0][2]
        basket = region.removesuffix("_contain_region")
        objects = [name for name in env.objects_dict if name != basket]
        marked = objects[init_id % len(objects)]
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
        mujoco.mj_kinematics(model, data)  # to be where it is in the first picture, even if nothing settles

    def step(self) -> None:
        """As in the base class; the last step removes the marker."""
        super().step()
        if not self.steps_left:
            self._model.site_rgba[self._site, 3] = 0.0


class Covers(Cue):
    """Covers that are held above three objects, and then let go. Moving a wrong one fails the episode."""

    steps_left = CUE_STEPS + _FALL_STEPS

    def __init__(self, env: Any, init_id: int) -> None:
        """Let the objects trade places in turn by initial state; the cover of the first is the goal's."""
        data = env.sim.data._data

        def joint(name: str) -> Any:
            return data.joint(env.objects_dict[name].joints[-1])

        spots = sorted((joint(name).qpos[:2].copy() for name in HIDDEN_OBJECTS), key=lambda spot: spot[1])
        for number, name in enumerate(HIDDEN_OBJECTS):
            joint(name).qpos[:2] = spots[(number + init_id) % len(spots)]
        wanted = init_id % len(spots)
        self.hidden = HIDDEN_OBJECTS[0]
        env.parsed_problem["goal_state"] = [["on", COVERS[wanted], _PLATE]]
        height = env.workspace_offset[2]
        self._covers = [
            (joint(name), np.array([*spot, height])) for name, spot in zip(COVERS, spots, strict=True)
        ]
        self._wrong = [cover for number, cover in enumerate(self._covers) if number != wanted]
        self.hold()
        mujoco.mj_forward(env.sim.model._model, data)

    def hold(self) -> None:
        """Hold the covers in the air while the objects are shown."""
        if self.steps_left > _FALL_STEPS:
            for joint, home in self._covers:
                joint.qpos = [*home[:2], home[2] + _HELD_AT, 1, 0, 0, 0]
                joint.qvel = 0

    def step(self) -> None:
        """As in the base class; afterwards, a wrong cover that has been moved fails the episode."""
        super().step()
        if not self.steps_left:
            away = [np.linalg.norm(joint.qpos[:3] - home) for joint, home in self._wrong]
            self.failed = self.failed or bool(max(away) > _MOVED)


def find_cue(env: Any, init_id: int) -> Cue | None:
    """What an episode of LIBERO's environment, reset, shows only at its beginning; None for most tasks."""
    if MARKER in env.object_sites_dict:
        return Marker(env, init_id)
    return Covers(env, init_id) if COVERS[0] in env.objects_dict else None


@functools.cache
def register_cover() -> None:
    """Make LIBERO know the model of a cover, which no asset tree has."""
    from libero.libero.envs.base_object import register_object
    from robosuite.models.objects import MujocoXMLObject

    class Cover(MujocoXMLObject):
        rotation, rotation_axis = (0.0, 0.0), "z"
        category_name = COVER

        def __init__(self, name: str) -> None:
            joints = [{"type": "free", "damping": "0.0005"}]
            super().__init__(str(_COVER_MODEL), name=name, joints=joints)
            self.object_properties = {"vis_site_names": {}}

    register_object(Cover)
