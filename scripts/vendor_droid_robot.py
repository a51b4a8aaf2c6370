"""Writes `sim_envs/droid/robot_model` from an installed robosuite 1.4.0: Panda, Robotiq 2F-85, their meshes.

Visual meshes are simplified to the detail visible in images of DROID's size; collision meshes are copied.
"""

import importlib.util
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import fast_simplification
import numpy as np
from jaxtyping import Float32, Int32

_MODELS = {"panda": "robots/panda/robot.xml", "robotiq_2f85": "grippers/robotiq_gripper_85.xml"}

_KEPT = 0.15
"""Fraction of a mesh's triangles that is kept; rendering then takes 0.56 times as long."""

_MIN = 400
"""Meshes with at most this many triangles are not simplified."""


def write_robot(folder: Path) -> None:
    """Write both models, with the meshes that they use, and robosuite's licence."""
    spec = importlib.util.find_spec("robosuite")  # without importing it
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in _MODELS.items():
        path = package / "models" / "assets" / source
        tree = ET.parse(path)
        assets = tree.getroot().find("asset")
        assert assets is not None
        for mesh in assets.findall("mesh"):
            _write_mesh(mesh, assets, path.parent, folder / name)
        tree.write(folder / f"{name}.xml", encoding="unicode")
    (licence,) = package.parent.glob("robosuite-1.4.0.dist-info/LICENSE")
    shutil.copyfile(licence, folder / "LICENSE")


def _write_mesh(mesh: ET.Element, assets: ET.Element, source: Path, target: Path) -> None:
    """Simplify a large visual mesh, copy another, and remove one whose file is missing."""
    file = source / mesh.attrib["file"]
    if not file.exists():
        assets.remove(mesh)
    elif file.suffix == ".obj" and (simplified := _simplified(file)) is not None:
        del mesh.attrib["file"]
        mesh.attrib |= simplified
    else:
        target.mkdir(exist_ok=True)
        shutil.copyfile(file, target / file.name)
        mesh.set("file", f"{target.name}/{file.name}")


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


if __name__ == "__main__":
    write_robot(Path(sys.argv[1] if len(sys.argv) > 1 else "sim_envs/droid/robot_model"))
