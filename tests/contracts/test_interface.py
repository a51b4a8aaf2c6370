"""Interfaces: a difference between policy and world is refused; hold actions; declarations are checked."""

import dataclasses
import math

import numpy as np
import pytest

from contracts.errors import UsageError
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
    compare,
)

FRONT, WRIST = Camera(name="front", size=(64, 48)), Camera(name="wrist")
JOINTS, FINGER = Channels(name="joints", size=6, unit="rad"), Channels(name="finger", size=1, unit="m")
ARM = Interface(
    name="arm",
    observation=ObservationSpec(cameras=(FRONT, WRIST), state=(JOINTS, FINGER), rotation=Rotation.NONE),
    action=ActionSpec(
        channels=(
            ActionChannels(name="joints", size=6, unit="rad", motion=Motion.RELATIVE, hold=Hold.ZERO),
            ActionChannels(name="gripper", size=1, unit="1", motion=Motion.ABSOLUTE, hold=Hold.LAST_COMMAND),
        ),
        rotation=Rotation.NONE,
        grippers=(Gripper(name="gripper", open=-1.0, closed=1.0),),
        limits=(-1.0, 1.0),
        control_hz=10.0,
    ),
)


def changed(**action):
    return dataclasses.replace(ARM, name="other arm", action=dataclasses.replace(ARM.action, **action))


def seen(**changes):
    observation = dataclasses.replace(ARM.observation, **changes)
    return dataclasses.replace(ARM, name="other arm", observation=observation)


GRIPPER = ARM.action.channels[1]


def joints(**changes):
    return dataclasses.replace(ARM.action.channels[0], **changes)


DIFFERENCES = {
    "a pose for joints": changed(channels=(joints(name="pose", unit="m"), GRIPPER)),
    "absolute for relative": changed(channels=(joints(motion=Motion.ABSOLUTE), GRIPPER)),
    "another rotation": changed(rotation=Rotation.AXIS_ANGLE),
    "a gripper the other way round": changed(grippers=(Gripper(name="gripper", open=1.0, closed=-1.0),)),
    "no limits": changed(limits=None),
    "another rate": changed(control_hz=20.0),
    "degrees for radians": seen(state=(dataclasses.replace(JOINTS, unit="deg"), FINGER)),
    "the state in another order": seen(state=(FINGER, JOINTS)),
    "quaternions for axis-angle": seen(rotation=Rotation.QUATERNION_XYZW),
    "a camera upside down": seen(cameras=(dataclasses.replace(FRONT, rotated_deg=180), WRIST)),
    "a camera of another size": seen(cameras=(dataclasses.replace(FRONT, size=(48, 64)), WRIST)),
    "a camera less": seen(cameras=(FRONT,)),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_names_both_sides(name):
    with pytest.raises(UsageError, match=r"policy 'arm'.*environment 'other arm'"):
        compare(ARM, DIFFERENCES[name])


def test_extra_cameras_do_not_matter_and_a_missing_one_is_named_with_the_others():
    compare(ARM, dataclasses.replace(ARM, name="its world"))
    compare(ARM, seen(cameras=(Camera(name="top"), FRONT, WRIST)))
    compare(ARM, seen(cameras=(FRONT, Camera(name="wrist", size=(480, 640)))))
    with pytest.raises(UsageError, match=r"needs camera 'wrist'.* has wrist_left, front"):
        compare(ARM, seen(cameras=(FRONT, Camera(name="wrist_left"))))


def test_a_hold_action_holds_each_channel_as_declared():
    """Two arms under position control, each with a gripper: joints where they are, grippers as last told."""
    state, channels, grippers = [], [], []
    for side, opened in (("left", 1.0), ("right", 0.5)):
        state.append(Channels(name=side, size=2, unit="rad"))
        held = joints(name=side, size=2, motion=Motion.ABSOLUTE, hold=Hold.STATE, state=side)
        channels += [held, dataclasses.replace(GRIPPER, name=f"{side}_gripper")]
        grippers.append(Gripper(name=f"{side}_gripper", open=opened, closed=0.0))
    arms = dataclasses.replace(
        ARM,
        observation=dataclasses.replace(ARM.observation, state=tuple(state)),
        action=dataclasses.replace(ARM.action, channels=tuple(channels), grippers=tuple(grippers)),
    )
    state = np.array([0.1, 0.2, 0.3, 0.4])
    assert arms.hold_action(state, None).tolist() == [0.1, 0.2, 1.0, 0.3, 0.4, 0.5]
    assert arms.hold_action(state, np.arange(6.0)).tolist() == [0.1, 0.2, 2.0, 0.3, 0.4, 5.0]
    assert ARM.hold_action(np.ones(7), None).tolist() == [0.0] * 6 + [-1.0]
    reach = changed(channels=(joints(hold=Hold.LAST_COMMAND, state="joints"), GRIPPER))
    state = np.full(7, 0.5)
    assert reach.hold_action(state, None).tolist() == [0.5] * 6 + [-1.0]
    assert reach.hold_action(state, np.ones(7)).tolist() == [1.0] * 7


@pytest.mark.parametrize(
    "declare",
    [
        lambda: Gripper(name="gripper", open=1.0, closed=1.0),
        lambda: changed(grippers=()),
        lambda: changed(channels=ARM.action.channels[:1]),
        lambda: joints(hold=Hold.STATE),
        lambda: joints(state="joints"),
        lambda: changed(channels=(joints(hold=Hold.LAST_COMMAND), GRIPPER)),
        lambda: changed(channels=(joints(hold=Hold.STATE, state="finger"), GRIPPER)),
        lambda: changed(limits=(1.0, -1.0)),
        *(lambda hz=hz: changed(control_hz=hz) for hz in (0.0, -1.0, math.inf, math.nan)),
        lambda: seen(cameras=()),
        lambda: seen(cameras=(FRONT, FRONT)),
    ],
)
def test_conventions_that_contradict_themselves_are_refused(declare):
    with pytest.raises(UsageError):
        declare()
