"""Objects and scenes that a perturbed LIBERO defines in its code, for LIBERO itself, which lacks them.

The code is that of the user's copy. It is read as text; of objects, the definitions that a task names are
executed beside LIBERO's own classes, which stay as they are.
"""

import ast
import copy
import dataclasses
import functools
import importlib
import os
import re
import runpy
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from configs.paths import read_text, temporary_folder
from contracts.errors import UsageError
from contracts.hashing import hash_of
from sim_envs.libero.assets import package_root
from sim_envs.libero.bddl import Category

_PLACES = (
    "stable_hope_objects/{0}/{0}.xml",
    "stable_scanned_objects/{0}/{0}.xml",
    "turbosquid_objects/{0}/{0}.xml",
    "articulated_objects/{0}.xml",
)
"""Where LIBERO's kinds of objects have their models in an asset tree."""


_SITES = ("bottom_site", "top_site", "horizontal_radius_site")  # of every object's model
WORKSPACE_OF = {
    "libero_floor_manipulation": ("floor", "floor"),
    "libero_kitchen_tabletop_manipulation": ("kitchen_table", "kitchen_table"),
    "libero_living_room_tabletop_manipulation": ("living_room_table", "living_room_table"),
    "libero_study_tabletop_manipulation": ("study_table", "study_table"),
    "libero_tabletop_manipulation": ("main_table", "table"),
}
"""Maps problems to the name and the category of the fixture that is part of their scene."""
WORKSPACES = frozenset(category for _, category in WORKSPACE_OF.values())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scene:
    """What LIBERO's problem class for a kind of room is built with."""

    room: str  # name of that class, in lower case
    file: str | None = None  # the scene file, in the asset tree; None for the class's own
    # Name of the texture of `floor` and `wall`; empty for the class's own.
    styles: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def missing(self, code: Path, assets: Path) -> list[str]:
        """The files that an asset tree lacks."""
        textures = [f"textures/{textures_of(code)[kind][style]}" for kind, style in self.styles.items()]
        needed = [*([self.file] if self.file else []), *textures]
        return [name for name in needed if not (assets / name).is_file()]

    def arguments(self) -> dict[str, Any]:
        """Arguments of the problem class."""
        properties = {f"{kind}_style": style for kind, style in self.styles.items()}
        return {"scene_xml": self.file, "scene_properties": properties or None}


@functools.cache
def scenes_of(code: Path) -> dict[str, Scene]:
    """Maps the problems that a copy defines, in lower case, to their scenes."""
    scenes = {}
    for file in sorted((code / "envs" / "problems").glob("*_manipulation.py")):
        room, *others = re.split(r"^class ", read_text(file), flags=re.MULTILINE)[1:]
        room = room.partition("(")[0].lower()
        scenes[room] = Scene(room=room)
        for text in others:
            found = re.search(r'"scene_xml": "([^"]+)"', text)
            styles = dict(re.findall(r'"(floor|wall)_style": "([^"]+)"', text))
            name = text.partition("(")[0].lower()
            scenes[name] = Scene(room=room, file=found and found[1], styles=styles)
    return scenes


@functools.cache
def textures_of(code: Path) -> dict[str, dict[str, str]]:
    """Maps `floor` and `wall` to their styles, and these to files."""
    mapping: dict[str, dict[str, str]] = runpy.run_path(str(code / "envs/arenas/style.py"))["STYLE_MAPPING"]
    return mapping


@functools.cache
def code_digest(code: Path) -> str:
    """A digest of the files that are read here, whatever the name of their package."""
    files = [*code.glob("envs/problems/[!_]*.py"), *code.glob("envs/objects/[!_]*.py")]
    texts = [read_text(file) for file in (*sorted(files), code / "envs/arenas/style.py")]
    return hash_of([text.replace("liberoplus", "libero") for text in texts])[:12]


def problem_class(code: Path | None, name: str) -> tuple[type, dict[str, Any]]:
    """The class of a BDDL problem, named in lower case, and arguments for it."""
    from libero.libero.envs import TASK_MAPPING
    from libero.libero.envs.arenas.style import STYLE_MAPPING
    from libero.libero.envs.regions import REGION_SAMPLERS

    if code is None or name in TASK_MAPPING:
        return TASK_MAPPING[name], {}
    scene = scenes_of(code)[name]
    for kind, styles in textures_of(code).items():
        STYLE_MAPPING[kind] = {**styles, **STYLE_MAPPING[kind]}
    # LIBERO compares the class's name with the problem's, and looks up its table by it.
    REGION_SAMPLERS[name] = REGION_SAMPLERS[scene.room]
    return type(name, (TASK_MAPPING[scene.room],), {}), scene.arguments()


@functools.cache
def _definitions(code: Path) -> dict[str, tuple[Path, str]]:
    """Maps each category of objects to the file that defines it, and the text of its class."""
    found = {}
    for file in sorted((code / "envs" / "objects").glob("*.py")):
        for text in re.split(r"^(?=@register_object)", read_text(file), flags=re.MULTILINE)[1:]:
            if (named := re.search(r"^class (\w+)\(", text, re.MULTILINE)) is not None:
                category = "_".join(re.sub(r"([A-Z0-9])", r" \1", named[1]).split()).lower()
                found[category] = file, text  # as LIBERO's `register_object`
    return found


def missing_models(code: Path, categories: Set[str], assets: Path) -> list[str]:
    """Those of the categories that LIBERO lacks for whose models an asset tree has no file."""
    definitions, missing = _definitions(code), []
    for category in sorted(categories & definitions.keys() - _definitions(package_root()).keys()):
        own = re.search(r"assets/(new_objects/[^\"']+\.xml)", definitions[category][1])
        files = [own[1]] if own else [pattern.format(category) for pattern in _PLACES]
        if not any((assets / file).is_file() for file in files):
            missing.append(category)
    return missing


def add_objects(code: Path, categories: Set[str]) -> None:
    """Make LIBERO know the categories that it lacks; a UsageError if the copy does not define one."""
    from libero.libero.envs.base_object import OBJECTS_DICT

    for category in sorted(categories - OBJECTS_DICT.keys()):
        if category not in _definitions(code):
            raise UsageError(f"{code}/envs/objects defines no object {category!r}, and LIBERO has none")
        file, text = _definitions(code)[category]
        exec(compile(text, str(file), "exec"), _names_in(file))  # noqa: S102 - the copy is the user's choice


_WITHOUT_MODELS = frozenset({"cherries", "corn", "mayo", "rack", "target_zone"})  # LIBERO's classes


@functools.cache
def known_categories(assets: Path) -> dict[str, Category]:
    """The categories of objects and fixtures that LIBERO defines, or for which an asset tree has a model."""
    classes = {name: text for name, (_, text) in _definitions(package_root()).items()}
    models = models_in(assets)
    return {
        name: Category(
            opens="def is_open(" in classes.get(name, ""),
            switches="def turn_on(" in classes.get(name, ""),
            can_be_fixed="joints" in classes[name] if name in classes else models[name] in _PLACES[2:],
            regions=_sites_in(assets / models[name].format(name)) if name in models else None,
        )
        for name in sorted({*classes, *models} - _WITHOUT_MODELS)
    }


def _sites_in(model: Path) -> frozenset[str]:
    names = {site.get("name", "") for site in ET.parse(model).iter("site")}
    return frozenset(names - {"", *_SITES})


@functools.cache
def models_in(assets: Path) -> dict[str, str]:
    """Maps the names of an asset tree's models to the patterns of their places."""
    return {
        file.stem: place
        for place in _PLACES
        for file in assets.glob(place.format("*"))
        if file == assets / place.format(file.stem)
    }


def add_models(assets: Path, categories: Set[str]) -> None:
    """Make LIBERO know those categories that it lacks and an asset tree has: of the kind of their folder."""
    from libero.libero.envs import objects
    from libero.libero.envs.base_object import OBJECTS_DICT

    kinds: tuple[type, ...] = (
        objects.HopeBaseObject,
        objects.GoogleScannedObject,
        objects.TurbosquidObjects,
        objects.ArticulatedObject,
    )
    for category in categories & models_in(assets).keys() - OBJECTS_DICT.keys():
        _check_model(assets / models_in(assets)[category].format(category))
        kind = kinds[_PLACES.index(models_in(assets)[category])]
        OBJECTS_DICT[category] = _of_kind(kind, category)


def _check_model(model: Path) -> None:
    """A UsageError if a model is not as robosuite's objects are."""
    model = model.resolve()  # in the user's folder, not among the links to it
    try:
        root = ET.parse(model).getroot()
    except ET.ParseError as error:
        raise UsageError(f"{model}: not an XML file: {error}") from None
    needed = ["body/body[@name='object']", *(f"body/site[@name='{name}']" for name in _SITES)]
    if missing := [path for path in needed if root.find(f"worldbody/{path}") is None]:
        raise UsageError(f"{model}: expected <worldbody> with {missing[0]}, as in LIBERO's models")
    if any(geom.get("group") is None for geom in root.iterfind("worldbody//geom")):
        raise UsageError(f'{model}: expected group="0" (collides) or "1" (is seen) of every geom')


def _of_kind(kind: Any, category: str) -> type:
    def construct(self: Any, name: str = category, **how: Any) -> None:
        kind.__init__(self, name, category, **how)
        self.category_name, self.rotation = category, (0.0, 0.0)

    return type("".join(word.title() for word in category.split("_")), (kind,), {"__init__": construct})


@functools.cache
def _names_in(file: Path) -> dict[str, Any]:
    """The names that a file of objects defines, but for registered objects, in terms of LIBERO's."""
    from libero.libero.envs import base_object

    registering = {name: value for name, value in vars(base_object).items() if name.startswith("register_")}
    try:
        return {**vars(importlib.import_module(f"libero.libero.envs.objects.{file.stem}")), **registering}
    except ModuleNotFoundError:
        pass
    from robosuite.models.objects import MujocoXMLObject
    from robosuite.utils.mjcf_utils import array_to_string

    names = {
        "os": os,
        "re": re,
        "np": np,
        "copy": copy,
        "array_to_string": array_to_string,
        "MujocoXMLObject": MujocoXMLObject,
        "absolute_path": _Assets(),
        **registering,
    }
    tree = ast.parse(read_text(file))
    imports = (ast.Import, ast.ImportFrom, ast.Assign)
    tree.body = [
        node
        for node in tree.body
        if not isinstance(node, imports) and not (isinstance(node, ast.ClassDef) and node.decorator_list)
    ]
    exec(compile(tree, str(file), "exec"), names)  # noqa: S102
    return names


class _Assets:
    """The parent of the folder `assets` with the models that definitions name: LIBERO's tree as it is set."""

    def __str__(self) -> str:
        from libero.libero import get_assets_path

        return str(_parent_of(Path(get_assets_path())))


@functools.cache
def _parent_of(tree: Path) -> Path:
    if tree.name == "assets":
        return tree.parent
    parent = temporary_folder("oxygen-eval-assets-")
    (parent / "assets").symlink_to(tree)
    return parent
