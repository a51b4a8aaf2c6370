"""Perturbations are spelled in one place, and what is misspelt says what is meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import UsageError
from contracts.perturbation import (
    DIMENSIONS,
    SEVERITIES,
    Perturbation,
    combined,
    format_perturbations,
    parse_perturbations,
)

TIMED = [name for name in DIMENSIONS if name not in ("robot", "swap")]
parts = st.builds(
    Perturbation,
    st.sampled_from(TIMED),
    st.sampled_from(SEVERITIES),
    st.integers(0, 4000).map(lambda ms: ms / 100),
)


@given(st.lists(parts, unique_by=lambda part: part.dimension))
def test_what_is_written_is_read_again(each):
    perturbations = combined(each)
    assert parse_perturbations(format_perturbations(perturbations)) == perturbations


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("none", ()),
        ("camera", (Perturbation("camera", 3),)),
        ("light:2@4s", (Perturbation("light", 2, 4.0),)),
        ("light:2@0s", (Perturbation("light", 2),)),
        ("light:2@1.23456789s", (Perturbation("light", 2, 1.23457),)),  # as it is written and hashed
        ("wording:1+camera:5", (Perturbation("camera", 5), Perturbation("wording", 1))),
    ],
)
def test_spellings(text, meant):
    assert parse_perturbations(text) == meant


def test_dimensions_of_other_packages_are_read():
    assert parse_perturbations("gravity:2", others=lambda: ["gravity"]) == (Perturbation("gravity", 2),)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("camra:3", "unknown perturbation 'camra'; did you mean 'camera'?"),
        ("camera:9", "severity '9' is none of 1, 2, 3, 4, 5; did you mean camera:5?"),
        ("camera:", "severity '' is none of"),
        ("light:2@soon", "no time; write it as light:2@4s"),
        ("robot:2@4s", "robot is where an episode starts; leave out its time"),
        ("layout:1+swap:1", "layout and swap exclude each other"),
        (
            "light:1+light:3",
            "give one of them, or compare severities with --perturb-each light --severities 1 3",
        ),
    ],
)
def test_bad_spellings_say_what_is_allowed(text, complaint):
    with pytest.raises(UsageError) as refused:
        parse_perturbations(text)
    assert complaint in str(refused.value)
