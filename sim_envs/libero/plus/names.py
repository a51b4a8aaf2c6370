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


@dataclasses.dataclass(frozen=True)
class View:
    """Where `agentview` is, relative to LIBERO's."""

    horizontal: int = 0  # orbit about the world's vertical axis, degrees
    vertical: int = 0  # orbit about a horizontal axis above the table, degrees
    distance: int = 100  # distance from that axis, percent of LIBERO's
    turn: int = 0  # rotation about a vertical axis through the camera, degrees
    tilt: int = 0  # rotation about a horizontal axis through the camera, degrees


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlusName:
    """A task's name, read."""

    base: str  # LIBERO's task
    problem: str  # stem of its BDDL file
    states: str  # stem of the file with its initial states
    category: str  # how it is perturbed; empty for LIBERO's own task
    view: View  # pose of the camera
    robot: int  # number of the arm's initial joint positions; 0 for LIBERO's
    noise: int  # setting of the camera's noise; 0 for none


def read_name(name: str) -> PlusName:
    """Read the name of a task."""
    found = _NAME.fullmatch(name)
    assert found is not None, name
    part = found.groupdict()
    base, robot, noise = part["base"], int(part["robot"] or 0), int(part["noise"] or 0)
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
        problem=f"{base}{part['language'] or ''}" if part["view"] else name,
        states=name if part["layout"] else base,
        category=next((category for category, value in given.items() if value), ""),
        view=View(*map(int, part["view"].split("_"))) if part["view"] else View(),
        robot=robot,
        noise=noise,
    )
