"""What LIBERO means by its numbers, declared to be compared with what a policy means by them."""

from configs.specs import ActionSpec, Camera, Channels, Gripper, Interface, Motion, ObservationSpec, Rotation

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
            Channels(name="eef_position", size=3, unit="1"),
            Channels(name="eef_rotation", size=3, unit="1"),
            Channels(name="gripper", size=1, unit="1"),
        ),
        motion=Motion.DELTA,
        rotation=Rotation.AXIS_ANGLE,
        gripper=Gripper(open=-1.0, closed=1.0),
        limits=(-1.0, 1.0),
        control_hz=20.0,
    ),
)
"""A Panda under robosuite's OSC_POSE: actions are shares of the largest step (5 cm, 0.5 rad)."""
