"""Dimensions that change how a scene looks, and nothing physical: camera, light, background, appearance."""

import colorsys
import math

import numpy as np
from jaxtyping import Bool, Float64
from scipy.spatial.transform import Rotation
from typing_extensions import override

from sim_envs.perturbations.dimension import Dimension
from sim_envs.perturbations.scene import Scene
from sim_envs.scripted.poses import Vector3

_ORBIT, _NEARER, _FARTHER, _TURN = 5.0, 0.02, 0.04, 1.0  # per severity: degrees, shares, degrees
_LOWEST, _HIGHEST = 15.0, 80.0  # elevation of the camera above the workspace, degrees
_SEEN = 0.5  # share of what the control's camera sees of an object that has to stay in view


class Camera(Dimension):
    """The first fixed camera moves around the workspace."""

    medium = "scene"
    meanings = tuple(
        f"orbit of {_ORBIT * s:g}° about the task's objects, distance −{100 * _NEARER * s:g} to "
        f"+{100 * _FARTHER * s:g} %, turned by {_TURN * s:g}° about a drawn axis"
        for s in range(1, 6)
    )

    @override
    def change(self, scene: Scene, severity: int, draws: np.random.Generator) -> bool:
        model, camera, focus = scene.model, scene.bounds.camera, scene.focus
        before = scene.seen()
        angle = draws.uniform(0, 2 * math.pi)
        nearer, axis = draws.uniform(-_NEARER, _FARTHER), draws.normal(size=3)
        away = model.cam_pos[camera] - focus
        radius = float(np.linalg.norm(away))
        elevation = math.degrees(math.asin(away[2] / radius))
        up = severity * _ORBIT * math.sin(angle)
        if not _LOWEST <= elevation + up <= _HIGHEST:
            return False
        around = math.radians(severity * _ORBIT * math.cos(angle)) / math.cos(math.radians(elevation))
        sideways = np.cross([0.0, 0.0, 1.0], away)
        lift = Rotation.from_rotvec(-math.radians(up) * sideways / np.linalg.norm(sideways))
        orbit = Rotation.from_rotvec([0.0, 0.0, around]) * lift
        turn = Rotation.from_rotvec(math.radians(severity * _TURN) * axis / np.linalg.norm(axis))
        model.cam_pos[camera] = focus + (1 + severity * nearer) * orbit.apply(away)
        now = Rotation.from_quat(model.cam_quat[camera], scalar_first=True)
        model.cam_quat[camera] = (turn * orbit * now).as_quat(scalar_first=True)
        return bool((scene.seen() >= _SEEN * before).all())


_TILT, _BRIGHTNESS = 8.0, 0.12  # per severity: degrees, and relative change
_WARMTH = np.array([0.06, 0.0, -0.06])  # likewise of red, green and blue


class Light(Dimension):
    """Direction, brightness and colour of all lights."""

    medium = "scene"
    meanings = tuple(
        f"lights turned by {_TILT * s:g}°, {100 * _BRIGHTNESS * s:g} % brighter or darker, red up and blue "
        f"down by {100 * _WARMTH[0] * s:g} % or the reverse"
        for s in range(1, 6)
    )

    @override
    def change(self, scene: Scene, severity: int, draws: np.random.Generator) -> bool:
        model, head = scene.model, scene.model.vis.headlight
        brightness = 1 + severity * _BRIGHTNESS * draws.choice([-1, 1])
        colour = brightness * (1 + severity * _WARMTH * draws.choice([-1, 1]))
        model.light_diffuse[:] = model.light_diffuse * colour
        head.ambient[:], head.diffuse[:] = head.ambient * colour, head.diffuse * colour
        for light, angle in enumerate(draws.uniform(0, 2 * math.pi, model.nlight)):
            axis = np.array([math.cos(angle), math.sin(angle), 0.0])
            tilt = Rotation.from_rotvec(math.radians(severity * _TILT) * axis)
            model.light_dir[light] = tilt.apply(model.light_dir[light])
        return True


def _paint(scene: Scene, geoms: Bool[np.ndarray, " geom"], tint: Vector3) -> None:
    """Multiply colours; a material's is replaced by the geom's, which may be another geom's, too."""
    model = scene.model
    for geom in np.flatnonzero(geoms):
        material = model.geom_matid[geom]
        plain = (model.geom_rgba if material < 0 else model.mat_rgba)[geom if material < 0 else material]
        own = model.geom_rgba[geom]
        if material >= 0 and not np.allclose(own, _DEFAULT):  # it overrides its material's
            plain = own
        model.geom_rgba[geom] = [*(plain[:3] * tint), plain[3]]


_DEFAULT = (0.5, 0.5, 0.5, 1.0)  # MuJoCo's colour of geoms, by which their material's counts


def _tint(draws: np.random.Generator, saturation: float) -> Float64[np.ndarray, " 3"]:
    """A drawn hue of a saturation, as a factor of red, green and blue."""
    return np.array(colorsys.hsv_to_rgb(draws.uniform(), saturation, 1.0))


_BACKDROP, _PAINT = 0.16, 0.1  # saturation per severity


class Background(Dimension):
    """Colours of the table, floor and walls."""

    medium = "scene"
    meanings = tuple(
        f"table, floor and walls each tinted in a drawn hue of saturation {100 * _BACKDROP * s:.0f} %"
        for s in range(1, 6)
    )

    @override
    def change(self, scene: Scene, severity: int, draws: np.random.Generator) -> bool:
        model = scene.model
        still = model.body_weldid[model.geom_bodyid] == 0
        backdrop = still & ~scene.of_robot & ~scene.part_of(*scene.wanted, *scene.fixtures)
        surfaces = np.where(model.geom_matid >= 0, model.geom_matid, -1 - np.arange(model.ngeom))
        for surface in np.unique(surfaces[backdrop]):
            _paint(scene, backdrop & (surfaces == surface), _tint(draws, severity * _BACKDROP))
        return True


class Appearance(Dimension):
    """Colours of the objects that can be moved."""

    medium = "scene"
    meanings = tuple(
        f"each object tinted in a drawn hue of saturation {100 * _PAINT * s:.0f} %" for s in range(1, 6)
    )

    @override
    def change(self, scene: Scene, severity: int, draws: np.random.Generator) -> bool:
        for body in scene.objects.values():
            _paint(scene, scene.part_of(body), _tint(draws, severity * _PAINT))
        return True
