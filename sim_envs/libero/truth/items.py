"""The items of a LIBERO environment: movable objects, parts that open or switch, and their geoms."""

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np

from sim_envs.libero.truth.names import Names
from sim_envs.truth.scene import HAND, LEFT, NOTHING, RIGHT, Articulation, Item, Vector3

GROUNDS = {"table": -2, "floor": -3}
"""Owners of the geoms of table and floor."""


class Hulls:
    """Bounding boxes of the collision geoms of items."""

    def __init__(self, model: mujoco.MjModel, owner: np.ndarray, items: Sequence[Item]) -> None:
        groups = [np.flatnonzero(owner == item.index) for item in items]
        geoms = np.concatenate(groups)
        rotations = np.zeros((len(geoms), 9))
        for row, geom in zip(rotations, geoms, strict=True):
            mujoco.mju_quat2Mat(row, model.geom_quat[geom])
        self._rotations = rotations.reshape(-1, 3, 3)
        offsets = np.einsum("gij,gj->gi", self._rotations, model.geom_aabb[geoms, :3])
        self._centers, self._halves = model.geom_pos[geoms] + offsets, model.geom_aabb[geoms, 3:]
        self._bodies = model.geom_bodyid[geoms]
        self._first = np.cumsum([0, *map(len, groups[:-1])])
        self._indices = [item.index for item in items]

    def distances(self, point: Vector3, xpos: np.ndarray, xmat: np.ndarray) -> dict[int, float]:
        """Item number to its squared distance from a point (m²)."""
        frames = xmat[self._bodies].reshape(-1, 3, 3)
        local = ((point - xpos[self._bodies])[:, None] @ frames)[:, 0] - self._centers
        inside = (local[:, None] @ self._rotations)[:, 0]
        beyond = np.maximum(np.abs(inside) - self._halves, 0.0)
        squared = np.minimum.reduceat((beyond * beyond).sum(axis=1), self._first)
        return dict(zip(self._indices, squared.tolist(), strict=True))


def find_items(env: Any, model: mujoco.MjModel, names: Names) -> list[Item]:
    """The movable objects of an environment, then the parts that open or switch."""
    found: list[Item] = []
    for name, noun in names.things.items():
        root = int(model.body_rootid[env.obj_body_id[name]])
        found.append(Item(index=len(found), name=name, noun=noun, body=root))
    for name in names.fixtures:
        ranges = getattr(env.get_object(name), "object_properties", {}).get("articulation", {})
        for joint in env.get_object(name).joints if any(ranges.values()) else ():
            found.append(_part(model, names, len(found), name, joint, ranges))
    return found


def _part(
    model: mujoco.MjModel,
    names: Names,
    index: int,
    fixture: str,
    joint: str,
    ranges: dict[str, Sequence[float]],
) -> Item:
    switches = "default_turnon_ranges" in ranges
    off, on = ("turnoff", "turnon") if switches else ("close", "open")
    start, end = ranges[f"default_{off}_ranges"], ranges[f"default_{on}_ranges"]
    number = model.joint(joint).id
    return Item(
        index=index,
        name=fixture,
        noun=names.part(fixture, joint),
        body=int(model.jnt_bodyid[number]),
        articulation=Articulation(
            address=int(model.jnt_qposadr[number]),
            start=0.0 if 0.0 in start else min(start, key=abs),
            end=min(end, key=abs),
            switches=switches,
        ),
    )


def owners(model: mujoco.MjModel, items: Sequence[Item]) -> np.ndarray:
    """Maps a geom to the index of its item, or to a negative number: `NOTHING`, or one of `GROUNDS`."""
    owner = np.full(model.nbody, GROUNDS["floor"])
    of_body = {item.body: item.index for item in items}
    for body in range(1, model.nbody):
        parent = model.body_parentid[body]
        name = model.body(body).name
        ground = next((owner for noun, owner in GROUNDS.items() if noun in name), NOTHING)
        owner[body] = of_body.get(body, owner[parent] if parent else ground)
    collides = (model.geom_contype | model.geom_conaffinity) != 0
    return np.where(collides, owner[model.geom_bodyid], NOTHING)


def sides(env: Any, model: mujoco.MjModel) -> np.ndarray:
    """Maps a geom to its part of the gripper: `LEFT`, `RIGHT` or `HAND`; 0 elsewhere."""
    gripper = env.robots[0].gripper
    side = np.zeros(model.ngeom, np.int64)
    side[[model.geom(name).id for name in gripper.contact_geoms]] = HAND
    for bit, finger in ((LEFT, "left_finger"), (RIGHT, "right_finger")):
        side[[model.geom(name).id for name in gripper.important_geoms[finger]]] = bit
    return side
