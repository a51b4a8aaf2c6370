"""The robot's visual meshes with fewer triangles: what they show in a picture of DROID's size."""

import functools
from pathlib import Path
from xml.etree import ElementTree as ET

import fast_simplification
import numpy as np
from jaxtyping import Float32, Int32

_KEPT = 0.15
"""Share of a mesh's triangles that is kept. With it an image takes 0.56 times as long."""

_LEAST = 400
"""Meshes of no more triangles than this are left alone."""


def simplify_visual_meshes(assets: ET.Element) -> None:
    """Put simplified geometry in place of every large Wavefront file among an MJCF's assets."""
    for mesh in assets.findall("mesh"):
        file = mesh.get("file", "")
        if file.endswith(".obj") and (simplified := _simplified(Path(file))) is not None:
            del mesh.attrib["file"]
            mesh.attrib |= simplified


@functools.cache
def _simplified(path: Path) -> dict[str, str] | None:
    """The `vertex` and `face` attributes of a mesh; None if it is small as it is."""
    vertices, faces = _read_obj(path)
    if len(faces) <= _LEAST:
        return None
    count = max(_LEAST, round(len(faces) * _KEPT))
    vertices, faces = fast_simplification.simplify(vertices, faces, target_count=count)
    return {
        "vertex": " ".join(f"{number:.6g}" for number in vertices.ravel()),
        "face": " ".join(map(str, faces.ravel())),
    }


def _read_obj(path: Path) -> tuple[Float32[np.ndarray, "vertex 3"], Int32[np.ndarray, "face 3"]]:
    """Vertices and triangles of a Wavefront file. Equal vertices are one, so that seams stay closed."""
    lines = path.read_text(encoding="utf-8").splitlines()
    numbers = " ".join(line[2:] for line in lines if line.startswith("v ")).split()
    corners = " ".join(line[2:] for line in lines if line.startswith("f ")).split()
    triangles = np.array([corner.partition("/")[0] for corner in corners], np.int32).reshape(-1, 3) - 1
    points = np.array(numbers, np.float32).reshape(-1, 3)
    vertices, number = np.unique(points.round(6), axis=0, return_inverse=True)
    return vertices, number.ravel()[triangles].astype(np.int32)
