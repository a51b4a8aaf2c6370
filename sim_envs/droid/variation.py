"""Variation of camera, lights, table and distractors from (task, init id, seed, strength)."""

import copy
import itertools
import math
from collections.abc import Mapping, Sequence

import mujoco
import numpy as np
from jaxtyping import Float64

from sim_envs.droid.control import EXTERIOR_CAMERA
from sim_envs.droid.shapes import BoxShape, CylinderShape, Shape, SphereShape, about_z
from sim_envs.droid.task_file import ObjectConfig, Placement, TaskConfig, draw, random_stream

Color = tuple[float, float, float]

CAMERA_SHIFT = 0.015  # largest shift (m) of the exterior camera at strength 1
CAMERA_TURN = math.radians(1.5)  # largest rotation (rad) of the exterior camera about any axis
LIGHT_TURN = math.radians(5)  # largest rotation (rad) of a light's direction
BRIGHTNESS = 0.15  # largest relative change of a light's brightness
WARMTH: Color = (0.03, 0.0, -0.045)
"""Largest relative change of red, green and blue, from neutral to warm light."""

TABLE_COLOR: Color = (0.66, 0.56, 0.44)  # colour of the table without variation
_TABLE_COLORS: Sequence[Color] = (
    (0.76, 0.68, 0.56),  # maple
    (0.71, 0.60, 0.47),  # birch
    (0.50, 0.39, 0.29),  # walnut
    (0.68, 0.68, 0.67),  # light grey
    (0.52, 0.53, 0.54),  # grey
)
_COLORS: Sequence[Color] = (
    (0.88, 0.87, 0.84),
    (0.55, 0.56, 0.58),
    (0.22, 0.24, 0.27),
    (0.20, 0.45, 0.42),
    (0.36, 0.50, 0.24),
    (0.80, 0.52, 0.25),
    (0.50, 0.32, 0.50),
    (0.60, 0.42, 0.28),
)
_UNLIKE = 0.25  # minimal RGB distance of a distractor's colour from those of the task's objects

MAX_DISTRACTORS = 2
_X, _Y = (0.28, 0.84), (-0.50, 0.46)  # where (m) distractors may stand: on the table, and in the picture
_BACK, _SIDE = 0.62, 0.26  # they also have to be beyond this x or this far from the middle, m
_CLEARANCE = 0.08  # minimal distance (m) from objects, and from straight ways between them and the gripper
_APART = 0.06  # minimal distance (m) between two distractors
_START = np.array([0.36, 0.0])  # initial horizontal position of the gripper, m

_TRIES = 200


def _distractor(shape: Shape, mass: float) -> ObjectConfig:
    return ObjectConfig(shape=shape, mass=mass, x=(0.5, 0.5), y=(0.0, 0.0))  # until an episode places it


_DISTRACTORS: Mapping[str, ObjectConfig] = {
    "distractor_sponge": _distractor(BoxShape(kind="box", size=(0.09, 0.06, 0.03)), 0.04),
    "distractor_carton": _distractor(BoxShape(kind="box", size=(0.05, 0.05, 0.07)), 0.08),
    "distractor_jar": _distractor(CylinderShape(kind="cylinder", radius=0.03, height=0.055), 0.15),
    "distractor_coaster": _distractor(CylinderShape(kind="cylinder", radius=0.045, height=0.01), 0.06),
    "distractor_ball": _distractor(SphereShape(kind="sphere", radius=0.03), 0.05),
}
"""Small objects that are irrelevant to the task."""


def distractors(task: TaskConfig) -> Mapping[str, ObjectConfig]:
    """The possible distractors of a task, by name: those whose kind of shape no task object has."""
    if not task.distractors:
        return {}
    kinds = {obj.shape.kind for obj in task.objects.values()}
    return {name: each for name, each in _DISTRACTORS.items() if each.shape.kind not in kinds}


def place_distractors(
    task: TaskConfig, objects: Mapping[str, Placement], count: int, draws: np.random.Generator
) -> Mapping[str, Placement]:
    """Sample placements of up to `count` distractors where there is room, away from the task's objects."""
    pool = distractors(task)
    centers = {name: np.array([place.x, place.y]) for name, place in objects.items()}
    paths = list(itertools.combinations([_START, *centers.values()], 2))
    standing: dict[str, Placement] = {}
    for number in draws.permutation(len(pool))[:count]:
        name = list(pool)[number]
        radius = pool[name].footprint
        for _ in range(_TRIES):
            place = Placement(x=draws.uniform(*_X), y=draws.uniform(*_Y), yaw=draws.uniform(-np.pi, np.pi))
            at = np.array([place.x, place.y])
            aside = place.x > _BACK or abs(place.y) > _SIDE
            apart = all(
                math.dist(at, (each.x, each.y)) > radius + pool[other].footprint + _APART
                for other, each in standing.items()
            )
            clear = all(
                np.linalg.norm(at - center) > radius + task.objects[other].footprint + _CLEARANCE
                for other, center in centers.items()
            ) and all(_distance(at, *path) > radius + _CLEARANCE for path in paths)
            if aside and apart and clear:
                standing[name] = place
                break
    return standing


def pick_colors(task: TaskConfig, count: int, draws: np.random.Generator) -> Sequence[Color]:
    """Sample up to `count` colours that are unlike those of the task's objects."""
    taken = [np.array(obj.color) for obj in task.objects.values()]

    def unlike(color: Color) -> float:
        return min(float(np.linalg.norm(np.array(color) - each)) for each in taken)

    enough = max(sum(unlike(color) > _UNLIKE for color in _COLORS), MAX_DISTRACTORS)
    colors = sorted(_COLORS, key=unlike, reverse=True)[:enough]
    return [colors[number] for number in draws.permutation(len(colors))][:count]


def _distance(
    at: Float64[np.ndarray, " 2"], start: Float64[np.ndarray, " 2"], end: Float64[np.ndarray, " 2"]
) -> float:
    """Distance of a point from a line segment."""
    along = end - start
    share = np.clip((at - start) @ along / max(along @ along, 1e-12), 0, 1)
    return float(np.linalg.norm(at - start - share * along))


_HIDDEN_GROUP = 5  # group of hidden geoms, which the cameras do not draw


class VariedScene:
    """A scene with variation between episodes."""

    def __init__(self, task: TaskConfig, model: mujoco.MjModel, *, strength: float) -> None:
        """Vary a scene built with `varies`, relative to its current values; `strength` is at most 1."""
        self._task, self._model, self._strength = task, model, strength
        self._plain = copy.copy(model)

    def apply(self, data: mujoco.MjData, *, init_id: int, seed: int) -> None:
        """Vary the scene for an episode; the task's objects are not affected.

        The strength scales everything but the distractors' placements and colours. The variation of a stored
        initial state is the same for every seed. `data` has just been reset; call `mj_forward` afterwards.
        """
        task, model, plain, strength = self._task, self._model, self._plain, self._strength
        draws = random_stream(task, init_id=init_id, seed=seed, purpose=1)

        def spread(*shape: int) -> Float64[np.ndarray, "..."]:
            return strength * draws.uniform(-1, 1, shape)

        radius = math.sqrt(3)  # of the cube that is sampled from
        shift, turn = CAMERA_SHIFT / radius * spread(3), CAMERA_TURN / radius * spread(3)
        camera = model.camera(EXTERIOR_CAMERA).id
        model.cam_pos[camera] = plain.cam_pos[camera] + shift
        mujoco.mju_mulQuat(model.cam_quat[camera], _quaternion(turn), plain.cam_quat[camera])
        for light, light_turn in enumerate(LIGHT_TURN / radius * spread(model.nlight, 3)):
            mujoco.mju_rotVecQuat(model.light_dir[light], plain.light_dir[light], _quaternion(light_turn))
        brightness = 1 + BRIGHTNESS * spread(model.nlight + 1)  # of the lights, and last of the headlight
        warmth = 1 + spread(1) * np.array(WARMTH)
        model.light_diffuse[:] = plain.light_diffuse * brightness[:-1, None] * warmth
        model.vis.headlight.ambient = plain.vis.headlight.ambient * brightness[-1] * warmth
        model.vis.headlight.diffuse = plain.vis.headlight.diffuse * brightness[-1] * warmth
        wood, other = np.array(TABLE_COLOR), np.array(_TABLE_COLORS)[draws.integers(len(_TABLE_COLORS))]
        table = int(model.geom("table").matid[0])
        tint = plain.mat_rgba[table, :3] / TABLE_COLOR
        model.mat_rgba[table, :3] = tint * (wood + strength * draws.uniform() * (other - wood))
        count = int((MAX_DISTRACTORS + 1) * strength * draws.uniform())
        places = place_distractors(task, draw(task, init_id=init_id, seed=seed), count, draws)
        colors = dict(zip(places, pick_colors(task, len(places), draws), strict=True))
        for name in distractors(task):
            body, shown = model.body(name).id, name in places
            first = int(model.body_geomadr[body])
            geoms = slice(first, first + int(model.body_geomnum[body]))
            model.geom_contype[geoms] = plain.geom_contype[geoms] * shown
            model.geom_conaffinity[geoms] = plain.geom_conaffinity[geoms] * shown
            model.geom_group[geoms] = plain.geom_group[geoms] if shown else _HIDDEN_GROUP
            model.body_gravcomp[body] = 0 if shown else 1
            if shown:
                place = places[name]
                model.geom_rgba[geoms, :3] = colors[name]
                data.joint(name).qpos[:] = [place.x, place.y, 0.0, *about_z(place.yaw)]


def _quaternion(turn: Float64[np.ndarray, " 3"]) -> Float64[np.ndarray, " 4"]:
    """The quaternion of a rotation vector."""
    angle = float(np.linalg.norm(turn))
    quaternion = np.zeros(4)
    mujoco.mju_axisAngle2Quat(quaternion, turn / angle if angle else np.array([1.0, 0, 0]), angle)
    return quaternion
