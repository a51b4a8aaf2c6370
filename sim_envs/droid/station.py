"""The physics of one task: its scene as a MuJoCo model, initial states, control steps, moving objects."""

import copy
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

import mujoco
import numpy as np
from jaxtyping import Float64

from configs.droid import CONTROL_HZ
from contracts.hashing import seed_of
from contracts.motion import Drift, Shuttle
from sim_envs.droid.control import (
    ARM_JOINTS,
    ASPECT,
    EXTERIOR_CAMERA,
    FINGER_JOINT,
    GRIP_SITE,
    GRIPPER_CLOSED,
    Control,
    arm_target,
    gripper_target,
)
from sim_envs.droid.shapes import Articulated, Painted, about_z, corners, half_extent, is_too_wide
from sim_envs.droid.task_file import FARTHEST, NEAREST, ObjectConfig, TaskConfig, draw
from sim_envs.droid.variation import TABLE_COLOR, VariedScene, distractors
from sim_envs.moving import Bounds, Mover, sample_movers
from sim_envs.perturbations.perturber import Perturber
from sim_envs.perturbations.scene import Scene
from sim_envs.scripted.poses import Pose
from sim_envs.world import PhysicsError

_STATION = Path(__file__).with_name("robot_model") / "station.xml"  # room, table, cameras and robot

PHYSICS_STEPS = 40  # physics steps per control step; their duration is that of the station
_TABLE_GREY = 0.8  # brightness of the texture of a tinted table
_SCENE_CONTYPE, _SCENE_CONAFFINITY = "2", "3"  # objects and table collide with each other and the robot
_TORSIONAL, _ROLLING = 0.005, 0.001  # torsional and rolling friction, m


def part_name(name: str, part: str) -> str:
    """The model's name of an object's moving part, of its joint and of its motor."""
    return f"{name}_{part}"


def build_model(task: TaskConfig, *, varies: bool = False) -> mujoco.MjModel:
    """Compile a task's scene. Objects are at the origin until a state is set.

    If it `varies`, the table can be tinted and weightless distractors are below the floor. This changes no
    image, and hardly the physics.
    """
    root = ET.parse(_STATION).getroot()
    root.set("model", task.name)
    (compiler,) = root.iterfind("compiler")
    compiler.set("meshdir", str(_STATION.parent))
    for name, obj in task.objects.items():
        _add_object(root, name, obj)
    if varies:
        (option,) = root.iterfind("option")
        option.set("jacobian", "sparse")  # hidden bodies then cost little
        (texture,) = root.iterfind("asset/texture[@name='wood']")
        (material,) = root.iterfind("asset/material[@name='wood']")
        for part in ("rgb1", "rgb2", "markrgb"):
            green = float(texture.get(part, "").split()[1])
            texture.set(part, _numbers([_TABLE_GREY * green / TABLE_COLOR[1]] * 3))
        material.set("rgba", f"{_numbers(channel / _TABLE_GREY for channel in TABLE_COLOR)} 1")
        for number, (name, distractor) in enumerate(distractors(task).items()):
            body = _add_object(root, name, distractor)
            body.attrib |= {"pos": _numbers((0.3 * number, 0.0, -3.0)), "gravcomp": "1"}
    return mujoco.MjModel.from_xml_string(ET.tostring(root, encoding="unicode"))


def _add_object(root: ET.Element, name: str, obj: ObjectConfig) -> ET.Element:
    """Add an object's body, its moving parts and their motors. Returns the body.

    Parts with motors do not collide with the rest of the object, or the table.
    """
    (world,) = root.iterfind("worldbody")
    body = ET.SubElement(world, "body", name=name)
    if not obj.is_fixed:
        ET.SubElement(body, "freejoint", name=name)
    pieces = [(body, piece) for piece in obj.shape.pieces()]
    for part in obj.shape.parts() if isinstance(obj.shape, Articulated) else ():
        own = part_name(name, part.name)
        moving = ET.SubElement(body, "body", name=own, pos=_numbers(part.pos))
        pieces += [(moving, piece) for piece in part.pieces]
        joint = ET.fromstring(part.joint)
        joint.set("name", own)
        moving.append(joint)
        if part.motor:
            motor = ET.fromstring(part.motor)
            motor.attrib |= {"name": own, "joint": own}
            ET.SubElement(root, "actuator").append(motor)
            for other in (name, "world"):
                ET.SubElement(ET.SubElement(root, "contact"), "exclude", body1=other, body2=own)
    density = obj.mass / sum(piece.volume for _, piece in pieces)
    collides = not isinstance(obj.shape, Painted)
    for holder, piece in pieces:
        is_part = holder is not body
        shade = 0.75 if is_part else 1.0
        ET.SubElement(
            holder,
            "geom",
            {} if obj.rolling is None else {"priority": "1"},
            type=piece.type,
            size=_numbers(piece.size),
            pos=_numbers(piece.pos),
            quat=_numbers(piece.quat),
            mass=f"{density * piece.volume:.9f}",
            rgba=f"{_numbers(channel * shade for channel in obj.color)} 1",
            friction=f"{obj.friction} {_TORSIONAL} {_ROLLING if obj.rolling is None else obj.rolling}",
            condim="4" if piece.type == "box" or is_part else "6",  # rolling friction stops round objects
            contype=_SCENE_CONTYPE if collides else "0",
            conaffinity=_SCENE_CONAFFINITY if collides else "0",
            group="1",
            solref="0.006 1",
        )
    return body


def _numbers(values: Iterable[float]) -> str:
    return " ".join(f"{value:.9g}" for value in values)


UPRIGHT = 0.95  # minimal cosine of the tilt of an upright object


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectPose(Pose):
    """The pose of an object, whose origin is the center of its underside, and its bounds."""

    low: Float64[np.ndarray, " 3"]  # lower corner of its axis-aligned bounding box, m
    high: Float64[np.ndarray, " 3"]  # upper corner of it, m
    corners: Float64[np.ndarray, "8 3"]  # corners of its oriented bounding box, m

    @property
    def middle(self) -> Float64[np.ndarray, " 3"]:
        """Center of its axis-aligned bounding box, m."""
        return (self.low + self.high) / 2

    @property
    def is_upright(self) -> bool:
        """Whether its axis is vertical, either end up."""
        return bool(abs(self.rotation[2, 2]) > UPRIGHT)


def loose(task: TaskConfig) -> list[str]:
    """The objects that initially lie on the table and can be moved."""
    return [name for name, obj in task.objects.items() if not (obj.is_fixed or obj.carrier)]


def movable(task: TaskConfig) -> list[str]:
    """The objects that the rubric requires to be grasped and that initially stand on the table."""
    grasping = ("lift", "on_top", "inside", "upright")
    wanted = dict.fromkeys(each.object for each in task.rubric if each.kind in grasping)
    free = loose(task)
    return [name for name in wanted if name in free and not is_too_wide(task.objects[name].shape)]


# DROID's initial joint positions, rad.
RESET_JOINTS = np.array([0, -np.pi / 5, 0, -4 * np.pi / 5, 0, 3 * np.pi / 5, 0])
_DIVERGED = [getattr(mujoco.mjtWarning, f"mjWARN_BAD{kind}") for kind in ("QPOS", "QVEL", "QACC")]


class Station:
    """The compiled scene of a task and its state."""

    def __init__(
        self,
        task: TaskConfig,
        control: Control,
        *,
        is_arranged: "Callable[[Station], bool]",
        variation: float = 0.0,
        motion: Shuttle | Drift | None = None,
    ) -> None:
        """Build and compile the scene.

        `is_arranged` says whether its objects are as the task wants them; other arguments as for `DroidSim`.
        """
        self.task, self.control, self._is_arranged = task, control, is_arranged
        # Fixed objects and variation are those of the last reset.
        self.model = build_model(task, varies=variation > 0)
        self._varied = VariedScene(task, self.model, strength=variation) if variation > 0 else None
        self.data = mujoco.MjData(self.model)
        self.qpos = np.array([self.model.joint(name).qposadr[0] for name in ARM_JOINTS])  # indices
        self._finger = int(self.model.joint(FINGER_JOINT).qposadr[0])
        self._driven = {
            int(self.model.actuator(part_name(name, part.name)).id): part
            for name, obj in task.objects.items()
            if isinstance(obj.shape, Articulated)
            for part in obj.shape.parts()
            if part.motor
        }
        self._gripper_target = 0.0
        self._begun: float | None = None
        self._motion = motion
        self.movers: Mapping[str, Mover] = {}  # of the episode, by name of the object
        self.perturber = Perturber(CONTROL_HZ)

    @property
    def joints(self) -> Float64[np.ndarray, " 7"]:
        """The arm's joint positions, rad."""
        return self.data.qpos[self.qpos]

    @property
    def gripper(self) -> float:
        """0 open, 1 closed."""
        return float(np.clip(self.data.qpos[self._finger] / GRIPPER_CLOSED, 0.0, 1.0))

    @property
    def end_effector(self) -> Float64[np.ndarray, " 3"]:
        """Position between the fingertips, m."""
        return self.data.site(GRIP_SITE).xpos.copy()

    @property
    def has_begun(self) -> bool:
        """Whether the episode's first control step has been run."""
        return self._begun is not None and self.data.time > self._begun

    def pose(self, name: str) -> ObjectPose:
        """The current pose of an object."""
        pose, shape = Pose.of(self.data.body(name)), self.task.objects[name].shape
        points, half = pose.to_world(corners(shape)), half_extent(shape, pose.rotation)
        middle = points.mean(axis=0)
        return ObjectPose(**vars(pose), low=middle - half, high=middle + half, corners=points)

    def copy(self) -> "Station":
        """An independent copy of the current state."""
        twin = copy.copy(self)
        twin.data = copy.copy(self.data)
        twin.movers = {name: mover.copy(twin.data) for name, mover in self.movers.items()}
        return twin

    def reset(self, *, init_id: int, seed: int, settle_steps: int) -> None:
        """Load an initial state and hold still for `settle_steps`.

        The drives of machines start only then, or after their delay; so does motion.
        """
        self.movers = {}
        self.perturber.restore()
        mujoco.mj_resetData(self.model, self.data)
        if self._varied is not None:
            self._varied.apply(self.data, init_id=init_id, seed=seed)
        for name, place in draw(self.task, init_id=init_id, seed=seed).items():
            obj = self.task.objects[name]
            turned, at = about_z(place.yaw), np.array([place.x, place.y, place.z])
            if obj.lying:  # a quarter turn about y first: the underside is at the rear end
                cos, _, _, sin = (math.sqrt(0.5) * part for part in turned)
                turned = cos, -sin, cos, sin
                length, radius = obj.shape.extent[2], obj.shape.extent[0] / 2
                at += np.array([-np.cos(place.yaw) * length / 2, -np.sin(place.yaw) * length / 2, radius])
            if obj.is_fixed:
                body = self.model.body(name).id
                self.model.body_pos[body], self.model.body_quat[body] = at, turned
            else:
                self.data.joint(name).qpos[:] = [*at, *turned]
        self.data.qpos[self.qpos] = RESET_JOINTS
        self._gripper_target, self._begun = 0.0, None
        mujoco.mj_forward(self.model, self.data)
        for _ in range(settle_steps):
            self._drive(RESET_JOINTS, 0.0)
        self._begun = self.data.time
        digest = seed_of(f"{self.task.name}.{init_id}.{seed}")
        self.perturber.begin(self._scene, digest)
        if self._motion is not None:
            bodies = self._bodies(movable(self.task))
            with self.perturber.control_view():
                self.movers = sample_movers(self.data, bodies, self._motion, self._bounds, digest=digest)
            self.perturber.without(self.movers)

    @property
    def _bounds(self) -> Bounds:
        return Bounds(
            robot=self.model.body("link0").id,
            reach=(NEAREST, FARTHEST),
            camera=self.model.camera(EXTERIOR_CAMERA).id,
            aspect=ASPECT,
        )

    def _bodies(self, names: Iterable[str]) -> dict[str, int]:
        return {name: int(self.model.body(name).id) for name in names}

    def _scene(self) -> Scene:
        """What perturbations see of an episode that has just been reset."""
        return Scene(
            model=self.model,
            data=self.data,
            bounds=self._bounds,
            joints=self.qpos,
            grip=self.model.site(GRIP_SITE).id,
            objects=self._bodies(loose(self.task)),
            wanted=list(self._bodies(self.task.objects).values()),
            to_grasp=list(self._bodies(movable(self.task)).values()),
            solved=lambda: self._is_arranged(self),
        )

    def step(self, action: Float64[np.ndarray, " 8"]) -> None:
        """Run one control step; a PhysicsError if the physics diverged."""
        self._drive(arm_target(self.control, action[:7], self.joints), float(action[7]))

    def _drive(self, arm: Float64[np.ndarray, " 7"], gripper: float) -> None:
        """Run one control step towards joint positions (rad)."""
        self._gripper_target = gripper_target(gripper, self._gripper_target, self.gripper)
        self.data.ctrl[:7] = arm
        self.data.ctrl[7] = self._gripper_target * GRIPPER_CLOSED
        for motor, part in self._driven.items():
            runs = self._begun is not None and self.data.time - self._begun >= part.delay
            self.data.ctrl[motor] = part.target if runs else 0.0
        at_once = 1 if self.movers else PHYSICS_STEPS
        for _ in range(PHYSICS_STEPS // at_once):
            mujoco.mj_step(self.model, self.data, at_once)
            for mover in self.movers.values():
                mover.lead()
        if any(self.data.warning[kind].number for kind in _DIVERGED):
            raise PhysicsError(f"MuJoCo's state diverged in task {self.task.name}")
        # After mj_step, poses are those before the last integration.
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)
