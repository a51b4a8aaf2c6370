"""From actions to motor targets: DROID's two ways to command the arm, and its gripper."""

import enum

import numpy as np
from jaxtyping import Float64

from sim_envs.droid.robot import DAMPING, MAX_VELOCITY, STIFFNESS

CONTROL_HZ = 15.0

MAX_STEP = 0.2
"""Radians by which the target of a joint leads at a velocity of 1; the joint moves by less in a step."""

GRIPPER_SPEED = 0.05 / 0.085
"""Shares of its range that the gripper moves in a second: 5 cm/s of 8.5 cm."""

_CLOSES_ABOVE = 0.5
_GRIPPER_LEAD = 0.1
"""How far (shares of its range) the gripper's target leads: enough for the full torque."""

Joints = Float64[np.ndarray, " 7"]

_LONGEST_LEAD = np.array(DAMPING) * np.array(MAX_VELOCITY) / np.array(STIFFNESS)
"""Lead (rad) of a target at which spring and damper balance at the greatest velocity."""


class Control(enum.StrEnum):
    """What the first seven numbers of an action ask for."""

    JOINT_VELOCITY = "joint_velocity"
    """Shares of 0.2 rad per control step, added to where the joints are."""
    JOINT_POSITION = "joint_position"
    """Where the joints are to be, rad."""


def arm_target(control: Control, command: Joints, measured: Joints) -> Joints:
    """The joint positions (rad) that the arm's springs pull to during a control step.

    Velocities whose greatest exceeds 1 are scaled down together, as DROID does. No target leads so far that
    a joint would exceed its greatest velocity.

    Args:
        control: What the command asks for.
        command: The first seven numbers of an action.
        measured: The joints as they are now, rad.
    """
    if control is Control.JOINT_VELOCITY:
        target = measured + MAX_STEP * command / max(1.0, float(np.abs(command).max()))
    else:
        target = command
    return measured + np.clip(target - measured, -_LONGEST_LEAD, _LONGEST_LEAD)


def gripper_target(command: float, target: float, measured: float) -> float:
    """Where the gripper (0 open, 1 closed) is driven to during a control step.

    Args:
        command: Closes above 0.5, else opens.
        target: Where it was driven to in the step before.
        measured: Where it is.
    """
    goal = 1.0 if command > _CLOSES_ABOVE else 0.0
    step = GRIPPER_SPEED / CONTROL_HZ
    moved = target + float(np.clip(goal - target, -step, step))
    return float(np.clip(moved, measured - _GRIPPER_LEAD, measured + _GRIPPER_LEAD))
