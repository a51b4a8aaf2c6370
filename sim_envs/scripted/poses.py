"""Rigid poses and boxes."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float64

Vector3 = Float64[np.ndarray, " 3"]
Vector6 = Float64[np.ndarray, " 6"]
Matrix3 = Float64[np.ndarray, "3 3"]


def turn(rotation_vector: Vector3) -> Matrix3:
    """The matrix of a rotation vector (rad)."""
    from scipy.spatial.transform import Rotation  # 0.2 s that most runs do not need

    return Rotation.from_rotvec(rotation_vector).as_matrix()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pose:
    """A frame in the world."""

    position: Vector3  # its origin (m)
    rotation: Matrix3  # its axes, as columns

    @classmethod
    def of(cls, view: Any) -> "Pose":
        """The current pose of a body or site: `Pose.of(data.body(name))`."""
        return cls(position=view.xpos.copy(), rotation=view.xmat.reshape(3, 3).copy())

    def to_world(self, points: Float64[np.ndarray, "*n 3"]) -> Float64[np.ndarray, "*n 3"]:
        """Transform points from this frame to the world."""
        return points @ self.rotation.T + self.position

    def to_local(self, points: Float64[np.ndarray, "*n 3"]) -> Float64[np.ndarray, "*n 3"]:
        """Transform points from the world to this frame."""
        return (points - self.position) @ self.rotation

    def after(self, inner: "Pose") -> "Pose":
        """Transform a pose from this frame to the world."""
        return Pose(position=self.to_world(inner.position), rotation=self.rotation @ inner.rotation)

    def seen_from(self, outer: "Pose") -> "Pose":
        """This pose in another frame; the inverse of `outer.after`."""
        return Pose(position=outer.to_local(self.position), rotation=outer.rotation.T @ self.rotation)

    def at_height(self, height: float) -> "Pose":
        """This pose moved vertically to a height (m)."""
        return Pose(position=np.array([*self.position[:2], height]), rotation=self.rotation)

    def shifted(self, way: Vector3) -> "Pose":
        """This pose translated by a vector (m) in world axes."""
        return Pose(position=self.position + way, rotation=self.rotation)

    def backed_off(self, distance: float) -> "Pose":
        """This gripper pose moved back by a distance (m) against its approach direction."""
        return self.shifted(-distance * self.rotation[:, 2])

    def moved(self, twist: Vector6) -> "Pose":
        """This pose after a translation (m) and a rotation about its origin (rad), in world axes."""
        return Pose(position=self.position + twist[:3], rotation=turn(twist[3:]) @ self.rotation)

    def twist_to(self, target: "Pose") -> Vector6:
        """The twist from this pose to a target, as taken by `moved`."""
        from scipy.spatial.transform import Rotation

        turned = Rotation.from_matrix(target.rotation @ self.rotation.T).as_rotvec()
        return np.concatenate([target.position - self.position, turned])

    def is_within(self, target: "Pose", metres: float, radians: float) -> bool:
        """Whether this pose is at most this far from a target and rotated by at most this much."""
        twist = self.twist_to(target)
        return bool(np.linalg.norm(twist[:3]) <= metres and np.linalg.norm(twist[3:]) <= radians)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Box:
    """A box in the world."""

    pose: Pose  # its center and axes
    half: Vector3  # half extents along them (m)

    def half_along(self, direction: Vector3) -> float:
        """Half its extent (m) along a direction of the world."""
        return float(np.abs(direction @ self.pose.rotation) @ self.half)
