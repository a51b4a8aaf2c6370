"""DROID's robot, its interface in both control modes, and how actions become motor targets."""

import enum

import numpy as np
from jaxtyping import Float64

from configs.droid import CONTROL_HZ, DAMPING, MAX_STEP, STIFFNESS
from contracts.interface import (
    ActionChannels,
    ActionSpec,
    Camera,
    Channels,
    Gripper,
    Hold,
    Interface,
    Motion,
    ObservationSpec,
    Rotation,
)

ROBOSUITE = "1.4.0"  # the version of robosuite whose robot this is
ARM_JOINTS = tuple(f"joint{number}" for number in range(1, 8))
FINGER_JOINT = "finger_joint"
FINGER_JOINTS = (
    FINGER_JOINT,
    "right_outer_knuckle_joint",
    "left_inner_knuckle_joint",
    "right_inner_knuckle_joint",
    "left_inner_finger_joint",
    "right_inner_finger_joint",
)
GRIP_SITE = "grip_site"

MAX_VELOCITY = (2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61)  # the Panda's velocity limits, rad/s
FRICTION = (0.3, 0.3, 0.3, 0.3, 0.2, 0.15, 0.1)  # dry friction of each joint (Nm), with Franka's compensation
GRIPPER_STROKE = 0.085  # greatest distance between the fingertips, m
GRIPPER_CLOSED = 0.8  # angle (rad) of the finger joint at which the pads meet; 0 is fully open, 85 mm
GRIPPER_SPEED = 0.05 / GRIPPER_STROKE  # speed of the gripper as a fraction of its range per second: 5 cm/s
_CLOSES_ABOVE = 0.5
_GRIPPER_LEAD = 0.1  # lead of the gripper's target, as a fraction of its range: enough for full torque

# Lead (rad) of a target at which spring and damper balance at maximal velocity.
_LONGEST_LEAD = np.array(DAMPING) * np.array(MAX_VELOCITY) / np.array(STIFFNESS)

Joints = Float64[np.ndarray, " 7"]


class Control(enum.StrEnum):
    """Control mode: the meaning of an action's first seven channels."""

    JOINT_VELOCITY = "joint_velocity"
    """Offsets from the current joint positions, in units of 0.2 rad per control step."""
    JOINT_POSITION = "joint_position"
    """Target joint positions, rad."""


def arm_target(control: Control, command: Joints, measured: Joints) -> Joints:
    """The joint position targets (rad) for a control step.

    Velocities with a maximum above 1 are scaled down together, as in DROID. The lead of targets over the
    measured positions (rad) is limited so that no joint exceeds its maximal velocity.
    """
    if control is Control.JOINT_VELOCITY:
        target = measured + MAX_STEP * command / max(1.0, float(np.abs(command).max()))
    else:
        target = command
    return measured + np.clip(target - measured, -_LONGEST_LEAD, _LONGEST_LEAD)


def gripper_target(command: float, target: float, measured: float) -> float:
    """The gripper's next target (0 open, 1 closed); a command above 0.5 closes, any other opens."""
    goal = 1.0 if command > _CLOSES_ABOVE else 0.0
    step = GRIPPER_SPEED / CONTROL_HZ
    moved = target + float(np.clip(goal - target, -step, step))
    return float(np.clip(moved, measured - _GRIPPER_LEAD, measured + _GRIPPER_LEAD))


ASPECT = 16 / 9  # width of an image over its height
EXTERIOR_CAMERA = "exterior"  # the model's name of the exterior camera
CAMERAS = {"exterior_image_1_left": EXTERIOR_CAMERA, "wrist_image_left": "wrist"}  # policies' names to them


def image_size(height: int) -> tuple[int, int]:
    """Height and width of an image, in the proportions of DROID's cameras (16 to 9)."""
    return height, round(height * ASPECT)


def interface(control: Control, *, image_height: int) -> Interface:
    """DROID's interface for a control mode and an image height in pixels."""
    size, name, last = image_size(image_height), control.value, Hold.LAST_COMMAND
    if control is Control.JOINT_VELOCITY:
        arm = ActionChannels(name=name, size=7, unit="1", motion=Motion.VELOCITY, hold=Hold.ZERO)
        limits = (-1.0, 1.0)
    else:
        arm = ActionChannels(name=name, size=7, unit="rad", motion=Motion.ABSOLUTE, hold=last, state=name)
        limits = None
    gripper = ActionChannels(name="gripper", size=1, unit="1", motion=Motion.ABSOLUTE, hold=last)
    return Interface(
        name=f"DROID, {control.value.replace('_', ' ')}",
        observation=ObservationSpec(
            cameras=tuple(Camera(name=camera, size=size) for camera in CAMERAS),
            state=(
                Channels(name="joint_position", size=7, unit="rad"),
                Channels(name="gripper_position", size=1, unit="1"),
            ),
            rotation=Rotation.NONE,
        ),
        action=ActionSpec(
            channels=(arm, gripper),
            rotation=Rotation.NONE,
            grippers=(Gripper(name="gripper", open=0.0, closed=1.0),),
            limits=limits,
            control_hz=CONTROL_HZ,
        ),
    )
