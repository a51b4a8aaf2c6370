"""The interface of delta end-effector control, as of robosuite's OSC_POSE on a Panda."""

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


def delta_eef_interface(name: str, *, camera_size: int, control_hz: float) -> Interface:
    """An agent-view and a wrist camera; actions are fractions of the largest step (5 cm, 0.5 rad)."""
    size = (camera_size, camera_size)
    pose = [
        ActionChannels(name=each, size=3, unit="1", motion=Motion.RELATIVE, hold=Hold.ZERO)
        for each in ("eef_position", "eef_rotation")
    ]
    gripper = ActionChannels(name="gripper", size=1, unit="1", motion=Motion.ABSOLUTE, hold=Hold.LAST_COMMAND)
    return Interface(
        name=name,
        observation=ObservationSpec(
            cameras=tuple(Camera(name=each, size=size, rotated_deg=180) for each in ("image", "wrist_image")),
            state=(
                Channels(name="eef_position", size=3, unit="m"),
                Channels(name="eef_rotation", size=3, unit="rad"),
                Channels(name="gripper_joints", size=2, unit="m"),
            ),
            rotation=Rotation.AXIS_ANGLE,
        ),
        action=ActionSpec(
            channels=(*pose, gripper),
            rotation=Rotation.AXIS_ANGLE,
            grippers=(Gripper(name="gripper", open=-1.0, closed=1.0),),
            limits=(-1.0, 1.0),
            control_hz=control_hz,
        ),
    )
