"""The rooms: floor, walls, lights and cameras, named and placed as LIBERO's arena code expects."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from PIL import Image

from sim_envs.libero.standins import paint
from sim_envs.libero.standins.mjcf import Wardrobe, body_element, numbers, save_xml
from sim_envs.libero.standins.model import Body, Quat, Vec3
from sim_envs.libero.standins.rooms import COFFEE_TABLE, DESK, KITCHEN_BACK, LIVING_ROOM_BACK, STUDY_BACK

# LIBERO's arena code puts these file names, chosen by its styles, in place of the scene's own two textures.
TEXTURES: dict[str, Callable[[], Image.Image]] = {
    "light-gray-floor-tile.png": functools.partial(paint.planks, (172, 164, 156), (200, 195, 190)),
    "gray_ceramic_tile.png": functools.partial(paint.tiles, (150, 152, 154), (112, 114, 116)),
    "seamless_wood_planks_floor.png": functools.partial(paint.planks, (150, 108, 72), (92, 62, 40), seed=4),
    "light-gray-plaster.png": functools.partial(paint.plaster, (206, 205, 200)),
    "yellow_linen_wall_texture.png": functools.partial(paint.plaster, (222, 206, 162)),
    "table.png": functools.partial(paint.grain, (196, 172, 144), size=256, amount=7.0, stretch=32),
}
MATT = {"reflectance": "0", "shininess": "0", "specular": "0"}
GHOST = {"contype": "0", "conaffinity": "0", "group": "1"}

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scene:
    """One of LIBERO's rooms.

    Attributes:
        name: Of the file LIBERO opens.
        floor_body: Whether the floor is a body, on which LIBERO marks regions, or bare ground.
        table: Whether there is the table that LIBERO's arena code sizes, lifts and puts on legs.
        bodies: Furniture.
    """

    name: str
    floor_body: bool = False
    table: bool = False
    bodies: Sequence[Body] = ()


SCENES = (
    Scene(name="libero_floor_base_style", floor_body=True),
    Scene(name="libero_tabletop_base_style", table=True),
    Scene(name="libero_kitchen_tabletop_base_style", table=True, bodies=KITCHEN_BACK),
    Scene(
        name="libero_living_room_tabletop_base_style",
        floor_body=True,
        bodies=(COFFEE_TABLE, *LIVING_ROOM_BACK),
    ),
    Scene(name="libero_study_base_style", bodies=(DESK, *STUDY_BACK)),
)


def write_scenes(tree: Path) -> None:
    """Write every scene, and the textures they share, below the asset tree."""
    (tree / "textures").mkdir(parents=True, exist_ok=True)
    (tree / "scenes").mkdir(exist_ok=True)
    for name, make in TEXTURES.items():
        make().save(tree / "textures" / name)
    for scene in SCENES:
        _write_scene(tree / "scenes", scene)


def _write_scene(folder: Path, scene: Scene) -> None:
    root = ET.Element("mujoco", model=scene.name)
    asset, world = ET.SubElement(root, "asset"), ET.SubElement(root, "worldbody")
    _add_room(asset, world)
    plane = {"condim": "3", "group": "1", "material": "floorplane", "pos": "0 0 0", "size": "3 3 .125"}
    ground = ET.SubElement(world, "body", name="floor", pos="0 0 0") if scene.floor_body else world
    ET.SubElement(ground, "geom", plane, name="floor", type="plane")
    if scene.table:
        _add_table(asset, world)
    wardrobe = Wardrobe(asset=asset, folder=folder / f"{scene.name}_parts")
    world.extend(body_element(body, wardrobe) for body in scene.bodies)
    save_xml(folder / f"{scene.name}.xml", root)


def _add_room(asset: ET.Element, world: ET.Element) -> None:
    """Walls, lights and cameras. A sky costs a sixth of an image, and nobody sees it from inside a room."""
    for texture, material, file in (
        ("texplane", "floorplane", "light-gray-floor-tile.png"),
        ("tex-wall", "walls_mat", "light-gray-plaster.png"),
    ):
        ET.SubElement(asset, "texture", name=texture, type="2d", file=f"../textures/{file}")
        tiled = {"texrepeat": "3 3", "texuniform": "true"}
        ET.SubElement(asset, "material", MATT | tiled, name=material, texture=texture)
    for name, pos, quat, half in WALLS:
        place = {"pos": numbers(pos), "quat": numbers(quat), "size": numbers(half)}
        ET.SubElement(
            world, "geom", place | GHOST, name=f"wall_{name}_visual", type="box", material="walls_mat"
        )
    for number, pos in enumerate(LAMPS, start=1):
        bulb = {"diffuse": ".8 .8 .8", "specular": "0.3 0.3 0.3", "dir": "0 -.15 -1", "castshadow": "false"}
        ET.SubElement(world, "light", bulb, name=f"light{number}", pos=numbers(pos), directional="false")
    for name, pos, quat in CAMERAS:
        ET.SubElement(world, "camera", mode="fixed", name=name, pos=numbers(pos), quat=numbers(quat))


def _add_table(asset: ET.Element, world: ET.Element) -> None:
    ET.SubElement(asset, "texture", name="tex-table", type="cube", file="../textures/table.png")
    ET.SubElement(asset, "material", MATT, name="table_texture", texture="tex-table")
    table = ET.SubElement(world, "body", name="table", pos="0 0 0.4")
    box = {"type": "box", "pos": "0 0 0", "size": "0.4 0.4 0.4"}
    ET.SubElement(table, "geom", box, name="table_collision", group="0", friction="1 0.005 0.0001")
    ET.SubElement(table, "geom", box | GHOST, name="table_visual", material="table_texture")
    ET.SubElement(table, "site", name="table_top", pos="0 0 0.4", size="0.001 0.001 0.001", rgba="0 0 0 0")
    for leg in range(1, 5):
        post = {"type": "cylinder", "pos": "0 0 0", "size": "0.05 0.1", "material": "table_texture"}
        ET.SubElement(table, "geom", post | GHOST, name=f"table_leg{leg}_visual")
