"""Writes a model as the files LIBERO opens: one MuJoCo XML, its meshes and its pictures."""

import math
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET

from sim_envs.libero.standins.model import (
    Body,
    Joint,
    Look,
    Model,
    Picture,
    Region,
    Solid,
    Vec3,
    rotate,
    times,
)

# LIBERO's contact parameters, the same for all of its objects: stiff contacts, rough surfaces.
CONTACT = {"solimp": "0.998 0.998 0.001", "solref": "0.001 1", "friction": "0.95 0.3 0.1"}
DENSITY = 100.0


def numbers(values: Iterable[float]) -> str:
    """Numbers as MuJoCo reads them."""
    return " ".join(f"{value:.6g}" for value in values)


def write_model(tree: Path, model: Model) -> None:
    """Write `model` below the asset tree `tree`."""
    file = tree / model.path
    file.parent.mkdir(parents=True, exist_ok=True)
    parts = file.parent / f"{file.stem}_parts"
    root = ET.Element("mujoco", model=file.stem)
    asset = ET.SubElement(root, "asset")
    outer = ET.SubElement(ET.SubElement(root, "worldbody"), "body")
    outer.append(body_element(model.body, Wardrobe(asset=asset, folder=parts)))
    marks = {
        "bottom_site": (0.0, 0.0, model.marks.bottom),
        "top_site": (0.0, 0.0, model.marks.top),
        "horizontal_radius_site": (*model.marks.radius, 0.0),
    }
    for name, pos in marks.items():
        ET.SubElement(outer, "site", name=name, pos=numbers(pos), size="0.005", rgba="0 0 0 0")
    save_xml(file, root)


def save_xml(file: Path, root: ET.Element) -> None:
    """Write an XML tree, indented."""
    ET.indent(root)
    file.write_text(ET.tostring(root, encoding="unicode") + "\n", encoding="utf-8")


class Wardrobe:
    """Collects the meshes, pictures and materials that looks ask for, and writes their files."""

    def __init__(self, *, asset: ET.Element, folder: Path) -> None:
        self._asset = asset
        self._folder = folder
        self._materials: dict[str, None] = {}
        self._meshes = 0

    def dress(self, look: Look, parent: ET.Element) -> ET.Element:
        """Append the look to a body and return its geom."""
        name = f"{self._folder.name.removesuffix('_parts')}_{self._meshes}"
        self._meshes += 1
        self._save(f"{name}.obj", look.mesh.obj().encode())
        ET.SubElement(self._asset, "mesh", name=name, file=f"{self._folder.name}/{name}.obj")
        attributes = {"type": "mesh", "mesh": name, "material": self._material(look)}
        return ET.SubElement(parent, "geom", attributes, contype="0", conaffinity="0", group="1")

    def _material(self, look: Look) -> str:
        skin = look.skin
        name = (
            skin.name if isinstance(skin, Picture) else "c" + "".join(f"{round(c * 255):02x}" for c in skin)
        )
        name += f"_{round(look.shine * 100)}"
        if name in self._materials:
            return name
        self._materials[name] = None
        shine = {"specular": numbers([look.shine]), "shininess": numbers([look.shine])}
        if isinstance(skin, Picture):
            self.picture(skin)
            ET.SubElement(self._asset, "material", shine, name=name, texture=f"tex-{skin.name}")
        else:
            ET.SubElement(self._asset, "material", shine, name=name, rgba=numbers([*skin, 1.0]))
        return name

    def picture(self, picture: Picture) -> None:
        """Write a picture and declare it as a texture, once."""
        if self._asset.find(f"./texture[@name='tex-{picture.name}']") is not None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        picture.paint().save(self._folder / f"{picture.name}.png")
        file = f"{self._folder.name}/{picture.name}.png"
        ET.SubElement(self._asset, "texture", name=f"tex-{picture.name}", file=file, type="2d")

    def _save(self, name: str, content: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / name).write_bytes(content)


def body_element(body: Body, wardrobe: Wardrobe) -> ET.Element:
    """A body with all its parts; its meshes and pictures go to the wardrobe."""
    element = ET.Element("body", name=body.name)
    if any(body.pos):
        element.set("pos", numbers(body.pos))
    if body.quat != (1.0, 0.0, 0.0, 0.0):
        element.set("quat", numbers(body.quat))
    if body.inertia is not None:
        mass, diagonal = body.inertia
        ET.SubElement(element, "inertial", pos="0 0 0", mass=numbers([mass]), diaginertia=numbers(diagonal))
    if body.joint is not None:
        element.append(_joint(body.joint))
    for region in body.regions:
        element.append(site(region))
    for look in body.looks:
        geom = wardrobe.dress(look, element)
        geom.set("quat", numbers(body.tilt))
    density = DENSITY if body.mass is None else body.mass / sum(_volume(solid.half) for solid in body.solids)
    element.extend(_solid(solid, body, density) for solid in body.solids)
    element.extend(body_element(part, wardrobe) for part in body.parts)
    return element


def _volume(half: Vec3) -> float:
    return 8 * math.prod(half)


def _solid(solid: Solid, body: Body, density: float) -> ET.Element:
    return ET.Element(
        "geom",
        CONTACT | ({"contype": "0", "conaffinity": "1"} if body.aloof else {}),
        type="box",
        group="0",
        pos=numbers(rotate(body.tilt, solid.pos)),
        quat=numbers(times(body.tilt, solid.quat)),
        size=numbers(solid.half),
        density=numbers([density]),
        rgba="0.8 0.8 0.8 0.3",
    )


def _joint(joint: Joint) -> ET.Element:
    element = ET.Element(
        "joint",
        name=joint.name,
        type=joint.kind,
        axis=numbers(joint.axis),
        range=numbers(joint.limits),
        limited="true",
        damping=numbers([joint.damping]),
        pos=numbers(joint.pos),
    )
    if joint.friction:
        element.set("frictionloss", numbers([joint.friction]))
    if joint.armature:
        element.set("armature", numbers([joint.armature]))
    return element


def site(region: Region) -> ET.Element:
    """A region as a site."""
    return ET.Element(
        "site",
        name=region.name,
        type=region.shape,
        pos=numbers(region.pos),
        quat=numbers(region.quat),
        size=numbers(region.half),
        rgba=numbers([*region.colour, float(region.visible)]),
        group="0",
    )
