"""Names of LIBERO-plus's tasks, which say how each is perturbed."""

import dataclasses
import re

CATEGORIES = (
    "Camera Viewpoints",
    "Robot Initial States",
    "Language Instructions",
    "Light Conditions",
    "Background Textures",
    "Sensor Noise",
    "Objects Layout",
)
"""The published names, in the published order."""

_NAME = re.compile(
    r"(?P<base>.+?)"
    r"(?:(?P<language>_language_\d+)?_view_(?P<view>\d+_\d+_\d+_\d+_\d+)_initstate_(?P<robot>\d+)"
    r"(?:_noise_(?P<noise>\d+))?"
    r"|(?P<light>_light_\d+)|(?P<texture>_(?:table|tb)_\d+)|(?P<layout>_add_\d+|(?:_moved)?_level\d+_sample\d+))?"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """Where `agentview` is, relative to LIBERO's.

    Attributes:
        horizontal: Orbit about the world's vertical axis, degrees.
        vertical: Orbit about a horizontal axis above the table, degrees.
        distance: Distance from that axis, percent of LIBERO's.
        turn: Rotation about a vertical axis through the camera, degrees.
        tilt: Rotation about a horizontal axis through the camera, degrees.
    """

    horizontal: int = 0
    vertical: int = 0
    distance: int = 100
    turn: int = 0
    tilt: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlusName:
    """A task's name, read.

    Attributes:
        base: LIBERO's task.
        problem: Stem of its BDDL file.
        states: Stem of the file with its initial states.
        category: How it is perturbed; empty for LIBERO's own task.
        view: Pose of the camera.
        robot: Number of the arm's initial joint positions; 0 for LIBERO's.
        noise: Setting of the camera's noise; 0 for none.
    """

    base: str
    problem: str
    states: str
    category: str
    view: View = View()
    robot: int = 0
    noise: int = 0


def read_name(name: str) -> PlusName:
    """Read the name of a task."""
    found = _NAME.fullmatch(name)
    assert found is not None, name
    part = found.groupdict()
    base, whole = part["base"], name if part["view"] is None else f"{part['base']}{part['language'] or ''}"
    view = (
        View()
        if part["view"] is None
        else View(**dict(zip(_VIEW, map(int, part["view"].split("_")), strict=True)))
    )
    robot, noise = int(part["robot"] or 0), int(part["noise"] or 0)
    camera, arm, language, light, texture, sensor, layout = CATEGORIES
    given = {
        language: part["language"],
        sensor: noise,
        arm: robot,
        camera: part["view"],
        light: part["light"],
        texture: part["texture"],
        layout: part["layout"],
    }
    return PlusName(
        base=base,
        problem=whole,
        states=name if part["layout"] else base,
        category=next((category for category, value in given.items() if value), ""),
        view=view,
        robot=robot,
        noise=noise,
    )


_VIEW = tuple(field.name for field in dataclasses.fields(View))
