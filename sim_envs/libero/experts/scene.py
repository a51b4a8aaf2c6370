"""Privileged state for experts: poses, shapes, joints, contacts and goals, read from MuJoCo."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float64

from contracts.truth import Phase
from sim_envs.moving import PredictedMotion
from sim_envs.scripted.kinematics import ReachabilityCheck
from sim_envs.scripted.poses import Box, Pose, Vector3, Vector6, turn
from sim_envs.scripted.surfaces import Bodies, Collisions, Points

_PHASES = {"open": Phase.OPEN, "close": Phase.CLOSE, "turnon": Phase.TURN_ON, "turnoff": Phase.TURN_OFF}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Goal:
    """One conjunct of a task's BDDL goal: `on(bowl, plate)`, `open(drawer)`."""

    predicate: str  # name in lower case
    arguments: tuple[str, ...]  # names of objects and regions

    def __str__(self) -> str:
        return f"{self.predicate}({', '.join(self.arguments)})"

    @property
    def phase(self) -> Phase:
        """The phase that opens, closes or switches the part."""
        return _PHASES[self.predicate]

    @classmethod
    def all_of(cls, goals: Iterable[Sequence[str]]) -> "tuple[Goal, ...]":
        """The goals of a parsed BDDL problem, in its order."""
        return tuple(cls(predicate=goal[0].lower(), arguments=tuple(goal[1:])) for goal in goals)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixtureJoint:
    """A joint of a fixture in its current state; values are metres for slides and radians for hinges."""

    name: str  # MuJoCo's name of the joint
    fixture: str  # LIBERO's name of the fixture
    body: int  # id of the body that it moves
    slides: bool  # whether it is a slide rather than a hinge
    axis: Vector3  # its axis in the world
    anchor: Vector3  # a point on the axis (m)
    value: float  # its position

    def carried(self, pose: Pose, by: float) -> Pose:
        """A pose fixed to the moving part, after a displacement of the joint."""
        if self.slides:
            return Pose(position=pose.position + by * self.axis, rotation=pose.rotation)
        turned = turn(by * self.axis)
        position = self.anchor + turned @ (pose.position - self.anchor)
        return Pose(position=position, rotation=turned @ pose.rotation)

    def direction_at(self, point: Vector3) -> Vector3:
        """Direction (unit vector) of a point of the moving part as the joint's value grows."""
        way = self.axis if self.slides else np.cross(self.axis, point - self.anchor)
        return way / max(float(np.linalg.norm(way)), 1e-9)


class ExpertScene:
    """Read access to one episode of a LIBERO environment.

    LIBERO may rebuild MuJoCo's model at a reset, so every episode needs a new instance.
    """

    def __init__(
        self, env: Any, predicted_motion: Callable[[str], PredictedMotion | None] = lambda _: None
    ) -> None:
        self.predicted_motion = predicted_motion  # of an object; None if it does not move by itself
        self._env, self._model, self._data = env, env.sim.model._model, env.sim.data._data
        self._grip_site = self._model.site(env.robots[0].controller.eef_name).id
        self.robot_root = int(self._model.body_rootid[self._model.site_bodyid[self._grip_site]])
        fingers = env.robots[0].gripper.important_geoms
        self._fingers = [
            {self._model.geom(name).id for name in fingers[side]} for side in ("left_finger", "right_finger")
        ]
        self.goals = Goal.all_of(env.parsed_problem["goal_state"])

    @property
    def seconds(self) -> float:
        """Simulated time since the model was reset."""
        return float(self._data.time)

    @property
    def base(self) -> Pose:
        """The pose of the robot's base."""
        return Pose.of(self._data.body(self.robot_root))

    @property
    def gripper(self) -> Pose:
        """The pose of the grip site: z points out of the hand, x from finger to finger."""
        return Pose.of(self._data.site(self._grip_site))

    @property
    def gripper_velocity(self) -> Vector6:
        """Linear (m/s) and angular (rad/s) velocity of the grip site, in world axes."""
        site, kind = self._grip_site, mujoco.mjtObj.mjOBJ_SITE
        velocity = np.zeros(6)
        mujoco.mj_objectVelocity(self._model, self._data, kind, site, velocity, 0)
        return np.concatenate([velocity[3:], velocity[:3]])

    @property
    def mobility(self) -> Float64[np.ndarray, "6 6"]:
        """Acceleration of the grip site (m/s², rad/s²) per wrench (N, Nm) on it: J M⁻¹ Jᵀ."""
        size = self._model.nv
        jacobian, inertia = np.zeros((6, size)), np.zeros((size, size))
        mujoco.mj_jacSite(self._model, self._data, jacobian[:3], jacobian[3:], self._grip_site)
        mujoco.mj_fullM(self._model, inertia, self._data.qM)
        arm = np.asarray(self._env.robots[0]._ref_joint_vel_indexes)
        jacobian = jacobian[:, arm]
        return jacobian @ np.linalg.solve(inertia[np.ix_(arm, arm)], jacobian.T)

    @property
    def opening(self) -> float:
        """Distance between the finger pads (m), 0.08 when fully open."""
        joints = self._env.robots[0]._ref_gripper_joint_pos_indexes
        return float(np.abs(self._data.qpos[joints]).sum())

    @property
    def finger_speed(self) -> float:
        """Speed at which the finger pads open or close (m/s)."""
        joints = self._env.robots[0]._ref_gripper_joint_vel_indexes
        return float(np.abs(self._data.qvel[joints]).sum())

    def satisfied(self, goal: Goal) -> bool:
        """Whether a goal holds now, by LIBERO's own predicate."""
        return bool(self._env._eval_predicate([goal.predicate, *goal.arguments]))

    def position(self, name: str) -> Vector3:
        """Position (m) of an object or region that LIBERO's predicates use."""
        if name in self._env.object_sites_dict:
            return self._data.site(name).xpos.copy()
        return self.pose(name).position

    def region(self, name: str) -> Box | None:
        """The box of a region that LIBERO's predicates use; None for an object."""
        if name not in self._env.object_sites_dict:
            return None
        half = np.asarray(self._env.object_sites_dict[name].size, np.float64)
        return Box(pose=Pose.of(self._data.site(name)), half=half)

    def reach(self) -> ReachabilityCheck:
        """A reachability check on a copy of the current state."""
        robot = self._env.robots[0]
        ranges = {name: self._model.joint(name).range for name in robot.gripper.joints}
        return ReachabilityCheck(
            self._data,
            site=self._grip_site,
            joints=robot.robot_joints,
            open_fingers={name: float(ends[np.abs(ends).argmax()]) for name, ends in ranges.items()},
            resting=np.asarray(robot.controller.initial_joint),
        )

    def body(self, name: str) -> int:
        """Id of an object's body."""
        return int(self._env.obj_body_id[name])

    @property
    def movable(self) -> frozenset[str]:
        """Names of the movable objects, without fixtures."""
        return frozenset(self._env.objects_dict)

    def owner(self, name: str) -> str:
        """The object that a region belongs to; an object's own name; empty for regions of floor or table."""
        region = self._env.object_sites_dict.get(name)
        return name if region is None else getattr(region, "parent_name", None) or ""

    def pose(self, name: str) -> Pose:
        """The pose of an object."""
        return Pose.of(self._data.body(self.body(name)))

    def center_of_mass(self, name: str) -> Vector3:
        """The center of mass of an object (m)."""
        return self._data.subtree_com[self.body(name)].copy()

    def surface(self, name: str) -> Points:
        """Points on an object's collision surface, in world coordinates."""
        return self._collisions.surface(self._model.body_rootid == self._root(name))

    def contents(self, name: str) -> frozenset[str]:
        """Names of movable objects that touch an object and have their center of mass in its bounding box.

        What is under a cover does not touch it, and stays where it is.
        """
        low, high = self.surface(name).min(axis=0), self.surface(name).max(axis=0)
        touched = {int(self._model.body_rootid[self._model.geom_bodyid[each]]) for each in self._beside(name)}
        return frozenset(
            other
            for other in self.movable - {name}
            if self._root(other) in touched
            and np.all((low < self.center_of_mass(other)) & (self.center_of_mass(other) < high))
        )

    def surroundings(self, *without: str) -> Points:
        """Points on all collision surfaces except those of the robot and the named objects."""
        hidden = np.isin(self._model.body_rootid, [self._root(name) for name in without])
        return self._collisions.surface(~hidden)

    def joint(self, name: str) -> FixtureJoint | None:
        """The joint of a drawer's region, or of a fixture with one moving part; None if there is none."""
        region = self._env.object_sites_dict.get(name)
        owner = self._env.fixtures_dict.get(name) if region is None else region
        names = list(owner.joints or ()) if owner is not None else []
        if len(names) != 1:
            return None
        joint = self._model.joint(names[0]).id
        return FixtureJoint(
            name=names[0],
            fixture=name if region is None else region.parent_name,
            body=int(self._model.jnt_bodyid[joint]),
            slides=bool(self._model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_SLIDE),
            axis=self._data.xaxis[joint].copy(),
            anchor=self._data.xanchor[joint].copy(),
            value=float(self._data.qpos[self._model.jnt_qposadr[joint]]),
        )

    def container(self, region: str) -> FixtureJoint | None:
        """The joint that opens a region: of its drawer, or of its fixture's door; None if always open."""
        joint = self.joint(region) or self.joint(self.owner(region))
        return joint if joint is not None and self.wanted("open", joint) else None

    def wanted(self, predicate: str, joint: FixtureJoint) -> tuple[float, float] | None:
        """The range of joint values in which a predicate holds, as LIBERO defines it; None if undefined."""
        table = self._env.get_object(joint.fixture).object_properties["articulation"]
        values = table.get(f"default_{predicate}_ranges")
        return (float(min(values)), float(max(values))) if values else None

    def part_boxes(self, joint: FixtureJoint) -> list[Box]:
        """Bounding boxes of the collision shapes of the part that a joint moves."""
        return self._collisions.boxes(self._moved_by(joint))

    def around_part(self, joint: FixtureJoint) -> tuple[Points, Points, Points]:
        """Points on the part that a joint moves, on all else but the robot, and of these on what is fixed."""
        own, surface = self._moved_by(joint), self._collisions.surface
        free = self._model.jnt_bodyid[self._model.jnt_type == mujoco.mjtJoint.mjJNT_FREE]
        fixed = ~np.isin(self._model.body_rootid, free)
        return surface(own), surface(~own), surface(fixed & ~own)

    def fingers_touching(self, name: str) -> int:
        """Number of fingers that touch an object: 0, 1 or 2."""
        beside = self._beside(name)
        return sum(bool(finger & beside) for finger in self._fingers)

    @functools.cached_property
    def _collisions(self) -> Collisions:
        return Collisions(self._data, robot=self.robot_root)

    def _beside(self, name: str) -> set[int]:
        """The geoms that touch an object."""
        pairs = self._data.contact.geom[: self._data.ncon]
        roots = self._model.body_rootid[self._model.geom_bodyid[pairs]]
        return {int(geom) for geom in pairs[:, ::-1][roots == self._root(name)]}

    def _root(self, name: str) -> int:
        return int(self._model.body_rootid[self.body(name)])

    def _moved_by(self, joint: FixtureJoint) -> Bodies:
        moved = np.arange(self._model.nbody) == joint.body
        for body in range(joint.body + 1, self._model.nbody):  # parents come first
            moved[body] = moved[self._model.body_parentid[body]]
        return moved
