"""A MuJoCo world as perturbations see and change it."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import mujoco
import numpy as np
from jaxtyping import Bool, Float64, Int

from sim_envs.moving import Bounds
from sim_envs.scripted.poses import Vector3
from sim_envs.scripted.surfaces import Collisions

CHANGEABLE = (
    *("cam_pos", "cam_quat", "light_diffuse", "light_dir", "light_pos", "geom_rgba", "geom_matid"),
    *("geom_friction", "body_mass", "dof_damping"),
)
"""The arrays of a model that a dimension may change; they are restored after the episode."""
_HEADLIGHT = ("ambient", "diffuse", "specular")
_EDGE = 0.97  # what is nearer to the centre of an image than this share of the way to its edge is in view


@dataclasses.dataclass(kw_only=True)
class Scene:
    """What dimensions may read and change of an episode."""

    model: mujoco.MjModel
    data: mujoco.MjData
    bounds: Bounds  # where objects may be, with the camera that is perturbed and the robot
    joints: Int[np.ndarray, " joint"]  # indices of the arm's joints in `qpos`
    grip: int  # id of the site between the fingertips
    objects: Mapping[str, int]  # bodies with a free joint that nothing else moves
    wanted: Sequence[int]  # bodies of the objects and fixtures of the task
    fixtures: Sequence[int] = ()  # other bodies that are not part of the background
    to_grasp: Sequence[int] = ()  # bodies among `objects` that are to be grasped
    solved: Callable[[], bool] = lambda: False  # whether the task's goal holds in the current state

    @functools.cached_property
    def collisions(self) -> Collisions:
        """The collision shapes, where they are now."""
        return Collisions(self.data, robot=self.bounds.robot)

    def part_of(self, *bodies: int) -> Bool[np.ndarray, " geom"]:
        """The geoms of bodies, and of everything that is fixed or jointed to them."""
        parents, kept = self.model.body_parentid, np.zeros(self.model.nbody, np.bool_)
        for body in range(1, self.model.nbody):  # parents come first
            kept[body] = body in bodies or kept[parents[body]]
        return kept[self.model.geom_bodyid]

    @property
    def of_robot(self) -> Bool[np.ndarray, " geom"]:
        """The robot's geoms."""
        return self.part_of(self.bounds.robot)

    @property
    def focus(self) -> Vector3:
        """The middle of the task's objects, m."""
        return np.mean([self.data.xpos[body] for body in self.wanted], axis=0)

    def seen(self) -> Float64[np.ndarray, " wanted"]:
        """The share of the geoms of each wanted body that the camera sees: within the image, not hidden."""
        data, camera, found = self.data, self.bounds.camera, []
        self.light()
        eye, axes = data.cam_xpos[camera].copy(), data.cam_xmat[camera].reshape(3, 3).copy()
        height = _EDGE * np.tan(np.radians(self.model.cam_fovy[camera]) / 2)
        hit = np.zeros(1, np.int32)
        for body in self.wanted:
            own = self.part_of(body)
            points = data.geom_xpos[own]
            inside = (points - eye) @ axes
            edge = -inside[:, 2:] * height * [self.bounds.aspect, 1.0]
            in_image = (np.abs(inside[:, :2]) <= edge).all(axis=1)
            free = []
            for point in points:
                way = (point - eye) / max(float(np.linalg.norm(point - eye)), 1e-9)
                mujoco.mj_ray(self.model, data, eye, way, None, 1, -1, hit)
                free.append(hit[0] < 0 or bool(own[hit[0]]))
            found.append(float((in_image & np.array(free, np.bool_)).mean()) if len(points) else 1.0)
        return np.array(found)

    def touching(self, group: Bool[np.ndarray, " geom"]) -> set[tuple[int, int]]:
        """Pairs of geoms in contact, at least one of which is in the group."""
        pairs = self.data.contact.geom
        return {(int(a), int(b)) for a, b in pairs[group[pairs].any(axis=1)]} if len(pairs) else set()

    def looks(self) -> dict[str, np.ndarray]:
        """A copy of what may be changed in the model."""
        return {name: each.copy() for name, each in self._changeable.items()}

    def look(self, values: Mapping[str, np.ndarray]) -> None:
        """Restore arrays of `looks`."""
        for name, value in values.items():
            self._changeable[name][:] = value
        self.light()

    def light(self) -> None:
        """Put cameras and lights where the model has them now."""
        mujoco.mj_camlight(self.model, self.data)

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """A copy of the state."""
        return self.data.qpos.copy(), self.data.qvel.copy()

    def place(self, state: tuple[np.ndarray, np.ndarray]) -> None:
        """Restore a state of `places`."""
        self.data.qpos[:], self.data.qvel[:] = state
        mujoco.mj_forward(self.model, self.data)

    @property
    def _changeable(self) -> dict[str, np.ndarray]:
        head = {name: getattr(self.model.vis.headlight, name) for name in _HEADLIGHT}
        return {**{name: getattr(self.model, name) for name in CHANGEABLE}, **head}
