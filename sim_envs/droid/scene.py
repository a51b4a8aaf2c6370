"""A task's scene as one MuJoCo model: room, table, robot, objects, exterior camera."""

from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET

import mujoco

from sim_envs.droid.shapes import Articulated, MovingPart, Painted, Piece
from sim_envs.droid.task_file import ObjectConfig, TaskConfig
from sim_envs.droid.variation import TABLE_COLOR, Distractor, distractors

_STATION = Path(__file__).with_name("robot_model") / "station.xml"
"""Room, table, cameras and robot."""

PHYSICS_STEPS = 40
"""Physics steps per control step; their duration is that of the station."""

_TABLE_GREY = 0.8
"""Brightness of the texture of a tinted table."""

_SCENE_CONTYPE, _SCENE_CONAFFINITY = "2", "3"
"""Objects and table collide with each other and the robot."""

_TORSIONAL, _ROLLING = 0.005, 0.001
"""Torsional and rolling friction, m."""


def part_name(name: str, part: MovingPart) -> str:
    """The model's name of an object's moving part, of its joint and of its motor."""
    return f"{name}_{part.name}"


def slide_joint(name: str) -> str:
    """The model's name of the joint of an object's drawer."""
    return f"{name}_drawer"


def build_model(task: TaskConfig, *, varies: bool = False) -> mujoco.MjModel:
    """Compile a task's scene. Objects are at the origin until a state is set.

    Args:
        task: The task.
        varies: Whether to prepare variation: a table that can be tinted, and weightless distractors below
            the floor.
    """
    root = ET.parse(_STATION).getroot()
    root.set("model", task.name)
    (compiler,), (world,) = root.iterfind("compiler"), root.iterfind("worldbody")
    compiler.set("meshdir", str(_STATION.parent))
    for name, obj in task.objects.items():
        world.append(_object(name, obj))
        _add_drives(root, name, obj)
    if varies:
        _prepare_variation(root, task)
    return mujoco.MjModel.from_xml_string(ET.tostring(root, encoding="unicode"))


def _prepare_variation(root: ET.Element, task: TaskConfig) -> None:
    """Prepare for variation without changing an image, and with hardly a change of the physics."""
    (option,) = root.iterfind("option")
    option.set("jacobian", "sparse")  # hidden bodies then cost little
    (texture,) = root.iterfind("asset/texture[@name='wood']")
    (material,) = root.iterfind("asset/material[@name='wood']")
    for part in ("rgb1", "rgb2", "markrgb"):
        green = float(texture.get(part, "").split()[1])
        texture.set(part, _numbers([_TABLE_GREY * green / TABLE_COLOR[1]] * 3))
    material.set("rgba", f"{_numbers(channel / _TABLE_GREY for channel in TABLE_COLOR)} 1")
    (world,) = root.iterfind("worldbody")
    for number, (name, obj) in enumerate(distractors(task).items()):
        body = _object(name, obj)
        body.set("pos", _numbers((0.3 * number, 0.0, -3.0)))
        body.set("gravcomp", "1")
        world.append(body)


def _object(name: str, obj: ObjectConfig | Distractor) -> ET.Element:
    body = ET.Element("body", name=name)
    if not obj.is_fixed:
        ET.SubElement(body, "freejoint", name=name)
    pieces = obj.shape.pieces()
    mass = obj.mass / sum(piece.volume for piece in pieces)
    for piece in pieces:
        if not piece.part:
            body.append(_geom(piece, obj, mass * piece.volume))
    if isinstance(obj.shape, Articulated):
        for part in obj.shape.parts():
            body.append(_moving_part(name, obj, part, mass))
    return body


def _moving_part(name: str, obj: ObjectConfig | Distractor, part: MovingPart, density: float) -> ET.Element:
    moving = ET.Element("body", name=part_name(name, part), pos=_numbers(part.pos))
    joint = {"type": part.joint, "axis": _numbers(part.axis), "limited": "false"}
    if part.span is not None:
        joint |= {"limited": "true", "range": _numbers(part.span)}
    joint |= {"damping": f"{part.damping:g}", "frictionloss": f"{part.dry_friction:g}"}
    joint["armature"] = f"{part.armature:g}"
    ET.SubElement(moving, "joint", joint, name=part_name(name, part))
    for piece in obj.shape.pieces():
        if piece.part == part.name:
            moving.append(_geom(piece, obj, density * piece.volume))
    return moving


def _add_drives(root: ET.Element, name: str, obj: ObjectConfig) -> None:
    """Add motors. The parts that they move do not collide with the rest of the object, or the table."""
    if not isinstance(obj.shape, Articulated):
        return
    actuators, contact = ET.SubElement(root, "actuator"), ET.SubElement(root, "contact")
    for part in obj.shape.parts():
        if part.drive is None:
            continue
        moved, gain = part_name(name, part), part.drive.gain
        bias = f"0 0 {-gain}" if part.drive.keeps == "velocity" else f"0 {-gain} 0"
        motor = {"gainprm": f"{gain}", "biastype": "affine", "biasprm": bias, "forcelimited": "true"}
        motor["forcerange"] = f"{-part.drive.limit} {part.drive.limit}"
        ET.SubElement(actuators, "general", motor, name=moved, joint=moved)
        for other in (name, "world"):
            ET.SubElement(contact, "exclude", body1=other, body2=moved)


def _geom(piece: Piece, obj: ObjectConfig | Distractor, mass: float) -> ET.Element:
    collides = not isinstance(obj.shape, Painted)
    shade = 0.75 if piece.part else 1.0
    own_rolling = obj.rolling if isinstance(obj, ObjectConfig) else None
    priority = {} if own_rolling is None else {"priority": "1"}
    return ET.Element(
        "geom",
        priority,
        type=piece.type,
        size=_numbers(piece.size),
        pos=_numbers(piece.pos),
        quat=_numbers(piece.quat),
        mass=f"{mass:.9f}",
        rgba=f"{_numbers(channel * shade for channel in obj.color)} 1",
        friction=f"{obj.friction} {_TORSIONAL} {_ROLLING if own_rolling is None else own_rolling}",
        condim="4" if piece.type == "box" or piece.part else "6",  # rolling friction stops round objects
        contype=_SCENE_CONTYPE if collides else "0",
        conaffinity=_SCENE_CONAFFINITY if collides else "0",
        group="1",
        solref="0.006 1",
    )


def _numbers(values: Iterable[float]) -> str:
    return " ".join(f"{value:.9g}" for value in values)
