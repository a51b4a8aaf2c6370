"""Ways to build solids out of boxes: blocks, prisms, rings of panels, bars; and meshes to match."""

import dataclasses
import math
from collections.abc import Iterable

import numpy as np

from sim_envs.libero.standins.mesh import Mesh, box, merge
from sim_envs.libero.standins.model import Solid, Vec3, about, rotate, times


def block(low: Vec3, high: Vec3) -> Solid:
    """An upright box between two corners."""
    centre = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
    half = [(b - a) / 2 for a, b in zip(low, high, strict=True)]
    return Solid(pos=(centre[0], centre[1], centre[2]), half=(half[0], half[1], half[2]))


def prism(radius: float, z0: float, z1: float, *, sides: int = 8, at: Vec3 = (0.0, 0.0, 0.0)) -> list[Solid]:
    """A regular prism about z with an even number of sides, `radius` from axis to side, as crossed boxes."""
    width = radius * math.tan(math.pi / sides)
    half = (radius, width, (z1 - z0) / 2)
    pos = (at[0], at[1], at[2] + (z0 + z1) / 2)
    return [Solid(pos=pos, half=half, quat=about("z", 2 * math.pi * k / sides)) for k in range(sides // 2)]


def panel(
    low: tuple[float, float], high: tuple[float, float], *, width: float, thickness: float, yaw: float = 0.0
) -> Solid:
    """A flat wall that faces away from the z axis, leaning from its foot to its rim.

    Args:
        low: (distance from the axis, z) of the outer face's lower edge.
        high: The same of its upper edge.
        width: Half width (m).
        thickness: Inwards (m).
        yaw: Direction it faces (rad).
    """
    (r0, z0), (r1, z1) = low, high
    length, lean = math.hypot(r1 - r0, z1 - z0), math.atan2(r1 - r0, z1 - z0)
    r = (r0 + r1) / 2 - thickness / 2 * math.cos(lean)
    z = (z0 + z1) / 2 + thickness / 2 * math.sin(lean)
    turn = about("z", yaw)
    half = (thickness / 2, width, length / 2)
    return Solid(pos=rotate(turn, (r, 0.0, z)), half=half, quat=times(turn, about("y", lean)))


def slat(radius: float, z: float, half: Vec3, *, lean: float, twist: float = 0.0) -> Solid:
    """A panel given by its centre, leaning outwards and turned on the spot (degrees)."""
    quat = times(about("z", math.radians(twist)), about("y", math.radians(lean)))
    return Solid(pos=(radius, 0.0, z), half=half, quat=quat)


def around(solid: Solid, azimuths: Iterable[float]) -> list[Solid]:
    """Copies of a solid, turned about the z axis by each of the azimuths (degrees)."""
    turns = [about("z", math.radians(azimuth)) for azimuth in azimuths]
    return [
        dataclasses.replace(solid, pos=rotate(turn, solid.pos), quat=times(turn, solid.quat))
        for turn in turns
    ]


def ring(low: tuple[float, float], high: tuple[float, float], thickness: float, *, sides: int) -> list[Solid]:
    """A wall around z, straight in section: one panel per side, from `low` to `high` as (radius, z)."""
    width = max(low[0], high[0]) * math.tan(math.pi / sides)
    return [
        panel(low, high, width=width, thickness=thickness, yaw=2 * math.pi * k / sides) for k in range(sides)
    ]


def bar(start: Vec3, end: Vec3, *, width: float, thickness: float) -> Solid:
    """A flat bar between two points; `width` is its half size across and level, `thickness` the other one."""
    along = [b - a for a, b in zip(start, end, strict=True)]
    flat = math.hypot(along[0], along[1])
    turn = times(about("z", math.atan2(along[1], along[0])), about("y", math.atan2(flat, along[2])))
    middle = [(a + b) / 2 for a, b in zip(start, end, strict=True)]
    half = (thickness, width, math.hypot(flat, along[2]) / 2)
    return Solid(pos=(middle[0], middle[1], middle[2]), half=half, quat=turn)


def shifted(solids: Iterable[Solid], offset: Vec3) -> list[Solid]:
    """The solids, moved together."""
    x, y, z = offset
    return [dataclasses.replace(s, pos=(s.pos[0] + x, s.pos[1] + y, s.pos[2] + z)) for s in solids]


def drawn(solids: Iterable[Solid]) -> Mesh:
    """A mesh that looks like the solids: every box wears the whole picture on each of its faces."""
    return merge(_as_mesh(solid) for solid in solids)


def _as_mesh(solid: Solid) -> Mesh:
    x, y, z = solid.half
    mesh = box((-x, -y, -z), (x, y, z))
    columns = [rotate(solid.quat, axis) for axis in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))]
    turn = np.array(columns)  # rows are images of the axes: right for row vectors
    return dataclasses.replace(
        mesh, points=mesh.points @ turn + np.array(solid.pos), normals=mesh.normals @ turn
    )
