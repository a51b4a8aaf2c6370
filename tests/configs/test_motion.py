"""Motions as `--motion` spells them: units, canonical spelling, errors."""

import pytest

from configs.errors import UsageError
from configs.load import load
from configs.motion import Drift, Shuttle, parse_motion
from configs.schema import SuiteConfig


@pytest.mark.parametrize(
    ("text", "motion"),
    [
        ("none", None),
        ("shuttle:3", Shuttle(speed=0.03, period=4.0)),
        ("shuttle:1.5,2", Shuttle(speed=0.015, period=2.0)),
        ("drift:6", Drift(speed=0.06)),
    ],
)
def test_speeds_are_in_cm_per_second(text, motion):
    assert parse_motion(text) == motion


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("shutle:3", ["'shutle:3'", "did you mean 'shuttle:SPEED'", "cm/s"]),
        ("shuttle:fast", ["'shuttle:fast'", "SPEED is in cm/s"]),
        ("shuttle:0.03", ["speed 0.03 cm/s", "give 0.1 to 30 cm/s"]),
        ("shuttle:3,0.1", ["period 0.1 s", "1 to 60 s"]),
    ],
)
def test_a_wrong_motion_is_refused(text, words):
    with pytest.raises(UsageError) as error:
        parse_motion(text)
    assert all(word in str(error.value) for word in words)


def test_the_same_motion_has_one_spelling():
    suite = load(SuiteConfig, "libero_object")
    spellings = [SuiteConfig(**{**dict(suite), "motion": text}) for text in ("shuttle:3", "shuttle:3.0,4")]
    assert [each.motion for each in spellings] == ["shuttle:3,4", "shuttle:3,4"]
