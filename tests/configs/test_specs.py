"""A policy acts only where both sides mean the same by their numbers."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.errors import UsageError
from configs.specs import (
    ActionSpec,
    Camera,
    Channels,
    Gripper,
    Interface,
    Motion,
    ObservationSpec,
    Rotation,
    compare,
)

ARM = Interface(
    name="arm",
    observation=ObservationSpec(
        cameras=(Camera(name="front", size=(64, 48)), Camera(name="wrist")),
        state=(Channels(name="joints", size=6, unit="rad"), Channels(name="finger", size=1, unit="m")),
        rotation=Rotation.NONE,
    ),
    action=ActionSpec(
        channels=(Channels(name="joints", size=6, unit="rad"), Channels(name="gripper", size=1, unit="1")),
        motion=Motion.DELTA,
        rotation=Rotation.NONE,
        gripper=Gripper(open=-1.0, closed=1.0),
        limits=(-1.0, 1.0),
        control_hz=10.0,
    ),
)


def changed(**action):
    """Another arm, whose actions differ in this."""
    return dataclasses.replace(ARM, name="other arm", action=dataclasses.replace(ARM.action, **action))


def seen(**observation):
    """Another arm, whose observations differ in this."""
    return dataclasses.replace(
        ARM, name="other arm", observation=dataclasses.replace(ARM.observation, **observation)
    )


def test_the_same_conventions_agree():
    compare(ARM, dataclasses.replace(ARM, name="its world"))


DIFFERENCES = {
    "a pose for joints": changed(channels=(ARM.action.channels[1],)),
    "absolute for delta": changed(motion=Motion.ABSOLUTE),
    "another rotation": changed(rotation=Rotation.AXIS_ANGLE),
    "a gripper the other way round": changed(gripper=Gripper(open=1.0, closed=-1.0)),
    "a gripper of another range": changed(gripper=Gripper(open=0.0, closed=1.0)),
    "other limits": changed(limits=(-2.0, 2.0)),
    "another rate": changed(control_hz=20.0),
    "degrees for radians": seen(
        state=(Channels(name="joints", size=6, unit="deg"), ARM.observation.state[1])
    ),
    "the state in another order": seen(state=ARM.observation.state[::-1]),
    "quaternions for axis-angle": seen(rotation=Rotation.QUATERNION_XYZW),
    "a camera upside down": seen(
        cameras=(Camera(name="front", size=(64, 48), rotated_deg=180), Camera(name="wrist"))
    ),
    "a camera of another size": seen(
        cameras=(Camera(name="front", size=(48, 64)), Camera(name="wrist", size=(9, 9)))
    ),
    "a camera less": seen(cameras=(Camera(name="front", size=(64, 48)),)),
}


@pytest.mark.parametrize("other", DIFFERENCES.values(), ids=DIFFERENCES.keys())
def test_a_difference_names_both_sides_in_one_line(other):
    with pytest.raises(UsageError, match=r"policy 'arm'.*environment 'other arm'") as caught:
        compare(ARM, other)
    assert "\n" not in str(caught.value)


def test_both_values_are_told():
    with pytest.raises(UsageError, match="open -1, closed 1, environment 'other arm' has open 0, closed 1"):
        compare(ARM, changed(gripper=Gripper(open=0.0, closed=1.0)))


def test_a_policy_need_not_look_through_every_camera_nor_mind_its_size():
    compare(ARM, seen(cameras=(Camera(name="top"), *ARM.observation.cameras)))
    compare(ARM, seen(cameras=(ARM.observation.cameras[0], Camera(name="wrist", size=(480, 640)))))


def test_a_missing_camera_is_told_with_those_there_are():
    with pytest.raises(UsageError, match=r"lacks: unknown camera 'wrist'.*'wrist_left'"):
        compare(ARM, seen(cameras=(ARM.observation.cameras[0], Camera(name="wrist_left"))))


def test_sizes_and_places_follow_from_the_channels():
    assert (ARM.observation.state_size, ARM.action.size, ARM.action.channel("gripper")) == (7, 7, 6)
    with pytest.raises(UsageError, match="did you mean 'joints'"):
        ARM.action.channel("joint")


@pytest.mark.parametrize(
    "declare",
    [
        lambda: Channels(name="joints", size=0, unit="rad"),
        lambda: Gripper(open=1.0, closed=1.0),
        lambda: changed(gripper=None),
        lambda: changed(channels=ARM.action.channels[:1]),
        lambda: changed(limits=(1.0, -1.0)),
        lambda: seen(cameras=()),
        lambda: seen(cameras=(Camera(name="front"), Camera(name="front"))),
    ],
)
def test_conventions_that_contradict_themselves_are_refused(declare):
    with pytest.raises(UsageError):
        declare()


@given(st.floats().filter(lambda hz: not 0 < hz < math.inf))
def test_a_rate_is_a_positive_number(hz):
    with pytest.raises(UsageError, match="control_hz"):
        changed(control_hz=hz)
