"""Variation of camera, lights, table and distractors from (task, init id, seed, strength)."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import mujoco
import numpy as np
from jaxtyping import Float64

from sim_envs.droid.control import EXTERIOR_CAMERA
from sim_envs.droid.placement import Placement, draw, random_stream
from sim_envs.droid.shapes import BoxShape, CylinderShape, Shape, SphereShape, about_z, footprint
from sim_envs.droid.task_file import TaskConfig

Color = tuple[float, float, float]

CAMERA_SHIFT = 0.015
"""Largest shift (m) of the exterior camera at strength 1."""

CAMERA_TURN = math.radians(1.5)
"""Largest rotation (rad) of the exterior camera about any axis."""

LIGHT_TURN = math.radians(5)
"""Largest rotation (rad) of a light's direction."""

BRIGHTNESS = 0.15
"""Largest relative change of a light's brightness."""

WARMTH: Color = (0.03, 0.0, -0.045)
"""Largest relative change of red, green and blue, from neutral to warm light."""

TABLE_COLOR: Color = (0.66, 0.56, 0.44)
"""Colour of the table without variation."""

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
_UNLIKE = 0.25
"""Minimal RGB distance of a distractor's colour from those of the task's objects."""

MAX_DISTRACTORS = 2
_X, _Y = (0.28, 0.84), (-0.50, 0.46)
"""Ranges (m) in which distractors may stand: on the table, visible to the exterior camera."""

_BACK, _SIDE = 0.62, 0.26
"""They also have to be beyond this x or this far from the middle, m."""

_CLEARANCE = 0.08
"""Minimal distance (m) of a distractor from objects, and from straight paths between them and the gripper."""

_APART = 0.06
"""Minimal distance (m) between two distractors."""

_START = np.array([0.36, 0.0])
"""Initial horizontal position of the gripper, m."""

_TRIES = 200


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distractor:
    """A small object that is irrelevant to the task.

    Attributes:
        shape: The shape.
        mass: kg.
        friction: Sliding friction coefficient.
        color: Red, green, blue, until an episode has another.
        is_fixed: Whether it cannot be moved.
    """

    shape: Shape
    mass: float
    friction: float = 0.8
    color: Color = (0.6, 0.6, 0.6)
    is_fixed: bool = False


_DISTRACTORS: Mapping[str, Distractor] = {
    "distractor_sponge": Distractor(shape=BoxShape(kind="box", size=(0.09, 0.06, 0.03)), mass=0.04),
    "distractor_carton": Distractor(shape=BoxShape(kind="box", size=(0.05, 0.05, 0.07)), mass=0.08),
    "distractor_jar": Distractor(shape=CylinderShape(kind="cylinder", radius=0.03, height=0.055), mass=0.15),
    "distractor_coaster": Distractor(
        shape=CylinderShape(kind="cylinder", radius=0.045, height=0.01), mass=0.06
    ),
    "distractor_ball": Distractor(shape=SphereShape(kind="sphere", radius=0.03), mass=0.05),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variation:
    """Variation of one episode's scene.

    Attributes:
        camera_shift: Shift of the exterior camera, m.
        camera_turn: Rotation vector of the exterior camera, rad.
        light_turns: Rotation vectors of the lights' directions, rad.
        brightness: Factors of the lights, and last of the headlight.
        warmth: Factors of red, green and blue in all light.
        table: Colour of the table.
        places: Placements of the distractors that are present, by name.
        colors: Their colours.
    """

    camera_shift: Float64[np.ndarray, " 3"]
    camera_turn: Float64[np.ndarray, " 3"]
    light_turns: Float64[np.ndarray, "light 3"]
    brightness: Float64[np.ndarray, " light+1"]
    warmth: Float64[np.ndarray, " 3"]
    table: Float64[np.ndarray, " 3"]
    places: Mapping[str, Placement]
    colors: Mapping[str, Color]


def distractors(task: TaskConfig) -> Mapping[str, Distractor]:
    """The possible distractors of a task, by name: those whose kind of shape no task object has."""
    if not task.distractors:
        return {}
    kinds = {obj.shape.kind for obj in task.objects.values()}
    return {name: each for name, each in _DISTRACTORS.items() if each.shape.kind not in kinds}


def draw_variation(task: TaskConfig, *, init_id: int, seed: int, strength: float, lights: int) -> Variation:
    """Sample the variation of an episode. The task's objects are not affected.

    Args:
        task: The task.
        init_id: Initial state. The variation of a stored one is the same for every seed.
        seed: See `init_id`.
        strength: From 0 to 1; scales everything except the distractors' placements and colours.
        lights: Number of lights, without the headlight.
    """
    draws = random_stream(task, init_id=init_id, seed=seed, purpose=1)

    def spread(*shape: int) -> Float64[np.ndarray, "..."]:
        return strength * draws.uniform(-1, 1, shape)

    radius = math.sqrt(3)  # of the cube that is sampled from
    shift, turn = CAMERA_SHIFT / radius * spread(3), CAMERA_TURN / radius * spread(3)
    light_turns = LIGHT_TURN / radius * spread(lights, 3)
    brightness = 1 + BRIGHTNESS * spread(lights + 1)
    warmth = 1 + spread(1) * np.array(WARMTH)
    other = np.array(_TABLE_COLORS)[draws.integers(len(_TABLE_COLORS))]
    plain = np.array(TABLE_COLOR)
    table = plain + strength * draws.uniform() * (other - plain)
    count = int((MAX_DISTRACTORS + 1) * strength * draws.uniform())
    places = _places(task, draw(task, init_id=init_id, seed=seed), count, draws)
    taken = [np.array(obj.color) for obj in task.objects.values()]

    def unlike(color: Color) -> float:
        return min(float(np.linalg.norm(np.array(color) - each)) for each in taken)

    enough = max(sum(unlike(color) > _UNLIKE for color in _COLORS), MAX_DISTRACTORS)
    colors = sorted(_COLORS, key=unlike, reverse=True)[:enough]
    chosen = draws.permutation(len(colors))
    return Variation(
        camera_shift=shift,
        camera_turn=turn,
        light_turns=light_turns,
        brightness=brightness,
        warmth=warmth,
        table=table,
        places=places,
        colors={name: colors[number] for name, number in zip(places, chosen, strict=False)},
    )


def _places(
    task: TaskConfig, objects: Mapping[str, Placement], count: int, draws: np.random.Generator
) -> Mapping[str, Placement]:
    """Placements of up to `count` distractors where there is room."""
    pool = distractors(task)
    centers = {name: np.array([place.x, place.y]) for name, place in objects.items()}
    standing: dict[str, Placement] = {}
    for number in draws.permutation(len(pool))[:count]:
        name = list(pool)[number]
        radius = footprint(pool[name].shape)
        for _ in range(_TRIES):
            place = Placement(x=draws.uniform(*_X), y=draws.uniform(*_Y), yaw=draws.uniform(-np.pi, np.pi))
            at = np.array([place.x, place.y])
            apart = all(
                math.dist(at, (each.x, each.y)) > radius + footprint(pool[other].shape) + _APART
                for other, each in standing.items()
            )
            aside = place.x > _BACK or abs(place.y) > _SIDE
            clear = all(
                np.linalg.norm(at - center) > radius + task.objects[other].footprint + _CLEARANCE
                for other, center in centers.items()
            )
            paths = itertools.combinations([_START, *centers.values()], 2)
            if (
                aside
                and apart
                and clear
                and all(_distance(at, *path) > radius + _CLEARANCE for path in paths)
            ):
                standing[name] = place
                break
    return standing


def _distance(
    at: Float64[np.ndarray, " 2"], start: Float64[np.ndarray, " 2"], end: Float64[np.ndarray, " 2"]
) -> float:
    """Distance of a point from a line segment."""
    along = end - start
    share = np.clip((at - start) @ along / max(along @ along, 1e-12), 0, 1)
    return float(np.linalg.norm(at - start - share * along))


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
        for name, body in self._bodies.items():
            shown, first = name in varied.places, int(model.body_geomadr[body])
            geoms = slice(first, first + int(model.body_geomnum[body]))
            model.geom_contype[geoms] = self._contype[geoms] * shown
            model.geom_conaffinity[geoms] = self._conaffinity[geoms] * shown
            model.geom_group[geoms] = self._group[geoms] if shown else _HIDDEN_GROUP
            model.body_gravcomp[body] = 0 if shown else 1
            if shown:
                place = varied.places[name]
                model.geom_rgba[geoms, :3] = varied.colors[name]
                data.joint(name).qpos[:] = [place.x, place.y, 0.0, *about_z(place.yaw)]


def _quaternion(turn: Float64[np.ndarray, " 3"]) -> Float64[np.ndarray, " 4"]:
    """The quaternion of a rotation vector."""
    angle = float(np.linalg.norm(turn))
    quaternion = np.zeros(4)
    mujoco.mju_axisAngle2Quat(quaternion, turn / angle if angle else np.array([1.0, 0, 0]), angle)
    return quaternion
