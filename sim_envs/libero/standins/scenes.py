"""The rooms: floor, walls, lights and cameras, named and placed as LIBERO's arena code expects."""

import functools
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

from PIL import Image

from sim_envs.libero.standins import paint
from sim_envs.libero.standins.mjcf import numbers, save_xml
from sim_envs.libero.standins.model import Quat, Vec3

# LIBERO's arena code puts these file names, chosen by its styles, in place of the scene's own two textures.
TEXTURES: dict[str, Callable[[], Image.Image]] = {
    "light-gray-floor-tile.png": functools.partial(paint.planks, (172, 164, 156), (200, 195, 190)),
    "light-gray-plaster.png": functools.partial(paint.plaster, (206, 205, 200)),
}

WALLS: tuple[tuple[str, Vec3, Quat, Vec3], ...] = (  # name, position, orientation, half sizes
    ("leftcorner", (-1.25, 2.25, 1.5), (0.6532815, 0.6532815, 0.2705981, 0.2705981), (1.06, 1.5, 0.01)),
    ("rightcorner", (-1.25, -2.25, 1.5), (0.6532815, 0.6532815, -0.2705981, -0.2705981), (1.06, 1.5, 0.01)),
    ("left", (1.25, 3.0, 1.5), (0.7071, 0.7071, 0.0, 0.0), (1.75, 1.5, 0.01)),
    ("right", (1.25, -3.0, 1.5), (0.7071, -0.7071, 0.0, 0.0), (1.75, 1.5, 0.01)),
    ("rear", (-2.0, 0.0, 1.5), (0.5, 0.5, 0.5, 0.5), (1.5, 1.5, 0.01)),
    ("front", (3.0, 0.0, 1.5), (0.5, 0.5, -0.5, -0.5), (3.0, 1.5, 0.01)),
)
CAMERAS: tuple[
    tuple[str, Vec3, Quat], ...
] = (  # the problems move agentview and frontview to suit themselves
    ("frontview", (1.0, 0.0, 1.45), (0.56, 0.43, 0.43, 0.56)),
    ("birdview", (-0.2, 0.0, 3.0), (0.7071, 0.0, 0.0, 0.7071)),
    ("agentview", (0.5, 0.0, 1.35), (0.653, 0.271, 0.271, 0.653)),
    ("sideview", (-0.0565, 1.2761, 1.4880), (0.009905, 0.006878, 0.591223, 0.806418)),
)
LAMPS: tuple[Vec3, ...] = ((1.0, 1.0, 4.0), (-3.0, -3.0, 4.0))


def write_scenes(tree: Path) -> None:
    """Write every scene, and the textures they share, below the asset tree."""
    (tree / "textures").mkdir(parents=True, exist_ok=True)
    (tree / "scenes").mkdir(exist_ok=True)
    for name, make in TEXTURES.items():
        make().save(tree / "textures" / name)
    save_xml(tree / "scenes" / "libero_floor_base_style.xml", floor_scene())


def floor_scene() -> ET.Element:
    """A room with nothing in it: libero_object plays on its floor."""
    root = _room()
    world = _part(root, "worldbody")
    world.append(_floor_body())
    return root


def _room() -> ET.Element:
    """Sky, walls, lights and cameras."""
    root = ET.Element("mujoco", model="room")
    asset = ET.SubElement(root, "asset")
    sky = {"rgb1": ".9 .9 1.", "rgb2": ".2 .3 .4", "width": "32", "height": "32"}
    ET.SubElement(asset, "texture", sky, type="skybox", builtin="gradient")
    for texture, material, file in (
        ("texplane", "floorplane", "light-gray-floor-tile.png"),
        ("tex-wall", "walls_mat", "light-gray-plaster.png"),
    ):
        ET.SubElement(asset, "texture", name=texture, type="2d", file=f"../textures/{file}")
        matt = {
            "reflectance": "0",
            "shininess": "0",
            "specular": "0",
            "texrepeat": "3 3",
            "texuniform": "true",
        }
        ET.SubElement(asset, "material", matt, name=material, texture=texture)
    world = ET.SubElement(root, "worldbody")
    for name, pos, quat, half in WALLS:
        place = {"pos": numbers(pos), "quat": numbers(quat), "size": numbers(half)}
        ghost = {"type": "box", "contype": "0", "conaffinity": "0", "group": "1", "material": "walls_mat"}
        ET.SubElement(world, "geom", place | ghost, name=f"wall_{name}_visual")
    for number, pos in enumerate(LAMPS, start=1):
        bulb = {"diffuse": ".8 .8 .8", "specular": "0.3 0.3 0.3", "dir": "0 -.15 -1", "castshadow": "false"}
        ET.SubElement(world, "light", bulb, name=f"light{number}", pos=numbers(pos), directional="false")
    for name, pos, quat in CAMERAS:
        ET.SubElement(world, "camera", mode="fixed", name=name, pos=numbers(pos), quat=numbers(quat))
    return root


def _floor() -> ET.Element:
    plane = {"condim": "3", "group": "1", "material": "floorplane", "pos": "0 0 0", "size": "3 3 .125"}
    return ET.Element("geom", plane, name="floor", type="plane")


def _floor_body() -> ET.Element:
    body = ET.Element("body", name="floor", pos="0 0 0")
    body.append(_floor())
    return body


def _part(root: ET.Element, tag: str) -> ET.Element:
    part = root.find(tag)
    assert part is not None
    return part
