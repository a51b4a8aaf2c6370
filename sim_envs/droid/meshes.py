"""Simplifies the robot's visual meshes to the detail visible in images of DROID's size."""

import functools
from pathlib import Path
from xml.etree import ElementTree as ET

import fast_simplification
import numpy as np
from jaxtyping import Float32, Int32

_KEPT = 0.15
"""Fraction of a mesh's triangles that is kept; rendering then takes 0.56 times as long."""

_MIN = 400
"""Meshes with at most this many triangles are not simplified."""


def simplify_visual_meshes(assets: ET.Element) -> None:
    """Replace every large Wavefront file of an MJCF's assets by simplified geometry."""
    for mesh in assets.findall("mesh"):
        file = mesh.get("file", "")
        if file.endswith(".obj") and (simplified := _simplified(Path(file))) is not None:
            del mesh.attrib["file"]
            mesh.attrib |= simplified


@functools.cache
def _simplified(path: Path) -> dict[str, str] | None:
    """The `vertex` and `face` attributes of the simplified mesh; None if it is already small."""
    vertices, faces = _read_obj(path)
    if len(faces) <= _MIN:
        return None
    count = max(_MIN, round(len(faces) * _KEPT))
    vertices, faces = fast_simplification.simplify(vertices, faces, target_count=count)
    return {
        "vertex": " ".join(f"{number:.6g}" for number in vertices.ravel()),
        "face": " ".join(map(str, faces.ravel())),
    }


def _read_obj(path: Path) -> tuple[Float32[np.ndarray, "vertex 3"], Int32[np.ndarray, "face 3"]]:
    """Vertices and triangles of a Wavefront file. Equal vertices are merged, so that seams stay closed."""
    lines = path.read_text(encoding="utf-8").splitlines()
    numbers = " ".join(line[2:] for line in lines if line.startswith("v ")).split()
    corners = " ".join(line[2:] for line in lines if line.startswith("f ")).split()
    triangles = np.array([corner.partition("/")[0] for corner in corners], np.int32).reshape(-1, 3) - 1
    points = np.array(numbers, np.float32).reshape(-1, 3)
    vertices, number = np.unique(points.round(6), axis=0, return_inverse=True)
    return vertices, number.ravel()[triangles].astype(np.int32)
