"""Joints of drawers, doors and knobs by LIBERO's names, and the joint values that goals require."""

import dataclasses
from typing import Any

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from sim_envs.scripted.poses import Pose, Vector3


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixtureJoint:
    """A joint of a fixture in its current state; values are metres for slides and radians for hinges.

    Attributes:
        name: MuJoCo's name of the joint.
        fixture: LIBERO's name of the fixture.
        body: Id of the body that it moves.
        slides: Whether it is a slide rather than a hinge.
        axis: Its axis in the world.
        anchor: A point on the axis (m).
        value: Its position.
    """

    name: str
    fixture: str
    body: int
    slides: bool
    axis: Vector3
    anchor: Vector3
    value: float

    def carried(self, pose: Pose, by: float) -> Pose:
        """A pose fixed to the moving part, after a displacement of the joint."""
        if self.slides:
            return Pose(position=pose.position + by * self.axis, rotation=pose.rotation)
        turn = Rotation.from_rotvec(by * self.axis).as_matrix()
        position = self.anchor + turn @ (pose.position - self.anchor)
        return Pose(position=position, rotation=turn @ pose.rotation)

    def direction_at(self, point: Vector3) -> Vector3:
        """Direction (unit vector) of a point of the moving part as the joint's value grows."""
        way = self.axis if self.slides else np.cross(self.axis, point - self.anchor)
        return way / max(float(np.linalg.norm(way)), 1e-9)


def read_joint(env: Any, name: str) -> FixtureJoint | None:
    """The joint of a drawer's region, or of a fixture with one moving part; None if there is none."""
    region = env.object_sites_dict.get(name)
    owner = env.fixtures_dict.get(name) if region is None else region
    names = list(owner.joints or ()) if owner is not None else []
    if len(names) != 1:
        return None
    model, data = env.sim.model._model, env.sim.data._data
    joint = model.joint(names[0]).id
    return FixtureJoint(
        name=names[0],
        fixture=name if region is None else region.parent_name,
        body=int(model.jnt_bodyid[joint]),
        slides=bool(model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_SLIDE),
        axis=data.xaxis[joint].copy(),
        anchor=data.xanchor[joint].copy(),
        value=float(data.qpos[model.jnt_qposadr[joint]]),
    )


def read_container(env: Any, region: str) -> FixtureJoint | None:
    """The joint that opens a region: of its drawer, or of its fixture's door; None if always open."""
    joint = read_joint(env, region)
    if joint is None and region in env.object_sites_dict:
        joint = read_joint(env, getattr(env.object_sites_dict[region], "parent_name", None) or "")
    return joint if joint is not None and wanted_range(env, "open", joint) else None


def wanted_range(env: Any, predicate: str, joint: FixtureJoint) -> tuple[float, float] | None:
    """The range of joint values in which a predicate holds, as LIBERO defines it; None if undefined."""
    table = env.get_object(joint.fixture).object_properties["articulation"]
    values = table.get(f"default_{predicate}_ranges")
    return (float(min(values)), float(max(values))) if values else None
