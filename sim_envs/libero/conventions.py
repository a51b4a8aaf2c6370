"""LIBERO's interface, to be compared with that of a policy."""

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

_SIZE = (256, 256)

LIBERO_INTERFACE = Interface(
    name="LIBERO",
    observation=ObservationSpec(
        cameras=(
            Camera(name="image", size=_SIZE, rotated_deg=180),
            Camera(name="wrist_image", size=_SIZE, rotated_deg=180),
        ),
        state=(
            Channels(name="eef_position", size=3, unit="m"),
            Channels(name="eef_rotation", size=3, unit="rad"),
            Channels(name="gripper_joints", size=2, unit="m"),
        ),
        rotation=Rotation.AXIS_ANGLE,
    ),
    action=ActionSpec(
        channels=(
            ActionChannels(name="eef_position", size=3, unit="1", motion=Motion.RELATIVE, hold=Hold.ZERO),
            ActionChannels(name="eef_rotation", size=3, unit="1", motion=Motion.RELATIVE, hold=Hold.ZERO),
            ActionChannels(name="gripper", size=1, unit="1", motion=Motion.ABSOLUTE, hold=Hold.LAST_COMMAND),
        ),
        rotation=Rotation.AXIS_ANGLE,
        grippers=(Gripper(name="gripper", open=-1.0, closed=1.0),),
        limits=(-1.0, 1.0),
        control_hz=20.0,
    ),
)
"""A Panda under robosuite's OSC_POSE: actions are shares of the largest step (5 cm, 0.5 rad)."""
