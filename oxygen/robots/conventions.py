"""The conventions of the robots that published policies were trained on (openpi's LIBERO and DROID)."""

import dataclasses

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

_GRIPPER = ActionChannels(name="gripper", size=1, unit="1", motion=Motion.ABSOLUTE, hold=Hold.LAST_COMMAND)

LIBERO = Interface(
    name="LIBERO policy",
    observation=ObservationSpec(
        cameras=(
            Camera(name="image", size=(256, 256), rotated_deg=180),
            Camera(name="wrist_image", size=(256, 256), rotated_deg=180),
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
            _GRIPPER,
        ),
        rotation=Rotation.AXIS_ANGLE,
        grippers=(Gripper(name="gripper", open=-1.0, closed=1.0),),
        limits=(-1.0, 1.0),
        control_hz=20.0,
    ),
)
"""A Panda under robosuite's OSC_POSE: deltas as fractions of its maximal step (5 cm, 0.5 rad)."""

DROID = Interface(
    name="DROID policy",
    observation=ObservationSpec(
        cameras=(Camera(name="exterior_image_1_left"), Camera(name="wrist_image_left")),
        state=(
            Channels(name="joint_position", size=7, unit="rad"),
            Channels(name="gripper_position", size=1, unit="1"),
        ),
        rotation=Rotation.NONE,
    ),
    action=ActionSpec(
        channels=(
            ActionChannels(name="joint_velocity", size=7, unit="1", motion=Motion.VELOCITY, hold=Hold.ZERO),
            _GRIPPER,
        ),
        rotation=Rotation.NONE,
        grippers=(Gripper(name="gripper", open=0.0, closed=1.0),),
        limits=(-1.0, 1.0),
        control_hz=15.0,
    ),
)
"""A Franka of the DROID platform: normalised joint velocities, gripper position."""

DROID_JOINT_POSITION = dataclasses.replace(
    DROID,
    name="DROID policy, joint position",
    action=dataclasses.replace(
        DROID.action,
        channels=(
            dataclasses.replace(_GRIPPER, name="joint_position", size=7, unit="rad", state="joint_position"),
            _GRIPPER,
        ),
        limits=None,
    ),
)
"""The same Franka with joint position actions, as in openpi's `*_droid_jointpos*` policies."""
