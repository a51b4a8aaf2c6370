"""The Panda with fewer triangles: robosuite's own models, their visual meshes thinned out.

robosuite's robot is drawn with 170,000 triangles, more than all of LIBERO's objects. What collides,
weighs and moves stays the same file for file, so physics is the same bit for bit.
"""

import importlib.util
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import mujoco
import numpy as np
from jaxtyping import Float64, Int64

from sim_envs.libero.standins.mjcf import save_xml

FOLDER = "robosuite"
"""Below the asset tree: what `robosuite.models.assets_root` is to point to while models are built."""

PLAIN = ("base.xml", "mounts/null_mount.xml")
CELLS = {  # model file: size of the cells (m) in which the vertices of visual meshes are merged
    "robots/panda/robot.xml": 0.016,
    "grippers/panda_gripper.xml": 0.006,
    "mounts/rethink_mount.xml": 0.035,
}


def write_robot(tree: Path) -> None:
    """Write the light robot below the asset tree."""
    for name in PLAIN:
        _copy(_installed() / name, tree / FOLDER / name)
    for name, cell in CELLS.items():
        _write_light(_installed() / name, tree / FOLDER / name, cell)


def _installed() -> Path:
    """robosuite's models, found without importing it."""
    spec = importlib.util.find_spec("robosuite")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)), "models", "assets")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _write_light(source: Path, target: Path, cell: float) -> None:
    root = ET.parse(source).getroot()
    model = mujoco.MjModel.from_xml_path(str(source))
    drawn = {geom.get("mesh") for geom in root.iter("geom") if geom.get("group") == "1"}
    solid = {geom.get("mesh") for geom in root.iter("geom") if geom.get("group") != "1"}
    for mesh in root.iter("mesh"):
        name, file = mesh.attrib["name"], mesh.attrib["file"]
        if name not in drawn - solid:
            _copy(source.parent / file, target.parent / file)
            continue
        mesh.set("file", str(Path(file).with_suffix(".obj")))
        thinned = target.parent / mesh.attrib["file"]
        thinned.parent.mkdir(parents=True, exist_ok=True)
        thinned.write_text(_obj(*_thin_enough(*_triangles(model, name), cell)), encoding="utf-8")
    save_xml(target, root)


def _triangles(
    model: mujoco.MjModel, name: str
) -> tuple[Float64[np.ndarray, "vertex 3"], Int64[np.ndarray, "face 3"]]:
    """A mesh as its file has it; MuJoCo moves it to its inertial frame."""
    mesh = model.mesh(name)
    index = mesh.id
    turn = np.empty(9)
    mujoco.mju_quat2Mat(turn, model.mesh_quat[index])
    start, count = int(mesh.vertadr[0]), int(mesh.vertnum[0])
    points = model.mesh_vert[start : start + count] @ turn.reshape(3, 3).T + model.mesh_pos[index]
    start, count = int(mesh.faceadr[0]), int(mesh.facenum[0])
    return points.astype(np.float64), model.mesh_face[start : start + count].astype(np.int64)


def _thin_enough(
    points: Float64[np.ndarray, "vertex 3"], faces: Int64[np.ndarray, "face 3"], cell: float
) -> tuple[Float64[np.ndarray, "fewer 3"], Int64[np.ndarray, "left 3"]]:
    """The mesh, thinned, unless it is so small or thin that nothing would be left of it."""
    fewer = thin(points, faces, min(cell, float(np.ptp(points, axis=0).max()) / 6))
    return fewer if len(fewer[1]) >= 12 else (points, faces)


def thin(
    points: Float64[np.ndarray, "vertex 3"], faces: Int64[np.ndarray, "face 3"], cell: float
) -> tuple[Float64[np.ndarray, "fewer 3"], Int64[np.ndarray, "left 3"]]:
    """Merge the vertices in each cell of a grid into the one point that lies best on the planes around it.

    Vertex clustering with quadric error (Lindstrom, Out-of-core simplification, SIGGRAPH 2000).

    Args:
        points: Vertices (m).
        faces: Vertex indices.
        cell: Size of the grid's cells (m).
    """
    keys = np.floor(points / cell).astype(np.int64)
    _, group = np.unique(keys, axis=0, return_inverse=True)
    group = group.reshape(-1)
    count = np.bincount(group)
    mean = np.stack([np.bincount(group, points[:, k]) for k in range(3)], axis=1) / count[:, None]
    corners = points[faces]
    area = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    area /= (
        np.linalg.norm(area, axis=1, keepdims=True).clip(1e-12) ** 0.5
    )  # weighs by the square root of area
    matrix = np.zeros((len(count), 3, 3))
    vector = np.zeros((len(count), 3))
    for k in range(3):
        cluster = group[faces[:, k]]
        offset = np.einsum("fi,fi->f", area, corners[:, 0] - mean[cluster])
        np.add.at(matrix, cluster, area[:, :, None] * area[:, None, :])
        np.add.at(vector, cluster, area * offset[:, None])
    values, axes = np.linalg.eigh(matrix)
    firm = values > 0.05 * values[:, -1:].clip(1e-18)
    inverse = np.where(firm, 1 / np.where(firm, values, 1.0), 0.0)
    shift = np.einsum("cij,cj,ckj,ck->ci", axes, inverse, axes, vector)
    limit = cell * 0.75
    length = np.linalg.norm(shift, axis=1, keepdims=True).clip(1e-12)
    merged = mean + shift * np.minimum(1.0, limit / length)
    fewer = group[faces]
    distinct = (fewer[:, 0] != fewer[:, 1]) & (fewer[:, 1] != fewer[:, 2]) & (fewer[:, 2] != fewer[:, 0])
    _, first = np.unique(np.sort(fewer[distinct], axis=1), axis=0, return_index=True)
    return merged, fewer[distinct][np.sort(first)]


def _obj(points: Float64[np.ndarray, "vertex 3"], faces: Int64[np.ndarray, "face 3"]) -> str:
    lines = [f"v {x:.5f} {y:.5f} {z:.5f}" for x, y, z in points]
    return "\n".join(lines + [f"f {a} {b} {c}" for a, b, c in faces + 1]) + "\n"
