"""DROID's interface in both control modes, to be compared with that of a policy."""

from configs.interface import (
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
from sim_envs.droid.control import CONTROL_HZ, Control

ASPECT = 16 / 9
"""Width of an image over its height."""

EXTERIOR_IMAGE, WRIST_IMAGE = "exterior_image_1_left", "wrist_image_left"

_ARM = {
    Control.JOINT_VELOCITY: ActionChannels(
        name="joint_velocity", size=7, unit="1", motion=Motion.VELOCITY, hold=Hold.ZERO
    ),
    Control.JOINT_POSITION: ActionChannels(
        name="joint_position",
        size=7,
        unit="rad",
        motion=Motion.ABSOLUTE,
        hold=Hold.LAST_COMMAND,
        state="joint_position",
    ),
}
_LIMITS = {Control.JOINT_VELOCITY: (-1.0, 1.0), Control.JOINT_POSITION: None}


def image_size(height: int) -> tuple[int, int]:
    """Height and width of an image, in the proportions of DROID's cameras (16 to 9)."""
    return height, round(height * ASPECT)


def interface(control: Control, *, image_height: int) -> Interface:
    """DROID's interface for a control mode and an image height in pixels."""
    size = image_size(image_height)
    gripper = ActionChannels(name="gripper", size=1, unit="1", motion=Motion.ABSOLUTE, hold=Hold.LAST_COMMAND)
    return Interface(
        name=f"DROID, {control.value.replace('_', ' ')}",
        observation=ObservationSpec(
            cameras=(Camera(name=EXTERIOR_IMAGE, size=size), Camera(name=WRIST_IMAGE, size=size)),
            state=(
                Channels(name="joint_position", size=7, unit="rad"),
                Channels(name="gripper_position", size=1, unit="1"),
            ),
            rotation=Rotation.NONE,
        ),
        action=ActionSpec(
            channels=(_ARM[control], gripper),
            rotation=Rotation.NONE,
            grippers=(Gripper(name="gripper", open=0.0, closed=1.0),),
            limits=_LIMITS[control],
            control_hz=CONTROL_HZ,
        ),
    )
