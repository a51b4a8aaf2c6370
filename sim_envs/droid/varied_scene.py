"""Applies the variation of an episode to a compiled scene, replacing that of the previous episode."""

import mujoco
import numpy as np
from jaxtyping import Float64

from sim_envs.droid.pieces import about_z
from sim_envs.droid.scene import EXTERIOR_CAMERA
from sim_envs.droid.task_file import TaskConfig
from sim_envs.droid.variation import TABLE_COLOR, distractors, draw_variation

_HIDDEN_GROUP = 5
"""Group of hidden geoms, which the cameras do not draw."""


class VariedScene:
    """A scene with variation between episodes."""

    def __init__(self, task: TaskConfig, model: mujoco.MjModel, *, strength: float) -> None:
        """Vary a scene built with `varies`, relative to its current values; `strength` is at most 1."""
        self._task, self._model, self._strength = task, model, strength
        self._camera = model.camera(EXTERIOR_CAMERA).id
        self._pos = model.cam_pos[self._camera].copy()
        self._quat = model.cam_quat[self._camera].copy()
        self._light_dir, self._light_diffuse = model.light_dir.copy(), model.light_diffuse.copy()
        self._ambient = model.vis.headlight.ambient.copy()
        self._diffuse = model.vis.headlight.diffuse.copy()
        self._table = int(model.geom("table").matid[0])
        self._tint = model.mat_rgba[self._table, :3] / TABLE_COLOR
        self._contype, self._conaffinity = model.geom_contype.copy(), model.geom_conaffinity.copy()
        self._group = model.geom_group.copy()
        self._bodies = {name: model.body(name).id for name in distractors(task)}

    def apply(self, data: mujoco.MjData, *, init_id: int, seed: int) -> None:
        """Vary the scene for an episode. `data` has just been reset; call `mj_forward` afterwards."""
        model = self._model
        varied = draw_variation(
            self._task, init_id=init_id, seed=seed, strength=self._strength, lights=model.nlight
        )
        model.cam_pos[self._camera] = self._pos + varied.camera_shift
        mujoco.mju_mulQuat(model.cam_quat[self._camera], _quaternion(varied.camera_turn), self._quat)
        for light, turn in enumerate(varied.light_turns):
            mujoco.mju_rotVecQuat(model.light_dir[light], self._light_dir[light], _quaternion(turn))
        model.light_diffuse[:] = self._light_diffuse * varied.brightness[:-1, None] * varied.warmth
        model.vis.headlight.ambient = self._ambient * varied.brightness[-1] * varied.warmth
        model.vis.headlight.diffuse = self._diffuse * varied.brightness[-1] * varied.warmth
        model.mat_rgba[self._table, :3] = self._tint * varied.table
        for name in self._bodies:
            self._hide(name)
        for name, place in varied.places.items():
            self._show(name, varied.colors[name])
            data.joint(name).qpos[:] = [place.x, place.y, 0.0, *about_z(place.yaw)]

    def _hide(self, name: str) -> None:
        """Make a distractor weightless, invisible and free of collisions."""
        geoms = self._geoms(name)
        self._model.geom_contype[geoms] = self._model.geom_conaffinity[geoms] = 0
        self._model.geom_group[geoms] = _HIDDEN_GROUP
        self._model.body_gravcomp[self._bodies[name]] = 1

    def _show(self, name: str, color: tuple[float, float, float]) -> None:
        geoms = self._geoms(name)
        self._model.geom_contype[geoms] = self._contype[geoms]
        self._model.geom_conaffinity[geoms] = self._conaffinity[geoms]
        self._model.geom_group[geoms] = self._group[geoms]
        self._model.geom_rgba[geoms, :3] = color
        self._model.body_gravcomp[self._bodies[name]] = 0

    def _geoms(self, name: str) -> slice:
        body = self._bodies[name]
        first = int(self._model.body_geomadr[body])
        return slice(first, first + int(self._model.body_geomnum[body]))


def _quaternion(turn: Float64[np.ndarray, " 3"]) -> Float64[np.ndarray, " 4"]:
    """The quaternion of a rotation vector."""
    angle = float(np.linalg.norm(turn))
    quaternion = np.zeros(4)
    mujoco.mju_axisAngle2Quat(quaternion, turn / angle if angle else np.array([1.0, 0, 0]), angle)
    return quaternion
