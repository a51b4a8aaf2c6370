"""Triangle meshes of a few quads: boxes, cartons, turned shapes, tubes; written as Wavefront OBJ."""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float64, Int64

Point = tuple[float, float, float]
Rect = tuple[float, float, float, float]  # u0, v0, u1, v1 in the picture; v counts upwards
WHOLE: Rect = (0.0, 0.0, 1.0, 1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mesh:
    """Triangles with a normal and a texture coordinate at every vertex. Lengths in metres.

    Attributes:
        points: Vertex positions.
        normals: Unit normals.
        uv: Texture coordinates.
        faces: Vertex indices, counter-clockwise seen from outside.
    """

    points: Float64[np.ndarray, "vertex 3"]
    normals: Float64[np.ndarray, "vertex 3"]
    uv: Float64[np.ndarray, "vertex 2"]
    faces: Int64[np.ndarray, "face 3"]

    def obj(self) -> str:
        """The mesh as Wavefront OBJ text."""
        lines = [f"v {x:.6g} {y:.6g} {z:.6g}" for x, y, z in self.points]
        lines += [f"vt {u:.5g} {v:.5g}" for u, v in self.uv]
        lines += [f"vn {x:.5g} {y:.5g} {z:.5g}" for x, y, z in self.normals]
        lines += ["f " + " ".join(f"{i}/{i}/{i}" for i in face) for face in self.faces + 1]
        return "\n".join(lines) + "\n"


def merge(meshes: Iterable[Mesh]) -> Mesh:
    """One mesh of several."""
    parts = list(meshes)
    starts = np.cumsum([0] + [len(part.points) for part in parts[:-1]])
    return Mesh(
        points=np.concatenate([part.points for part in parts]),
        normals=np.concatenate([part.normals for part in parts]),
        uv=np.concatenate([part.uv for part in parts]),
        faces=np.concatenate([part.faces + start for part, start in zip(parts, starts, strict=True)]),
    )


def moved(mesh: Mesh, offset: Point) -> Mesh:
    """The mesh, shifted."""
    return dataclasses.replace(mesh, points=mesh.points + np.array(offset))


def polygon(corners: Sequence[Point], rect: Rect = WHOLE) -> Mesh:
    """A flat convex polygon of 3 or 4 corners, counter-clockwise from outside, wearing part of a picture."""
    points = np.array(corners, dtype=np.float64)
    normal = np.cross(points[1] - points[0], points[2] - points[0])
    u0, v0, u1, v1 = rect
    uv = [(u0, v0), (u1, v0), (u1, v1), (u0, v1)] if len(points) == 4 else [(u0, v0), (u1, v0), (u1, v1)]
    fan = [(0, i, i + 1) for i in range(1, len(points) - 1)]
    return Mesh(
        points=points,
        normals=np.tile(normal / np.linalg.norm(normal), (len(points), 1)),
        uv=np.array(uv, dtype=np.float64),
        faces=np.array(fan, dtype=np.int64),
    )


def box(low: Point, high: Point, *, x: Rect = WHOLE, y: Rect = WHOLE, z: Rect = WHOLE) -> Mesh:
    """An upright box; the faces across each axis show their own part of the picture, upright from outside."""
    (x0, y0, z0), (x1, y1, z1) = low, high
    return merge(
        [
            polygon([(x1, y0, z0), (x1, y1, z0), (x1, y1, z1), (x1, y0, z1)], x),
            polygon([(x0, y1, z0), (x0, y0, z0), (x0, y0, z1), (x0, y1, z1)], x),
            polygon([(x1, y1, z0), (x0, y1, z0), (x0, y1, z1), (x1, y1, z1)], y),
            polygon([(x0, y0, z0), (x1, y0, z0), (x1, y0, z1), (x0, y0, z1)], y),
            polygon([(x0, y0, z1), (x1, y0, z1), (x1, y1, z1), (x0, y1, z1)], z),
            polygon([(x0, y1, z0), (x1, y1, z0), (x1, y0, z0), (x0, y0, z0)], z),
        ]
    )


def lathe(
    profile: Sequence[tuple[float, float]],
    *,
    sides: int = 16,
    squash: float = 1.0,
    turns: int = 1,
    smooth: bool = True,
) -> Mesh:
    """A surface of revolution about z, with creases between the bands of its profile.

    Args:
        profile: (radius, z) from the bottom's centre outwards and up; one that comes back down is a vessel.
        sides: Facets around.
        squash: Scale of y, for oval sections.
        turns: How often the picture is repeated around.
        smooth: Whether the shading hides the facets.
    """
    heights = [z for _, z in profile]
    base, span = min(heights), max(heights) - min(heights)
    angles = np.linspace(0.0, 2 * math.pi, sides + 1)
    bands = []
    for (r0, z0), (r1, z1) in itertools.pairwise(profile):
        low = (r0, z0, 0.01 + 0.98 * (z0 - base) / span)  # short of the edges, where pictures wrap around
        high = (r1, z1, 0.01 + 0.98 * (z1 - base) / span)
        bands.append(_band(low, high, angles, smooth=smooth))
    mesh = merge(bands)
    scale = np.array([1.0, squash, 1.0])
    normals = mesh.normals / scale
    return Mesh(
        points=mesh.points * scale,
        normals=normals / np.linalg.norm(normals, axis=1, keepdims=True),
        uv=mesh.uv * np.array([turns, 1.0]),
        faces=mesh.faces,
    )


def _band(low: Point, high: Point, angles: Float64[np.ndarray, " ring"], *, smooth: bool) -> Mesh:
    """The strip between two rings, each given as (radius, z, v). A flat one takes one colour."""
    (r0, z0, v0), (r1, z1, v1) = low, high
    slope = np.array([z1 - z0, r0 - r1]) / math.hypot(z1 - z0, r0 - r1)
    around = 0.0 if z0 == z1 else 1 / (2 * math.pi)
    quads = []
    for a, b in itertools.pairwise(angles):
        corners = [(a, r0, z0, v0), (b, r0, z0, v0), (b, r1, z1, v1), (a, r1, z1, v1)]
        if r0 == 0:
            del corners[1]
        elif r1 == 0:
            del corners[3]
        facing = [t if smooth else (a + b) / 2 for t, *_ in corners]
        normals = [(slope[0] * math.cos(t), slope[0] * math.sin(t), slope[1]) for t in facing]
        quads.append(
            Mesh(
                points=np.array([(r * math.cos(t), r * math.sin(t), z) for t, r, z, _ in corners]),
                normals=np.array(normals),
                uv=np.array([(t * around, v) for t, _, _, v in corners]),
                faces=np.array([(0, i, i + 1) for i in range(1, len(corners) - 1)], dtype=np.int64),
            )
        )
    return merge(quads)


def gable(half: tuple[float, float], heights: tuple[float, float, float, float], fin: float) -> Mesh:
    """A milk carton: walls, a roof over x whose ridge runs along x, a fin on the ridge.

    Args:
        half: Half widths along x and y.
        heights: z of the bottom, the shoulder, the ridge and the fin's top.
        fin: Half thickness of the fin.

    The picture's left half goes on the walls across y and the roof, its right half on the walls across x;
    its lower three quarters are wall, the rest roof.
    """
    (w, d), (z0, z1, z2, z3) = half, heights
    front, side, roof = (0.0, 0.0, 0.5, 0.75), (0.5, 0.0, 1.0, 0.75), (0.0, 0.75, 0.5, 1.0)
    blank = (0.55, 0.8, 0.6, 0.85)
    faces = []
    for s in (1.0, -1.0):  # the second pass is the first, turned by half a turn
        a, b = s * w, s * d
        faces += [
            polygon([(-a, -b, z0), (a, -b, z0), (a, -b, z1), (-a, -b, z1)], front),
            polygon([(a, -b, z0), (a, b, z0), (a, b, z1), (a, -b, z1)], side),
            polygon([(-a, -b, z1), (a, -b, z1), (a, -s * fin, z2), (-a, -s * fin, z2)], roof),
            polygon([(a, -b, z1), (a, b, z1), (a, 0.0, z2)], blank),
        ]
    bottom = polygon([(-w, d, z0), (w, d, z0), (w, -d, z0), (-w, -d, z0)], blank)
    return merge([*faces, bottom, box((-w, -fin, z2), (w, fin, z3), x=blank, y=blank, z=blank)])


def tube(path: Sequence[Point], radius: float, *, sides: int = 6) -> Mesh:
    """A round bar along a path in a plane that contains z, open at its ends: handles, necks, rods."""
    points = np.array(path, dtype=np.float64)
    along = np.gradient(points, axis=0)
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    plane = np.cross(points[-1] - points[0], points[len(points) // 2] - points[0])
    across = plane / np.linalg.norm(plane) if np.linalg.norm(plane) > 1e-12 else _normal_to(along[0])
    angles = np.linspace(0.0, 2 * math.pi, sides + 1)
    rings = []
    for tangent in along:
        other = np.cross(tangent, across)
        rings.append(np.cos(angles)[:, None] * across + np.sin(angles)[:, None] * other)
    quads = []
    for i in range(len(points) - 1):
        for j in range(sides):
            index = [(i, j), (i, j + 1), (i + 1, j + 1), (i + 1, j)]
            quads.append(
                Mesh(
                    points=np.array([points[k] + radius * rings[k][n] for k, n in index]),
                    normals=np.array([rings[k][n] for k, n in index]),
                    uv=np.array([(0.5, 0.5)] * 4),
                    faces=np.array([(0, 1, 2), (0, 2, 3)], dtype=np.int64),
                )
            )
    return merge(quads)


def _normal_to(direction: Float64[np.ndarray, "3"]) -> Float64[np.ndarray, "3"]:
    other = np.cross(direction, (0.0, 0.0, 1.0) if abs(direction[2]) < 0.9 else (1.0, 0.0, 0.0))
    return np.asarray(other / np.linalg.norm(other))
