"""Converts actions to motor targets, for DROID's two control modes and its gripper."""

import enum

import numpy as np
from jaxtyping import Float64

from sim_envs.droid.robot import DAMPING, GRIPPER_STROKE, MAX_VELOCITY, STIFFNESS

CONTROL_HZ = 15.0

MAX_STEP = 0.2
"""Lead (rad) of a joint's target at a velocity of 1; the joint moves by less in a step."""

GRIPPER_SPEED = 0.05 / GRIPPER_STROKE
"""Speed of the gripper as a fraction of its range per second: 5 cm/s."""

_CLOSES_ABOVE = 0.5
_GRIPPER_LEAD = 0.1
"""Lead of the gripper's target, as a fraction of its range: enough for full torque."""

Joints = Float64[np.ndarray, " 7"]

_LONGEST_LEAD = np.array(DAMPING) * np.array(MAX_VELOCITY) / np.array(STIFFNESS)
"""Lead (rad) of a target at which spring and damper balance at maximal velocity."""


class Control(enum.StrEnum):
    """Control mode: the meaning of an action's first seven channels."""

    JOINT_VELOCITY = "joint_velocity"
    """Offsets from the current joint positions, in units of 0.2 rad per control step."""
    JOINT_POSITION = "joint_position"
    """Target joint positions, rad."""


def arm_target(control: Control, command: Joints, measured: Joints) -> Joints:
    """The joint position targets (rad) for a control step.

    Velocities with a maximum above 1 are scaled down together, as in DROID. The lead of targets is limited so
    that no joint exceeds its maximal velocity.

    Args:
        control: The control mode.
        command: The first seven channels of an action.
        measured: Current joint positions, rad.
    """
    if control is Control.JOINT_VELOCITY:
        target = measured + MAX_STEP * command / max(1.0, float(np.abs(command).max()))
    else:
        target = command
    return measured + np.clip(target - measured, -_LONGEST_LEAD, _LONGEST_LEAD)


def gripper_target(command: float, target: float, measured: float) -> float:
    """The gripper's target (0 open, 1 closed) for a control step.

    Args:
        command: Closes above 0.5, else opens.
        target: Target of the previous step.
        measured: Current position.
    """
    goal = 1.0 if command > _CLOSES_ABOVE else 0.0
    step = GRIPPER_SPEED / CONTROL_HZ
    moved = target + float(np.clip(goal - target, -step, step))
    return float(np.clip(moved, measured - _GRIPPER_LEAD, measured + _GRIPPER_LEAD))
